"""The adapters behind URLs, as an application opens them."""

import asyncio
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]  # it ships no types
import pytest

from stagewright import StageContext, define_workflow, open_kernel, stage
from stagewright.commands import CreateRun
from stagewright.errors import InvalidSettingError, MissingDriverError, StagewrightError, TransientError
from stagewright.hosting import drive_run
from stagewright.plugins import AdapterOptions, AdapterRegistry, ConformanceTarget, discover_plugins
from stagewright.status import Status
from stagewright.testing import FakeClock
from stagewright_persistence_sqlalchemy import create_engine, plugin, schema
from stagewright_persistence_sqlalchemy.clock import OffsetClock
from stagewright_persistence_sqlalchemy.errors import (
    DatabaseFileMissingError,
    DatabaseUnusableError,
    SchemaMissingError,
    SchemaTooNewError,
    UnknownSchemaError,
)
from stagewright_test_support.servers import PostgresDatabases


@stage("double")
async def double(ctx: StageContext[int]) -> int:
    return ctx.input * 2


doubling = define_workflow("doubling", input=int).pipe(double).build()


@pytest.fixture
def server_url(postgres_url: str) -> Iterator[str]:
    """An empty database of a server."""
    databases = PostgresDatabases.at(postgres_url)
    name = f"plugin_{uuid.uuid4().hex[:12]}"
    yield databases.create(name)
    databases.drop(name)


async def complete(url: str, *, create_schema: bool | None = None) -> str:
    """Run the workflow to its end in a kernel of its own; answers with the run's id."""
    async with open_kernel(doubling, url, create_schema=create_schema) as kernel:
        created = await kernel.dispatch(CreateRun(workflow_id="doubling", input=3))
        run = await drive_run(kernel, created.run_id, timeout="30s")
        assert (run.status, run.output) == (Status.COMPLETED, 6)
        return run.id


async def found(url: str, run_id: str) -> bool:
    async with open_kernel(doubling, url) as kernel:
        return await kernel.runs.get(run_id) is not None


@pytest.mark.parametrize("scheme", ["sqlite", "sqlite+aiosqlite"])
async def test_a_new_sqlite_file_is_made_and_kept(sqlite_url: str, scheme: str) -> None:
    url = sqlite_url.replace("sqlite", scheme, 1)
    run_id = await complete(url)
    assert await found(url, run_id)


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
async def test_sqlite_in_memory_is_new_each_time(url: str) -> None:
    await complete(url)
    async with open_kernel(doubling, url) as kernel:
        assert (await kernel.runs.list()).items == ()


@pytest.mark.parametrize(
    "scheme", ["postgresql", "postgres", "postgresql+asyncpg", "postgresql+psycopg", "postgres+psycopg"]
)
async def test_a_server_gets_the_schema_where_that_is_asked_for(server_url: str, scheme: str) -> None:
    url = server_url.replace("postgresql", scheme, 1)
    run_id = await complete(url, create_schema=True)
    assert await found(url, run_id)


@pytest.mark.parametrize("create_schema", [None, False])
async def test_a_server_gets_no_schema_unasked(server_url: str, create_schema: bool | None) -> None:
    with pytest.raises(SchemaMissingError, match="run `stagewright db upgrade 'postgresql://postgres@"):
        await complete(server_url, create_schema=create_schema)
    engine = create_engine(server_url)
    assert await schema.current(engine) is None
    await engine.dispose()


@pytest.mark.parametrize(
    ("parameters", "create_schema"), [("", False), ("?mode=ro", False), ("?mode=ro", None)]
)
def test_without_leave_not_even_an_sqlite_file_is_made(
    sqlite_url: str, tmp_path: Path, parameters: str, create_schema: bool | None
) -> None:
    with pytest.raises(DatabaseFileMissingError, match=r"there is no such file as sqlite:///.* names"):
        asyncio.run(complete(sqlite_url + parameters, create_schema=create_schema))
    assert list(tmp_path.iterdir()) == []


async def test_the_applications_sqlite_file_gets_no_schema_unasked(sqlite_url: str) -> None:
    engine = create_engine(sqlite_url)
    async with engine.begin() as connection:
        await connection.exec_driver_sql("CREATE TABLE orders (id integer)")
    await engine.dispose()
    with pytest.raises(SchemaMissingError):
        await complete(sqlite_url)
    await complete(sqlite_url, create_schema=True)
    await complete(sqlite_url)


@pytest.mark.parametrize("create_schema", [None, False, True])
@pytest.mark.parametrize(
    ("change", "error"),
    [
        (
            "UPDATE stagewright_schema_version SET version_num = '9998', oldest_build = NULL",
            SchemaTooNewError,
        ),
        ("DROP TABLE job_queue", UnknownSchemaError),
    ],
)
async def test_what_can_not_be_used_is_named_whatever_was_asked_for(
    sqlite_url: str, create_schema: bool | None, change: str, error: type[Exception]
) -> None:
    engine = create_engine(sqlite_url)
    await schema.upgrade(engine)
    async with engine.begin() as connection:
        await connection.exec_driver_sql(change)
    await engine.dispose()
    with pytest.raises(error):
        await complete(sqlite_url, create_schema=create_schema)


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_leaving_closes_every_connection(server_url: str, driver: str) -> None:
    url = server_url.replace("postgresql", f"postgresql+{driver}")
    await complete(url, create_schema=True)
    with pytest.raises(ZeroDivisionError):
        async with open_kernel(doubling, url):
            raise ZeroDivisionError
    await assert_nobody_is_connected(server_url)


async def test_a_refused_opening_closes_every_connection(server_url: str) -> None:
    with pytest.raises(SchemaMissingError):
        await complete(server_url)
    await assert_nobody_is_connected(server_url)


async def assert_nobody_is_connected(server_url: str) -> None:
    connection = await asyncpg.connect(server_url)
    others = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    assert await connection.fetchval(others) == 0
    await connection.close()


async def test_every_port_is_served_over_one_engine(sqlite_url: str) -> None:
    async with plugin.open_database(sqlite_url, AdapterOptions()) as served:
        assert set(served.served) == {
            "persistence", "job_transport", "step_ledger", "blob_store", "run_reader", "ai_call_logger", "clock",
        }  # fmt: skip
        ports = (
            served.persistence,
            served.job_transport,
            served.step_ledger,
            served.blob_store,
            served.ai_call_logger,
        )
        assert len({id(getattr(port, "database")) for port in ports}) == 1  # noqa: B009 - no port has it


async def test_the_clock_is_the_servers_unless_one_is_given(server_url: str) -> None:
    async with plugin.open_database(server_url, AdapterOptions(create_schema=True)) as served:
        assert isinstance(served.clock, OffsetClock)
    given = FakeClock()
    async with plugin.open_database(server_url, AdapterOptions(clock=given)) as served:
        assert served.clock is given


def test_the_schemes_are_registered_and_the_plugin_is_found() -> None:
    registry = AdapterRegistry()
    plugin.stagewright_register_adapters(registry)
    assert registry.schemes == ("mariadb", "postgres", "postgresql", "sqlite")
    found = discover_plugins().require("stagewright-persistence-sqlalchemy:sqlalchemy")
    assert found.state == "loaded"


def test_the_plugin_needs_no_click() -> None:
    script = (
        "import sys; sys.modules['click'] = None; sys.modules['rich'] = None; "
        "from stagewright.plugins import discover_plugins; "
        "assert 'sqlite' in discover_plugins().adapters().schemes"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://host:port/name", "is no URL of a database"),
        ("postgresql://u:s3cret@host:65536/name", "has a port that is not between 1 and 65535"),
        ("sqlite:///x.db?mode=rw", "has the parameter 'mode', which can't be used: SQLite takes mode=ro"),
        ("sqlite+pysqlite:///x.db", r"write sqlite:// or sqlite\+aiosqlite://"),
        ("postgresql+psycopg2://u:s3cret@host/name", r"or postgresql\+psycopg://"),
        ("mariadb+pymysql://u:s3cret@host/name", r"write mariadb:// or mariadb\+asyncmy://"),
        (
            "mariadb://u:s3cret@host/name?charset=latin1",
            "has the parameter 'charset', .* MariaDB takes connect_",
        ),
        ("mariadb://u:s3cret@host/name?ssl=perhaps", "'ssl', .* it has to be true or false"),
    ],
)
async def test_a_url_that_can_not_be_used_is_named(url: str, words: str) -> None:
    with pytest.raises(InvalidSettingError, match=words) as raised:
        await complete(url)
    assert "s3cret" not in str(raised.value)


async def test_a_driver_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stagewright_persistence_sqlalchemy.database_url.find_spec", lambda name: None)
    with pytest.raises(
        MissingDriverError, match="no driver for postgresql is installed; .*'asyncpg', 'psycopg'"
    ):
        await complete("postgres://host/name")
    with pytest.raises(MissingDriverError, match="installed; install 'psycopg'$"):
        await complete("postgresql+psycopg://host/name")


@pytest.mark.parametrize("driver", ["postgresql+asyncpg", "postgresql+psycopg", "mariadb"])
@pytest.mark.guarantee("sql.unusable-database-named")
async def test_a_server_that_is_not_there_is_named(driver: str) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"{driver}://me:s3cret@127.0.0.1:{bound.getsockname()[1]}/name"
        with pytest.raises(StagewrightError, match=r"@127\.0\.0\.1:\d+/name can't be ") as raised:
            await complete(url)
    assert isinstance(raised.value, TransientError)
    assert "s3cret" not in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_a_database_that_is_not_there_is_named(server_url: str, driver: str) -> None:
    url = server_url.replace("postgresql", f"postgresql+{driver}") + "_not"
    with pytest.raises(
        DatabaseUnusableError, match=r'can\'t be used: .*database "plugin_\w+_not" does not exist'
    ) as raised:
        await complete(url)
    assert "\n" not in str(raised.value)


@pytest.mark.guarantee("sql.unusable-database-named")
async def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no database at all, but long enough to be looked at " * 40)
    for url, words in (
        (f"sqlite:///{tmp_path}/notes.txt", "file is not a database"),
        (f"sqlite:///{tmp_path}/nowhere/x.db", r"there is no folder .*nowhere$"),
        (f"sqlite:///{tmp_path}", "it is a folder, and a file is needed"),
    ):
        for create_schema in (None, False, True):
            with pytest.raises(DatabaseUnusableError, match=words):
                await complete(url, create_schema=create_schema)


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_a_user_without_the_right_to_make_tables_is_told(server_url: str, driver: str) -> None:
    connection = await asyncpg.connect(server_url)
    await connection.execute(
        "DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'reader') "
        "THEN CREATE ROLE reader LOGIN; END IF; END $$; REVOKE CREATE ON SCHEMA public FROM PUBLIC"
    )
    await connection.close()
    url = server_url.replace("postgresql://postgres@", f"postgresql+{driver}://reader@")
    with pytest.raises(DatabaseUnusableError, match="permission denied for schema public"):
        await complete(url, create_schema=True)


@pytest.mark.parametrize("target", plugin.stagewright_conformance_targets(), ids=lambda target: target.name)
async def test_the_url_of_every_conformance_target_opens(
    target: ConformanceTarget, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server = ""
    if target.server is not None:
        server = request.getfixturevalue("new_database")(target.server).partition("://")[2]
    url = target.at(folder=str(tmp_path), server=server)
    options = AdapterOptions(create_schema=True)
    async with discover_plugins().adapters().open(url, options) as served:
        assert {"persistence", "job_transport", "step_ledger", "blob_store", "run_reader"} <= {*served.served}
