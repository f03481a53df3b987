"""Builds on databases that are newer or older than they are."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from schema_builds import ADDS, NEXT, Build, version_after
from sqlalchemy import Column, Integer, text
from sqlalchemy.ext.asyncio import AsyncEngine
from whole_life import SPILLS, life, live

from stagewright import Kernel, open_kernel
from stagewright.cli.application import run_application
from stagewright.commands import CancelRun, CreateRun, SignalStep
from stagewright.records import Fairness
from stagewright_persistence_sqlalchemy import (
    Database,
    SqlAlchemyAICallLogger,
    SqlAlchemyJobTransport,
    SqlAlchemyPersistence,
    create_engine,
    migrating,
    schema,
)
from stagewright_persistence_sqlalchemy.errors import (
    SchemaFeatureOffError,
    SchemaOutdatedError,
    SchemaTooNewError,
    UnknownSchemaError,
)
from stagewright_persistence_sqlalchemy.migration_declarations import oldest_database
from stagewright_persistence_sqlalchemy.schema_state import VERSION_TABLE
from stagewright_persistence_sqlalchemy.tables import PLAIN_TABLES
from stagewright_test_support.backend_choice import stores

HEAD = schema.HEAD
FOR_OLDER_BUILDS = f'oldest_build = "{HEAD}"'
FOR_NEWER_BUILDS = "works_before = True"
FEATURE = 'off_before = "sorting jobs by colour"'
SERVES_BOTH = f"{FOR_OLDER_BUILDS}\n{FOR_NEWER_BUILDS}\n{FEATURE}"

MakeBuild = Callable[..., Build]


on_one = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


@pytest.fixture(params=stores("sqlite", "asyncpg", "psycopg", "mariadb", differ={"mariadb"}))
def url(request: pytest.FixtureRequest, new_database: Callable[[str], str]) -> str:
    """An empty database."""
    return new_database(request.param)


@pytest_asyncio.fixture
async def engine(url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_engine(url)
    yield engine
    await engine.dispose()


@pytest.fixture
def next_build(tmp_path: Path) -> MakeBuild:
    """`next_build(declarations, *bodies)`: a build that knows one migration more, or several."""

    def make(declarations: str = "", *bodies: str) -> Build:
        return Build.with_next(tmp_path / "later", *bodies or (ADDS,), declarations=declarations)

    return make


@pytest.fixture
def stagewright_db(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs `stagewright db`; answers with its code and what it printed."""

    async def run(*arguments: str) -> tuple[int, str]:
        code = await asyncio.to_thread(run_application, ["db", *arguments])
        shown = capsys.readouterr()
        return code, shown.out + shown.err

    return run


def database_of(kernel: Kernel) -> Database:
    persistence = kernel.ports.persistence
    assert isinstance(persistence, SqlAlchemyPersistence)
    return persistence.database


async def execute(engine: AsyncEngine, statement: str) -> None:
    async with engine.begin() as connection:
        await connection.execute(text(statement))


@pytest.mark.guarantee("sql.older-builds-go-on")
async def test_an_older_build_goes_on_where_the_database_says_so(
    url: str, engine: AsyncEngine, next_build: MakeBuild, caplog: pytest.LogCaptureFixture
) -> None:
    with next_build(FOR_OLDER_BUILDS).acting():
        assert await schema.upgrade(engine) == schema.Upgrade(before=None, after=NEXT)
    with caplog.at_level(logging.WARNING, "stagewright.persistence"):
        async with open_kernel(life(), url, create_schema=True, spill_threshold_bytes=SPILLS) as kernel:
            await live(kernel)
    said = [record.getMessage() for record in caplog.records if "the schema is" in record.getMessage()]
    assert len(said) == 1
    assert said[0].endswith(f"the schema is {NEXT}; this build needs {HEAD} and works on it")
    assert await schema.upgrade(engine) == schema.Upgrade(before=NEXT, after=NEXT)
    assert await schema.current(engine) == NEXT


@pytest.mark.guarantee("sql.older-builds-go-on")
async def test_an_older_build_is_refused_where_the_database_does_not_say_so(
    url: str, engine: AsyncEngine, next_build: MakeBuild
) -> None:
    with next_build().acting():
        await schema.upgrade(engine)
    for create_schema in (None, True):
        with pytest.raises(SchemaTooNewError) as raised:
            async with open_kernel(life(), url, create_schema=create_schema):
                pass
        error = raised.value
        assert str(error) == (
            f"{error.url} has the Stagewright schema {NEXT}, which works with builds of {NEXT} or later, and this code "
            f"knows none after {HEAD}; upgrade stagewright-persistence-sqlalchemy"
        )


@on_one
async def test_the_last_migration_says_which_builds_go_on(
    engine: AsyncEngine, tmp_path: Path, next_build: MakeBuild
) -> None:
    """One that adds, then one that takes away what the build before it no longer uses: only that one goes on."""
    with next_build(f'oldest_build = "{NEXT}"', ADDS, "    op.drop_table('colours')\n").acting():
        await schema.upgrade(engine)
        assert await schema.oldest_build(engine) == NEXT
    with pytest.raises(SchemaTooNewError):
        await schema.check(engine)
    with Build.with_next(tmp_path / "one more", ADDS).acting():
        assert (await schema.check(engine)).version == version_after(NEXT)


async def test_a_database_from_before_it_said_so_works_with_its_own_build_only(
    engine: AsyncEngine, next_build: MakeBuild
) -> None:
    await schema.upgrade(engine)
    await execute(engine, f"ALTER TABLE {VERSION_TABLE} DROP COLUMN oldest_build")
    assert (await schema.check(engine)).remark is None
    assert await schema.oldest_build(engine) == HEAD
    assert await schema.upgrade(engine) == schema.Upgrade(before=HEAD, after=HEAD)
    await execute(engine, f"UPDATE {VERSION_TABLE} SET version_num = '{NEXT}'")
    with pytest.raises(SchemaTooNewError):
        await schema.check(engine)
    await execute(engine, f"UPDATE {VERSION_TABLE} SET version_num = '{HEAD}'")
    with next_build(FOR_OLDER_BUILDS).acting():
        assert await schema.upgrade(engine) == schema.Upgrade(before=HEAD, after=NEXT)
    assert await schema.oldest_build(engine) == HEAD
    assert (await schema.check(engine)).version == NEXT


@pytest.mark.guarantee("sql.newer-builds-begin-before")
async def test_a_newer_build_works_on_the_schema_before_without_what_is_new(
    url: str, engine: AsyncEngine, next_build: MakeBuild, caplog: pytest.LogCaptureFixture
) -> None:
    await schema.upgrade(engine)
    with next_build(SERVES_BOTH).acting():
        with caplog.at_level(logging.WARNING, "stagewright.persistence"):
            async with open_kernel(life(), url, spill_threshold_bytes=SPILLS) as kernel:
                found = database_of(kernel).schema
                assert (found.has(HEAD), found.has(NEXT)) == (True, False)
                found.require(HEAD)
                with pytest.raises(SchemaFeatureOffError) as raised:
                    found.require(NEXT)
                await live(kernel)
        assert str(raised.value) == (
            f"sorting jobs by colour needs the Stagewright schema {NEXT} and {found.url} has {HEAD}; run "
            f"`stagewright db upgrade '{found.url}'` and open it again"
        )
        (said,) = (record.getMessage() for record in caplog.records if "sorting jobs" in record.getMessage())
        assert said == (
            f"{found.url}: the schema is {HEAD}; this build needs {NEXT} and works on it, without sorting jobs by "
            f"colour, until it is opened after `stagewright db upgrade '{found.url}'`"
        )
        assert await schema.upgrade(engine) == schema.Upgrade(before=HEAD, after=NEXT)
        async with open_kernel(life(), url) as kernel:
            database_of(kernel).schema.require(NEXT)


@on_one
async def test_a_newer_build_upgrades_where_it_was_told_to(
    url: str, engine: AsyncEngine, next_build: MakeBuild
) -> None:
    await schema.upgrade(engine)
    with next_build(SERVES_BOTH).acting():
        async with open_kernel(life(), url, create_schema=True) as kernel:
            database_of(kernel).schema.require(NEXT)
    assert await schema.current(engine) == NEXT


@on_one
async def test_a_newer_build_is_refused_where_a_migration_between_does_not_allow_it(
    engine: AsyncEngine, next_build: MakeBuild
) -> None:
    await schema.upgrade(engine)
    later = next_build(FOR_NEWER_BUILDS, ADDS, "    pass\n")
    with later.acting():
        assert list((await schema.check(engine)).off) == [NEXT, later.head]
    migration = later.folder / "versions" / f"{NEXT}_made_by_a_test.py"
    source = await asyncio.to_thread(migration.read_text, encoding="utf-8")
    await asyncio.to_thread(migration.write_text, source.replace(FOR_NEWER_BUILDS, ""), encoding="utf-8")
    with later.acting(), pytest.raises(SchemaOutdatedError, match=f"and this code needs {later.head}; run"):
        await schema.check(engine)


@pytest.fixture
def new_table() -> Iterator[None]:
    """A table that the code knows since the next version, and the database hasn't."""
    with ExitStack() as undone:
        table = PLAIN_TABLES._define("colours", Column("id", Integer, primary_key=True), since=NEXT)
        undone.callback(PLAIN_TABLES.metadata.remove, table)
        undone.callback(PLAIN_TABLES.by_name.pop, "colours")
        yield


@on_one
@pytest.mark.usefixtures("new_table")
async def test_a_table_is_missed_from_its_own_version_on(engine: AsyncEngine, next_build: MakeBuild) -> None:
    await schema.upgrade(engine)
    with next_build(SERVES_BOTH).acting():
        await schema.check(engine)
        await execute(engine, f"UPDATE {VERSION_TABLE} SET version_num = '{NEXT}'")
        with pytest.raises(UnknownSchemaError, match=r"tables are missing \(colours\)"):
            await schema.check(engine)


@on_one
async def test_the_command_says_who_works_with_what(
    url: str, engine: AsyncEngine, next_build: MakeBuild, stagewright_db: Callable[..., Any]
) -> None:
    await schema.upgrade(engine)
    later = next_build(SERVES_BOTH)
    with later.acting():
        code, printed = await stagewright_db("check", url)
        assert code == 0
        assert printed.startswith(f"the schema is {HEAD}; this build needs {NEXT} and works on it, without")
        assert (await stagewright_db("upgrade", url)) == (0, f"the schema went from {HEAD} to {NEXT}\n")
    assert await stagewright_db("current", url) == (
        0,
        f"{NEXT}\noldest build that works on it: {HEAD}\nthis build needs: {HEAD}\n",
    )
    assert await stagewright_db("check", url) == (
        0,
        f"the schema is {NEXT}; this build needs {HEAD} and works on it\n",
    )
    assert await stagewright_db("upgrade", url) == (0, f"the schema is at {NEXT} already\n")


RETYPES = """
    if op.get_context().dialect.name == "postgresql":
        for table, column in (("workflow_runs", "workflow_name"), ("workflow_stages", "stage_name")):
            op.execute(f'ALTER TABLE {table} ALTER COLUMN {column} TYPE text COLLATE "C"')
    op.add_column("workflow_runs", sa.Column("colour", sa.String(40)))
"""


@pytest.mark.parametrize("url", ["sqlite", "asyncpg", "psycopg", "mariadb"], indirect=True)
@pytest.mark.guarantee("sql.upgrades-disturb-no-host")
async def test_whoever_has_the_database_open_goes_on_through_an_upgrade(
    url: str, engine: AsyncEngine, next_build: MakeBuild
) -> None:
    """Also with the statements that its connections have prepared, those of reads among them."""
    await schema.upgrade(engine)

    async def read(kernel: Kernel) -> None:
        # More connections than there are tries; a driver prepares what it has seen a few times.
        for _ in range(8):
            await asyncio.gather(*(kernel.runs.get("none") for _ in range(6)))
            await kernel.runs.list()

    async def write(kernel: Kernel) -> None:
        for _ in range(3):
            run_id = (await kernel.dispatch(CreateRun("life", 1))).run_id
            await kernel.dispatch(SignalStep(run_id, "waits", "approval", payload="yes"))
            await kernel.dispatch(CancelRun(run_id))

    async with open_kernel(life(), url, spill_threshold_bytes=SPILLS) as kernel:
        await live(kernel)
        await asyncio.gather(*(write(kernel) for _ in range(6)))
        await read(kernel)
        with next_build(FOR_OLDER_BUILDS, RETYPES).acting():
            await schema.upgrade(engine)
        await write(kernel)
        await read(kernel)
        await live(kernel)


@pytest.mark.guarantee("sql.newer-builds-begin-before")
async def test_this_build_works_on_every_schema_that_it_says_it_works_on(
    url: str, engine: AsyncEngine, tmp_path: Path
) -> None:
    """Without the log of model calls where that has no table, also through an upgrade by somebody else."""
    oldest = oldest_database(migrating.SCRIPTS, HEAD)
    assert oldest == "0008"
    older = Build.of_version(oldest, tmp_path / "older")
    with older.acting():
        await schema.upgrade(engine)
    async with open_kernel(life(), url, spill_threshold_bytes=SPILLS) as kernel:
        await live(kernel)
        with pytest.raises(
            SchemaFeatureOffError, match="the log of model calls needs the Stagewright schema"
        ):
            SqlAlchemyAICallLogger(database_of(kernel))
        with pytest.raises(
            SchemaFeatureOffError, match="fair claiming by groups needs the Stagewright schema"
        ):
            SqlAlchemyJobTransport(database_of(kernel), fairness=Fairness(max_concurrent_per_group=1))
        await schema.upgrade(engine)
        await live(kernel)
    async with open_kernel(life(), url, spill_threshold_bytes=SPILLS) as kernel:
        await live(kernel)
        assert await SqlAlchemyAICallLogger(database_of(kernel)).list_calls("any") == []
    with older.acting():
        assert (await schema.check(engine)).version == HEAD


def test_every_migration_says_who_works_with_it() -> None:
    scripts = list(migrating.SCRIPTS.walk_revisions())
    declared = [(one.revision, vars(one.module)) for one in reversed(scripts)]
    oldest_builds = [said.get("oldest_build", version) for version, said in declared]
    assert oldest_builds == sorted(oldest_builds), "what works on a database works on those before it"
    for (version, said), oldest_build in zip(declared, oldest_builds, strict=True):
        if version > "0008":
            assert {"oldest_build", "works_before"} <= set(said), version
            assert isinstance(said["works_before"], bool), version
        assert len(oldest_build) == len(version), version
        assert "0001" <= oldest_build <= version, version
        assert said.get("works_before") or "off_before" not in said, version
