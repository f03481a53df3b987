"""Sessions that a kernel doesn't work in, and commands that it doesn't carry out there: each named with its fix."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import Column, Integer, Table, event, orm, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.ext.asyncio import async_scoped_session as scoped
from sqlalchemy.ext.asyncio import async_sessionmaker as sessionmaker
from sqlalchemy.orm import Session

from stagewright import Kernel, StageContext, define_stage, define_workflow, open_kernel
from stagewright.commands import (
    ClaimJobs,
    Command,
    CreateRun,
    CreateRunResult,
    ExecuteJob,
    FlushOutbox,
    HeartbeatJob,
    PollSuspendedStages,
    PurgeRuns,
    ReapStaleLeases,
    ReapStuckRuns,
)
from stagewright.errors import (
    InvalidSettingError,
    OwnTransactionsError,
    SessionRefusedError,
    TransientError,
)
from stagewright.records import Fence
from stagewright_host_node import NodeHost
from stagewright_persistence_sqlalchemy import Database, create_engine, prepare_sqlite
from stagewright_test_support.backend_choice import stores

MARIADB = pytest.param("mariadb", marks=pytest.mark.slow)
NOW = datetime.now(UTC)


async def ship(ctx: StageContext[int]) -> int:
    return ctx.input + 1


shipping = define_workflow("shipping", input=int).pipe(define_stage("ship", ship)).build()


@pytest.fixture
def kernel(database: Database, make_kernel: Callable[..., Kernel]) -> Kernel:
    return make_kernel(database, shipping)


@pytest_asyncio.fixture
async def made(url: str) -> AsyncIterator[Callable[..., AsyncEngine]]:
    """`made(**options)`: an engine of the caller's own, as SQLAlchemy makes it."""
    engines: list[AsyncEngine] = []

    def make(driver: str | None = None, **options: Any) -> AsyncEngine:
        chosen: URL = make_url(url)
        if chosen.get_backend_name() == "sqlite":
            chosen = chosen.set(drivername="sqlite+aiosqlite")
        elif chosen.get_backend_name() == "mariadb":
            chosen = chosen.set(drivername="mariadb+asyncmy")
        elif driver:
            chosen = chosen.set(drivername=f"postgresql+{driver}")
        engines.append(create_async_engine(chosen, **options))
        return engines[-1]

    yield make
    for engine in engines:
        await engine.dispose()


async def refused(kernel: Kernel, session: object, problem: str) -> None:
    with pytest.raises(SessionRefusedError, match=problem):
        await kernel.using(session).dispatch(CreateRun("shipping", 1))
    assert (await kernel.runs.list()).items == ()


@pytest.mark.guarantee("sql.callers-sessions-run-nothing")
@pytest.mark.parametrize(
    "command",
    [
        ClaimJobs("worker"),
        ExecuteJob("run", "shipping", "ship"),
        ExecuteJob("run", "shipping", "ship", idempotency_key="k"),
        FlushOutbox(),
        HeartbeatJob("job", "run", fence=Fence(started_at=NOW, deliveries=1)),
        PollSuspendedStages(),
        PurgeRuns(older_than=NOW),
        ReapStaleLeases("45s"),
        ReapStuckRuns("10m"),
    ],
    ids=lambda command: command.type,
)
async def test_commands_with_transactions_of_their_own_are_refused(
    kernel: Kernel, database: Database, command: Command[Any]
) -> None:
    async with AsyncSession(database.engine) as session, session.begin():
        with pytest.raises(OwnTransactionsError, match=command.type) as refusal:
            await kernel.using(session).dispatch(command)
        assert refusal.value.command_type == command.type
        await kernel.using(session).dispatch(CreateRun("shipping", 1))
    assert len((await kernel.runs.list()).items) == 1


@pytest.mark.guarantee("sql.failed-dispatches-leave-callers-whole")
@pytest.mark.parametrize("way", [*stores("sqlite", "asyncpg", "psycopg"), MARIADB], indirect=True)
async def test_of_dispatches_at_once_on_one_session_each_is_kept_or_refused(
    kernel: Kernel, database: Database
) -> None:
    async with AsyncSession(database.engine) as session, session.begin():
        first = await kernel.using(session).dispatch(CreateRun("shipping", 0))
        answers = await asyncio.gather(
            *(
                kernel.using(session).dispatch(
                    CreateRun("shipping", number, idempotency_key=f"order {number}")
                )
                for number in (1, 2, 3)
            ),
            return_exceptions=True,
        )
        refusals = [answer for answer in answers if isinstance(answer, SessionRefusedError)]
        created = [first, *(answer for answer in answers if isinstance(answer, CreateRunResult))]
        assert (len(refusals), len(created)) == (2, 2)
        assert "another call of the kernel is at work in it" in str(refusals[0])
        again = CreateRun("shipping", 3, idempotency_key="order 3")
        created.append(await kernel.using(session).dispatch(again))
    kept = {run.id for run in (await kernel.runs.list()).items}
    assert kept == {one.run_id for one in created}


async def test_no_host_works_in_a_callers_transaction(kernel: Kernel, database: Database) -> None:
    async with AsyncSession(database.engine) as session:
        with pytest.raises(InvalidSettingError, match="kernel=.*give the kernel itself"):
            NodeHost(kernel.using(session))


@pytest.mark.guarantee("sql.unfit-sessions-refused-by-name")
async def test_what_is_no_open_session_is_refused(kernel: Kernel, database: Database) -> None:
    for other in (object(), None, database.engine, "session"):
        await refused(kernel, other, "not an AsyncSession or AsyncConnection")
    await refused(kernel, Session(), r"SyncKernel\.using")
    await refused(kernel, AsyncConnection(database.engine), "not open")
    async with database.engine.connect() as connection:
        pass
    await refused(kernel, connection, "closed")
    session = AsyncSession(database.engine, close_resets_only=False)
    await session.close()
    await refused(kernel, session, "closed")
    await refused(kernel, AsyncSession(), "bind|engine")
    async with AsyncSession(database.engine, autobegin=False) as session:
        await refused(kernel, session, r"session\.begin\(\)")
        async with session.begin():
            await kernel.using(session).dispatch(CreateRun("shipping", 1))
    assert len((await kernel.runs.list()).items) == 1


@pytest.mark.guarantee("sql.unfit-sessions-refused-by-name")
@pytest.mark.parametrize(
    "way",
    [*stores("sqlite", "asyncpg", "psycopg"), MARIADB],
    indirect=True,
)
async def test_sessions_that_commit_each_statement_are_refused(
    kernel: Kernel, made: Callable[..., AsyncEngine]
) -> None:
    always, sometimes = made(isolation_level="AUTOCOMMIT"), made()
    if sometimes.dialect.name == "sqlite":
        prepare_sqlite(sometimes)
    async with AsyncSession(always) as session:
        problem = "AUTOCOMMIT" if always.dialect.name != "sqlite" else "AUTOCOMMIT|prepare_sqlite"
        await refused(kernel, session, problem)
    async with sometimes.connect() as connection:
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        await refused(kernel, connection, "AUTOCOMMIT")
    # The connection that was given back serves again, under any level that has transactions.
    for options in ({}, {"isolation_level": "SERIALIZABLE"}, {}):
        async with sometimes.connect() as connection:
            await connection.execution_options(**options)
            await kernel.using(connection).dispatch(CreateRun("shipping", 1))
            await connection.rollback()
            await kernel.using(connection).dispatch(CreateRun("shipping", 1))
            await connection.commit()
    assert len((await kernel.runs.list()).items) == 3


@pytest.mark.guarantee("sql.unfit-sessions-refused-by-name")
@pytest.mark.parametrize(
    "way",
    [*stores("sqlite", "asyncpg", "psycopg"), MARIADB],
    indirect=True,
)
async def test_sessions_that_only_read_are_refused(
    kernel: Kernel, made: Callable[..., AsyncEngine], database: Database
) -> None:
    async with AsyncSession(database.engine) as session:
        only_reading = {
            "sqlite": "PRAGMA query_only=1",
            "postgresql": "SET TRANSACTION READ ONLY",
            "mariadb": "START TRANSACTION READ ONLY",
        }[database.kind.name]
        await session.execute(text(only_reading))
        await refused(kernel, session, "read-only")
        # The session goes on, as it was.
        assert (await session.execute(text("SELECT 1"))).scalar() == 1
        if database.kind.name == "sqlite":
            await session.execute(text("PRAGMA query_only=0"))


@pytest.mark.parametrize("way", ["sqlite"], indirect=True)
async def test_a_file_that_is_opened_for_reading_is_refused(
    kernel: Kernel, database: Database, sqlite_url: str
) -> None:
    reading = create_engine(f"{sqlite_url}?mode=ro")
    async with AsyncSession(reading) as session:
        await refused(kernel, session, "read-only")
    await reading.dispose()


@pytest.mark.guarantee("sql.unfit-sessions-refused-by-name")
async def test_sessions_of_another_sort_of_database_are_refused(
    database: Database, make_kernel: Callable[..., Kernel], way: str, tmp_path: Any, postgres_url: str
) -> None:
    kernel = make_kernel(database, shipping)
    other = create_engine(f"sqlite:///{tmp_path}/other.db" if way != "sqlite" else postgres_url)
    async with AsyncSession(other) as session:
        await refused(kernel, session, "and the kernel's database is")
    await other.dispose()


@pytest.mark.guarantee("sql.unfit-sessions-refused-by-name")
@pytest.mark.parametrize("way", ["sqlite"], indirect=True)
async def test_an_unprepared_engine_of_sqlite_is_refused_with_the_line_that_fixes_it(
    kernel: Kernel, made: Callable[..., AsyncEngine]
) -> None:
    unprepared = made()
    async with AsyncSession(unprepared) as session:
        await refused(kernel, session, r"prepare_sqlite\(engine\)")
        # Also when the driver has begun a transaction by itself.
        await session.execute(text("UPDATE workflow_runs SET version = version"))
        await refused(kernel, session, r"prepare_sqlite\(engine\)")
    await unprepared.dispose()
    prepare_sqlite(unprepared)
    prepare_sqlite(unprepared)
    async with AsyncSession(unprepared) as session, session.begin():
        await kernel.using(session).dispatch(CreateRun("shipping", 1))
    assert len((await kernel.runs.list()).items) == 1


@pytest.mark.parametrize("way", ["sqlite"], indirect=True)
@pytest.mark.parametrize("begin", ["BEGIN", "BEGIN IMMEDIATE"])
@pytest.mark.parametrize("keys", ["ON", "OFF"])
async def test_an_engine_that_is_prepared_by_hand_takes_its_turn_as_the_writer(
    kernel: Kernel, made: Callable[..., AsyncEngine], begin: str, keys: str
) -> None:
    engine = made()

    @event.listens_for(engine.sync_engine, "connect")
    def connect(connection: Any, _: object) -> None:
        connection.isolation_level = None
        connection.execute(f"PRAGMA foreign_keys={keys}")
        connection.execute("PRAGMA busy_timeout=100")

    @event.listens_for(engine.sync_engine, "begin")
    def begun(connection: Any) -> None:
        connection.exec_driver_sql(begin)

    async with AsyncSession(engine) as session:
        if keys == "OFF":
            await refused(kernel, session, "foreign keys")
            return
        assert await kernel.using(session).runs.get("nobody") is None
        # Others wait from now on, so that this one can't be overtaken by a writer and refused for it.
        other = sqlite3.connect(str(engine.url.database), timeout=0)
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
        other.close()
        await kernel.using(session).dispatch(CreateRun("shipping", 1))
        await session.commit()
    if begin == "BEGIN":
        async with AsyncSession(engine) as session:
            await session.execute(text("SELECT * FROM workflow_runs"))
            await kernel.dispatch(CreateRun("shipping", 2))
            with pytest.raises(TransientError, match="locked"):
                await kernel.using(session).dispatch(CreateRun("shipping", 3))
    assert len((await kernel.runs.list()).items) == (2 if begin == "BEGIN" else 1)


async def test_a_database_in_memory_has_no_second_session() -> None:
    async with open_kernel(shipping, "sqlite://") as kernel:
        engine = kernel.ports.persistence.database.engine  # type: ignore[attr-defined]  # it is of this package
        async with AsyncSession(engine) as session:
            with pytest.raises(SessionRefusedError, match="in memory"):
                kernel.using(session)


def test_only_engines_of_sqlite_are_prepared() -> None:
    engine = create_engine("postgresql+asyncpg://nobody@127.0.0.1:1/none")
    with pytest.raises(InvalidSettingError, match="needs no preparation"):
        prepare_sqlite(engine)


@pytest.mark.guarantee("sql.failed-dispatches-leave-callers-whole")
@pytest.mark.parametrize("way", ["asyncpg", "psycopg"], indirect=True)
async def test_a_transaction_that_has_failed_is_named(kernel: Kernel, database: Database) -> None:
    async with AsyncSession(database.engine) as session:
        with pytest.raises(Exception, match="nowhere"):
            await session.execute(text("SELECT * FROM nowhere"))
        await refused(kernel, session, "has failed with an earlier error")
        await session.rollback()
        await kernel.using(session).dispatch(CreateRun("shipping", 1))
        await session.commit()
    assert len((await kernel.runs.list()).items) == 1


@pytest.mark.parametrize("way", ["sqlite", "asyncpg", MARIADB], indirect=True)
async def test_a_session_whose_flush_has_failed_is_refused_until_it_is_rolled_back(
    kernel: Kernel, database: Database
) -> None:
    registry = orm.registry()

    class Order:
        def __init__(self, number: int | None) -> None:
            self.number = number

    orders = Table("orders", registry.metadata, Column("number", Integer, primary_key=True))
    registry.map_imperatively(Order, orders)
    async with database.engine.begin() as connection:
        await connection.run_sync(registry.metadata.drop_all)
        await connection.run_sync(registry.metadata.create_all)
    async with AsyncSession(database.engine) as session:
        await kernel.using(session).dispatch(CreateRun("shipping", 1))
        await session.execute(orders.insert().values(number=1))
        session.add(Order(1))
        with pytest.raises(IntegrityError):
            await session.flush()
        await refused(kernel, session, "rolled back due to a previous exception during flush")
        await session.rollback()
        await kernel.using(session).dispatch(CreateRun("shipping", 1))
        await session.commit()
    assert len((await kernel.runs.list()).items) == 1


async def test_a_scoped_session_is_the_one_of_its_task(kernel: Kernel, database: Database) -> None:
    sessions = scoped(sessionmaker(database.engine), scopefunc=lambda: 1)
    created = await kernel.using(sessions).dispatch(CreateRun("shipping", 1))
    assert await kernel.runs.get(created.run_id) is None
    await sessions.commit()
    await sessions.remove()
    assert await kernel.runs.get(created.run_id) is not None
