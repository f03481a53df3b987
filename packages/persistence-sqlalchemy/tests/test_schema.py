"""Making, checking and upgrading the schema of one database."""

import asyncio
import shutil
import sqlite3
import threading
from asyncio import gather, run
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]  # it ships no types
import pytest
import pytest_asyncio
from alembic.script import ScriptDirectory
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from stagewright.errors import InvalidSettingError
from stagewright_persistence_sqlalchemy import create_engine, migrating, schema
from stagewright_persistence_sqlalchemy.errors import (
    DatabaseUnusableError,
    SchemaMissingError,
    SchemaOutdatedError,
    SchemaTooNewError,
    UnknownSchemaError,
)
from stagewright_persistence_sqlalchemy.tables import PLAIN_TABLES
from stagewright_test_support.servers import MariadbDatabases

WAYS = ("sqlite", "asyncpg", "psycopg", "mariadb")
VERSIONS = "stagewright_schema_version"


@pytest.fixture(params=WAYS)
def url(request: pytest.FixtureRequest, new_database: Callable[[str], str]) -> str:
    """An empty database."""
    return new_database(request.param)


@pytest_asyncio.fixture
async def engine(url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_engine(url)
    yield engine
    await engine.dispose()


async def execute(engine: AsyncEngine, *statements: str) -> None:
    async with engine.begin() as connection:
        for statement in statements:
            await connection.execute(text(statement))


async def values(engine: AsyncEngine, query: str) -> list[object]:
    async with engine.connect() as connection:
        return list((await connection.execute(text(query))).scalars())


async def test_an_empty_database_gets_the_whole_schema(engine: AsyncEngine) -> None:
    assert await schema.current(engine) is None
    assert await schema.upgrade(engine) == schema.Upgrade(before=None, after=schema.HEAD)
    await schema.check(engine)
    assert await schema.current(engine) == schema.HEAD
    assert await values(engine, f"SELECT version_num FROM {VERSIONS}") == [schema.HEAD]


async def test_an_upgrade_of_what_is_up_to_date_changes_nothing(engine: AsyncEngine) -> None:
    await schema.upgrade(engine)
    await execute(engine, "INSERT INTO work_signals (id, count) VALUES (1, 7)")
    assert await schema.upgrade(engine) == schema.Upgrade(before=schema.HEAD, after=schema.HEAD)
    assert await values(engine, "SELECT count FROM work_signals") == [7]


@pytest.mark.guarantee("sql.wrong-schema-in-one-sentence")
async def test_without_a_schema_the_error_names_the_command_that_makes_it(engine: AsyncEngine) -> None:
    await execute(engine, "CREATE TABLE orders (id integer)")  # a file that is there
    with pytest.raises(SchemaMissingError) as raised:
        await schema.check(engine)
    shown = raised.value.url
    assert (
        str(raised.value) == f"{shown} has no Stagewright schema yet; run `stagewright db upgrade '{shown}'`"
    )


def test_looking_at_a_file_that_is_not_there_does_not_make_it(sqlite_url: str, tmp_path: Path) -> None:
    async def look() -> None:
        engine = create_engine(sqlite_url)
        assert await schema.current(engine) is None
        with pytest.raises(SchemaMissingError):
            await schema.check(engine)
        await engine.dispose()

    run(look())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.guarantee("sql.wrong-schema-in-one-sentence")
@pytest.mark.parametrize("oldest_build", ["'9998'", "NULL"], ids=["it says so", "it says nothing"])
async def test_a_newer_database_is_refused_and_left_alone(engine: AsyncEngine, oldest_build: str) -> None:
    await schema.upgrade(engine)
    await execute(engine, f"UPDATE {VERSIONS} SET version_num = '9998', oldest_build = {oldest_build}")
    for use in (schema.check, schema.upgrade):
        with pytest.raises(SchemaTooNewError, match="this code knows none after") as raised:
            await use(engine)
        error = raised.value
        assert (error.found, error.needed, error.oldest_build) == ("9998", schema.HEAD, "9998")
    assert await schema.current(engine) == "9998"


async def test_tables_that_others_made_are_not_touched(engine: AsyncEngine) -> None:
    await execute(engine, "CREATE TABLE job_queue (id integer)", "INSERT INTO job_queue VALUES (5)")
    for use in (schema.check, schema.current, schema.upgrade):
        with pytest.raises(UnknownSchemaError, match="migrations didn't make its tables job_queue;"):
            await use(engine)
    assert await values(engine, "SELECT id FROM job_queue") == [5]


@pytest.mark.parametrize(
    "change",
    [f"UPDATE {VERSIONS} SET version_num = 'ae10'", f"INSERT INTO {VERSIONS} VALUES ('9999', NULL)"],
)
async def test_a_version_that_makes_no_sense_is_refused(engine: AsyncEngine, change: str) -> None:
    await schema.upgrade(engine)
    await execute(engine, change)
    for use in (schema.check, schema.current, schema.upgrade):
        with pytest.raises(UnknownSchemaError, match="which is no version of Stagewright's schema"):
            await use(engine)


async def test_an_oldest_build_that_makes_no_sense_is_refused(engine: AsyncEngine) -> None:
    await schema.upgrade(engine)
    await execute(engine, f"UPDATE {VERSIONS} SET oldest_build = 'ae10'")
    for use in (schema.check, schema.current, schema.upgrade):
        with pytest.raises(UnknownSchemaError, match="its oldest build is 'ae10', which is no version"):
            await use(engine)


async def test_a_schema_with_tables_missing_is_refused(engine: AsyncEngine) -> None:
    await schema.upgrade(engine)
    await execute(engine, "DROP TABLE workflow_logs")
    for use in (schema.check, schema.upgrade):
        with pytest.raises(UnknownSchemaError, match=r"tables are missing \(workflow_logs\)"):
            await use(engine)


async def test_the_applications_own_migrations_are_left_alone(engine: AsyncEngine) -> None:
    await execute(
        engine,
        "CREATE TABLE alembic_version (version_num text)",
        "INSERT INTO alembic_version VALUES ('ae10')",
    )
    await schema.upgrade(engine)
    await schema.check(engine)
    assert await values(engine, "SELECT version_num FROM alembic_version") == ["ae10"]


NEXT = f"{int(schema.HEAD) + 1:04}"
NEXT_MIGRATION = f"""
import sqlalchemy as sa

revision = "{NEXT}"
down_revision = "{schema.HEAD}"


def upgrade(op):
    op.add_column("work_signals", sa.Column("added", sa.String(9), server_default="x"))
"""


@pytest.fixture
def next_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Code that knows one more migration; answers with its file."""
    folder = tmp_path / "migrations"
    shutil.copytree(migrating.SCRIPTS.dir, folder)
    file = folder / "versions" / f"{NEXT}_next.py"
    file.write_text(NEXT_MIGRATION, encoding="utf-8")
    monkeypatch.setattr(migrating, "SCRIPTS", ScriptDirectory(str(folder)))
    return file


@pytest.mark.guarantee("sql.wrong-schema-in-one-sentence")
async def test_an_older_database_is_named_and_upgraded(
    engine: AsyncEngine, next_version: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(
            migrating, "SCRIPTS", ScriptDirectory(str(Path(schema.__file__).parent / "migrations"))
        )
        await schema.upgrade(engine)
    await execute(engine, "INSERT INTO work_signals (id, count) VALUES (1, 7)")
    before = schema.HEAD
    monkeypatch.setattr(schema, "HEAD", NEXT)
    problem = f"has the Stagewright schema {before} and this code needs {NEXT}; run `"
    with pytest.raises(SchemaOutdatedError, match=problem):
        await schema.check(engine)
    with pytest.raises(SchemaOutdatedError):
        await schema.upgrade_if_new(engine)
    assert await schema.upgrade(engine) == schema.Upgrade(before=before, after=NEXT)
    await schema.check(engine)
    assert await values(engine, "SELECT added FROM work_signals") == ["x"]


@pytest.fixture
def broken_version(next_version: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    next_version.write_text(
        NEXT_MIGRATION + '    op.execute("INSERT INTO nowhere VALUES (1)")\n', encoding="utf-8"
    )
    monkeypatch.setattr(migrating, "SCRIPTS", ScriptDirectory(migrating.SCRIPTS.dir))
    monkeypatch.setattr(schema, "HEAD", NEXT)


@pytest.mark.usefixtures("broken_version")
@pytest.mark.parametrize("url", ["sqlite", "asyncpg", "psycopg"], indirect=True)
async def test_a_migration_that_fails_leaves_the_database_as_it_was(engine: AsyncEngine) -> None:
    with pytest.raises(DatabaseUnusableError, match="nowhere"):
        await schema.upgrade(engine)
    assert await schema.current(engine) is None
    assert await values(engine, f"SELECT count(*) FROM {found_tables(engine)}") == [0]


@pytest.mark.usefixtures("broken_version")
@pytest.mark.parametrize("url", ["mariadb"], indirect=True)
@pytest.mark.guarantee("sql.broken-upgrade-leaves-nothing")
async def test_on_mariadb_a_migration_that_failed_is_gone_on_with(
    engine: AsyncEngine, next_version: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DatabaseUnusableError, match="nowhere"):
        await schema.upgrade(engine)
    before = await schema.current(engine)
    assert before == f"{int(NEXT) - 1:04}"
    await asyncio.to_thread(next_version.write_text, NEXT_MIGRATION, encoding="utf-8")
    monkeypatch.setattr(migrating, "SCRIPTS", ScriptDirectory(migrating.SCRIPTS.dir))
    assert await schema.upgrade(engine) == schema.Upgrade(before=before, after=NEXT)
    await schema.check(engine)
    await execute(engine, "INSERT INTO work_signals (id, count) VALUES (1, 7)")
    assert await values(engine, "SELECT added FROM work_signals") == ["x"]


def found_tables(engine: AsyncEngine) -> str:
    if engine.dialect.name == "sqlite":
        return "sqlite_master"
    return "information_schema.tables WHERE table_schema = 'public'"


async def test_upgrades_in_one_event_loop_do_not_meet(url: str, tmp_path: Path) -> None:
    urls = [url, *(f"sqlite:///{tmp_path}/{number}.db" for number in range(3))]
    engines = [create_engine(one) for one in urls]
    await gather(*map(schema.upgrade, engines))
    await gather(*map(schema.check, engines))
    await gather(*(engine.dispose() for engine in engines))


def test_upgrades_in_threads_do_not_meet(tmp_path: Path) -> None:
    done: list[schema.Upgrade] = []

    async def upgraded(number: int) -> None:
        engine = create_engine(f"sqlite:///{tmp_path}/{number % 2}.db")
        done.append(await schema.upgrade(engine))
        await schema.check(engine)
        await engine.dispose()

    threads = [threading.Thread(target=lambda number=number: run(upgraded(number))) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one.before or "" for one in done) == ["", "", *[schema.HEAD] * 4]


async def test_the_statements_as_text_make_the_same_on_sqlite(sqlite_url: str) -> None:
    with sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as connection:
        connection.executescript(schema.sql(sqlite_url))
    connection.close()
    engine = create_engine(sqlite_url)
    await schema.check(engine)
    await engine.dispose()


@pytest.mark.parametrize("url", ["asyncpg"], indirect=True)
async def test_the_statements_as_text_make_the_same_on_postgresql(url: str, engine: AsyncEngine) -> None:
    connection = await asyncpg.connect(url.replace("+asyncpg", ""))
    await connection.execute(schema.sql("postgres://somewhere.test/else"))
    await connection.close()
    await schema.check(engine)


@pytest.mark.parametrize("url", ["mariadb"], indirect=True)
async def test_the_statements_as_text_make_the_same_on_mariadb(url: str, engine: AsyncEngine) -> None:
    statements = schema.sql("mariadb://somewhere.test/else")
    MariadbDatabases.at(url).execute(f"USE {url.rpartition('/')[2]}; {statements}")
    await schema.check(engine)


def test_the_statements_are_one_transaction() -> None:
    for url in ("sqlite://", "postgresql://"):
        lines = [line for line in schema.sql(url).splitlines() if line]
        assert (lines[0], lines[-1]) == ("BEGIN;", "COMMIT;")


def test_only_what_is_supported_has_statements() -> None:
    with pytest.raises(InvalidSettingError, match="is no URL of SQLite, PostgreSQL or MariaDB"):
        schema.sql("mysql://somewhere.test/else")


def test_versions_are_numbered_without_a_gap() -> None:
    scripts = list(migrating.SCRIPTS.walk_revisions())
    numbers = [script.revision for script in reversed(scripts)]
    assert numbers == [f"{number:04}" for number in range(1, len(numbers) + 1)]
    assert all(Path(script.path).name.startswith(f"{script.revision}_") for script in scripts)
    assert migrating.SCRIPTS.get_current_head() == schema.HEAD
    assert set(PLAIN_TABLES.metadata.tables).isdisjoint({VERSIONS})
