"""What is particular to a caller's transaction on MariaDB: its isolation level, its settings, how hosts hear of it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

import pytest
import pytest_asyncio
from sqlalchemy import create_engine as create_plain_engine
from sqlalchemy import text
from sqlalchemy.exc import PendingRollbackError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from stagewright import (
    Kernel,
    StageContext,
    Status,
    SyncKernel,
    WorkflowRegistry,
    define_stage,
    define_workflow,
)
from stagewright.commands import (
    CancelRun,
    ClaimJobs,
    ClaimPendingRuns,
    CreateRun,
    FlushOutbox,
    FromStage,
    ReapStaleLeases,
    RedriveRun,
    SignalStep,
    Start,
    TransitionRun,
)
from stagewright.errors import (
    DeadlockError,
    SessionRefusedError,
    TransientPersistenceError,
)
from stagewright.hosting import drive_run
from stagewright.hosting.job_runner import run_job
from stagewright.testing import CollectingEventSink
from stagewright_persistence_sqlalchemy import (
    Database,
    SqlAlchemyBlobStore,
    SqlAlchemyJobTransport,
    SqlAlchemyPersistence,
    listening,
)

pytestmark = pytest.mark.parametrize("way", ["mariadb"], indirect=True)

SHORT, LONG = timedelta(seconds=0.3), timedelta(seconds=60)
ROWS = text("SELECT count(*), sum(count) FROM work_signals")


async def ship(ctx: StageContext[int]) -> int:
    return await ctx.step.run("add", lambda: ctx.input + 1, returns=int)


async def ask(ctx: StageContext[int]) -> str:
    return await ctx.step.wait_for_signal("approval", timeout="1d", returns=str)


shipping = define_workflow("shipping", input=int).pipe(define_stage("ship", ship))
shipping_twice = shipping.pipe(define_stage("again", ship)).build()
asking = define_workflow("asking", input=int).pipe(define_stage("ask", ask)).build()


@pytest.fixture
def kernel(database: Database, make_kernel: Callable[..., Kernel]) -> Kernel:
    return make_kernel(database, shipping_twice, asking)


@pytest_asyncio.fixture
async def engine(url: str) -> AsyncIterator[AsyncEngine]:
    """The caller's engine, with SQLAlchemy's settings and the server's: that is, REPEATABLE READ."""
    engine = create_async_engine(url.replace("mariadb://", "mariadb+asyncmy://"), pool_size=10)
    async with engine.begin() as connection:
        await connection.execute(text("CREATE OR REPLACE TABLE orders (id INTEGER PRIMARY KEY)"))
    yield engine
    await engine.dispose()


@pytest_asyncio.fixture
async def sessions(engine: AsyncEngine) -> AsyncIterator[Callable[[], Awaitable[AsyncSession]]]:
    """`await sessions()`: a session that gives up waiting for a lock after a second."""
    async with AsyncExitStack() as opened:

        async def open_one() -> AsyncSession:
            session = await opened.enter_async_context(AsyncSession(engine))
            await session.execute(text("SET SESSION innodb_lock_wait_timeout = 1"))
            return session

        yield open_one


async def listening_persistence(
    database: Database, eventually: Callable[..., Awaitable[None]]
) -> SqlAlchemyPersistence:
    database.listen()
    await eventually(lambda: database.listener.is_healthy)
    persistence = SqlAlchemyPersistence(database)
    while await persistence.wait_for_work(timedelta(milliseconds=100)):
        pass
    return persistence


@pytest.mark.guarantee("sql.callers-never-wait-to-tell")
async def test_each_of_two_callers_is_heard_with_its_own_commit(
    url: str,
    kernel: Kernel,
    engine: AsyncEngine,
    open_database: Callable[..., Database],
    eventually: Callable[..., Awaitable[None]],
) -> None:
    host = await listening_persistence(open_database(url), eventually)
    await kernel.dispatch(CreateRun("shipping", 0))
    assert await host.wait_for_work(LONG)
    async with AsyncSession(engine) as first, AsyncSession(engine) as second, AsyncSession(engine) as third:
        for number, session in enumerate((first, second, third)):
            await kernel.using(session).dispatch(CreateRun("shipping", number))
        # The engine's own writers go on, and are heard beside them.
        await kernel.dispatch(CreateRun("shipping", 9))
        assert await host.wait_for_work(LONG)
        assert not await host.wait_for_work(SHORT)
        await second.commit()
        assert await host.wait_for_work(LONG)
        await third.rollback()
        assert not await host.wait_for_work(SHORT)
        # It began before the others, and isn't lost for ending after them.
        await first.commit()
        assert await host.wait_for_work(LONG)
    assert len((await kernel.runs.list()).items) == 4


@pytest.mark.guarantee("sql.callers-never-wait-to-tell")
async def test_notices_of_callers_are_gathered_and_wake_nobody_again(
    url: str,
    kernel: Kernel,
    engine: AsyncEngine,
    open_database: Callable[..., Database],
    eventually: Callable[..., Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening, "_MOST_ROWS", 3)
    await kernel.dispatch(CreateRun("shipping", 0))  # else all would wait for the first one's definition
    async with AsyncSession(engine) as held:
        await kernel.using(held).dispatch(CreateRun("shipping", 0))
        for number in range(6):
            async with AsyncSession(engine) as session, session.begin():
                await kernel.using(session).dispatch(CreateRun("shipping", number))
        listeners = [open_database(url) for _ in range(2)]
        hosts = [await listening_persistence(one, eventually) for one in listeners]

        async def counted() -> tuple[int, int]:
            async with engine.connect() as connection:
                rows, count = (await connection.execute(ROWS)).one()
                return int(rows), int(count)

        async def is_gathered() -> bool:
            return (await counted())[0] == 1

        await eventually(is_gathered, within=60)
        assert (await counted())[1] == 7
        assert not any(await asyncio.gather(*(host.wait_for_work(SHORT) for host in hosts)))
        await held.commit()
        assert all(await asyncio.gather(*(host.wait_for_work(LONG) for host in hosts)))
        assert await counted() == (2, 8)


@pytest.mark.guarantee("sql.callers-snapshots-mislead-nobody")
async def test_a_run_that_has_changed_since_the_callers_first_read_is_refused_and_the_rest_stays(
    kernel: Kernel, engine: AsyncEngine
) -> None:
    run_id = (await kernel.dispatch(CreateRun("asking", 1))).run_id
    async with AsyncSession(engine) as session:
        await session.execute(text("INSERT INTO orders VALUES (1)"))
        await session.execute(text("SELECT * FROM workflow_runs"))
        await _begin(kernel, run_id)
        bound = kernel.using(session)
        for command in (CancelRun(run_id), SignalStep(run_id, "ask", "approval", payload="yes")):
            with pytest.raises(
                TransientPersistenceError, match="since your transaction began to read"
            ) as told:
                await bound.dispatch(command)
            assert not isinstance(told.value, DeadlockError)
        # What nobody else has changed can be done, and what was done before is kept.
        created = await bound.dispatch(CreateRun("shipping", 1))
        await session.commit()
        assert (await bound.dispatch(SignalStep(run_id, "ask", "approval", payload="yes"))).delivered
        await session.commit()
        assert (await session.execute(text("SELECT id FROM orders"))).scalars().all() == [1]
    assert (await drive_run(kernel, run_id)).output == "yes"
    assert (await drive_run(kernel, created.run_id)).output == 3


async def _begin(kernel: Kernel, run_id: str) -> None:
    await kernel.dispatch(ClaimPendingRuns("worker"))
    assert (await kernel.ports.persistence.get_run_status(run_id)) is Status.RUNNING


@pytest.mark.guarantee("sql.callers-snapshots-mislead-nobody")
async def test_a_key_and_a_definition_that_came_after_the_callers_first_read_are_found(
    database: Database, make_kernel: Callable[..., Kernel], engine: AsyncEngine
) -> None:
    mine, theirs = make_kernel(database, shipping_twice), make_kernel(database, shipping_twice)
    create = CreateRun("shipping", 1, idempotency_key="order 1")
    async with AsyncSession(engine) as session:
        await session.execute(text("SELECT * FROM workflow_runs"))
        first = await theirs.dispatch(create)
        other = Database(database.engine)
        blind = make_kernel(other, shipping_twice)
        assert (await blind.using(session).dispatch(create)).run_id == first.run_id
        await blind.using(session).dispatch(CreateRun("shipping", 2))
        await session.commit()
    assert len((await mine.runs.list()).items) == 2


@pytest.mark.guarantee("sql.callers-deadlocks-undo-all")
async def test_a_deadlock_undoes_the_callers_whole_transaction_which_can_then_only_be_rolled_back(
    kernel: Kernel, engine: AsyncEngine
) -> None:
    one, two = [(await kernel.dispatch(CreateRun("shipping", number))).run_id for number in range(2)]
    async with AsyncSession(engine) as first, AsyncSession(engine) as second:
        for number, (session, run_id) in enumerate(((first, one), (second, two))):
            await session.execute(text(f"INSERT INTO orders VALUES ({number})"))
            assert (await kernel.using(session).dispatch(CancelRun(run_id))).cancelled
        crossed = await asyncio.gather(
            kernel.using(first).dispatch(CancelRun(two)),
            kernel.using(second).dispatch(CancelRun(one)),
            return_exceptions=True,
        )
        [error] = [answer for answer in crossed if isinstance(answer, BaseException)]
        lost, kept = (first, second) if error is crossed[0] else (second, first)
        assert isinstance(error, DeadlockError)
        assert "MariaDB has undone your whole transaction" in "\n".join(error.__notes__)
        # To commit would keep what comes after without what came before.
        with pytest.raises(SessionRefusedError, match="rolled back"):
            await kernel.using(lost).dispatch(CreateRun("shipping", 3))
        with pytest.raises(PendingRollbackError):
            await lost.execute(text("INSERT INTO orders VALUES (7)"))
        with pytest.raises(PendingRollbackError):
            await lost.commit()
        await lost.rollback()
        await kept.commit()
        assert not (await kernel.using(lost).dispatch(CancelRun(one))).cancelled
        again = await kernel.using(lost).dispatch(CreateRun("shipping", 3))
        await lost.commit()
        rows = (await kept.execute(text("SELECT id FROM orders"))).scalars().all()
    assert rows == [0 if kept is first else 1]
    statuses = {run.id: run.status for run in (await kernel.runs.list()).items}
    assert statuses == {one: Status.CANCELLED, two: Status.CANCELLED, again.run_id: Status.PENDING}


async def test_a_lock_that_isnt_given_leaves_the_rest_of_the_callers_transaction(
    kernel: Kernel, sessions: Callable[[], Awaitable[AsyncSession]]
) -> None:
    run_id = (await kernel.dispatch(CreateRun("shipping", 1))).run_id
    holder, waiting = await sessions(), await sessions()
    await kernel.using(holder).dispatch(CancelRun(run_id))
    await waiting.execute(text("INSERT INTO orders VALUES (1)"))
    with pytest.raises(TransientPersistenceError, match="1205") as told:
        await kernel.using(waiting).dispatch(CancelRun(run_id))
    assert not isinstance(told.value, DeadlockError)
    await kernel.using(waiting).dispatch(CreateRun("shipping", 2))
    await waiting.commit()
    await holder.rollback()
    assert len((await kernel.runs.list()).items) == 2
    assert (await waiting.execute(text("SELECT id FROM orders"))).scalars().all() == [1]


async def test_careless_settings_of_the_callers_change_nothing_and_stay(
    kernel: Kernel, engine: AsyncEngine
) -> None:
    run_id = (await kernel.dispatch(CreateRun("asking", 1))).run_id
    async with AsyncSession(engine) as session:
        await session.execute(text("SET SESSION sql_mode = '', time_zone = '+05:00'"))
        bound = kernel.using(session)
        await bound.dispatch(TransitionRun(run_id))
        assert (await bound.dispatch(SignalStep(run_id, "ask", "approval", payload="yes"))).delivered
        await bound.dispatch(CancelRun((await bound.dispatch(CreateRun("shipping", 1))).run_id))
        modes = await session.execute(text("SELECT @@sql_mode, @@time_zone"))
        assert modes.one() == ("", "+05:00")
        await session.commit()
    assert (await drive_run(kernel, run_id)).output == "yes"


async def test_an_engine_of_sqlalchemys_other_dialect_is_refused_with_the_name_to_write(
    kernel: Kernel, url: str
) -> None:
    engine = create_async_engine(url.replace("mariadb://", "mysql+asyncmy://"))
    async with AsyncSession(engine) as session:
        with pytest.raises(SessionRefusedError, match=r"mariadb\+pymysql://"):
            await kernel.using(session).dispatch(CreateRun("shipping", 1))
    await engine.dispose()


Act = Callable[[Kernel, Mapping[str, str]], Awaitable[object]]


async def _start(kernel: Kernel, _: Mapping[str, str]) -> None:
    created = await kernel.dispatch(CreateRun("shipping", 1, idempotency_key="mine"))
    await kernel.dispatch(TransitionRun(created.run_id))


ACTS: Mapping[str, Act] = {
    "start": _start,
    "cancel": lambda kernel, runs: kernel.dispatch(CancelRun(runs["pending"])),
    "cancel what waits": lambda kernel, runs: kernel.dispatch(CancelRun(runs["waiting"])),
    "redrive a stage": lambda kernel, runs: kernel.dispatch(
        RedriveRun(runs["done"], from_=FromStage("again"))
    ),
    "signal": lambda kernel, runs: kernel.dispatch(
        SignalStep(runs["waiting"], "ask", "approval", payload="y")
    ),
    "signal early": lambda kernel, runs: kernel.dispatch(
        SignalStep(runs["pending"], "ship", "other", payload="y")
    ),
    "annotate": lambda kernel, runs: kernel.annotations.attach(
        runs["pending"], {"a": 1}, idempotency_key="once", emit_event=True
    ),
    "claim": lambda kernel, runs: kernel.dispatch(ClaimPendingRuns("me", max_claims=1)),
}


QUICK = {"cancel what waits"}


@pytest_asyncio.fixture
async def runs(kernel: Kernel) -> Mapping[str, str]:
    """A run that has ended, one whose step waits for a signal, and one that is PENDING."""
    done = (await kernel.dispatch(CreateRun("shipping", 1))).run_id
    await drive_run(kernel, done)
    waiting = (await kernel.dispatch(CreateRun("asking", 1))).run_id
    await _work(kernel)
    pending = (await kernel.dispatch(CreateRun("shipping", 1))).run_id
    return {"done": done, "waiting": waiting, "pending": pending}


async def _work(kernel: Kernel) -> None:
    """What a host does in one turn."""
    await kernel.dispatch(ClaimPendingRuns("worker", max_claims=10))
    for job in (await kernel.dispatch(ClaimJobs("worker", limit=10))).jobs:
        await run_job(kernel, job)
    await kernel.dispatch(FlushOutbox())


# Where a stage is deleted, MariaDB keeps others from annotating those beside it: "redrive all" isn't among them.
@pytest.mark.guarantee("sql.callers-hold-their-own-runs-alone")
@pytest.mark.parametrize(
    "act", [pytest.param(act, marks=() if act in QUICK else pytest.mark.slow) for act in ACTS]
)
async def test_an_open_transaction_of_a_callers_keeps_nobody_from_other_runs(
    kernel: Kernel,
    runs: Mapping[str, str],
    sessions: Callable[[], Awaitable[AsyncSession]],
    database: Database,
    act: str,
) -> None:
    held, beside = await sessions(), await sessions()
    await ACTS[act](kernel.using(held), runs)
    new = {}
    async with asyncio.timeout(30):
        # The kernel itself, from the first command to a purge.
        for number in range(2):
            new[number] = (await kernel.dispatch(CreateRun("shipping", number))).run_id
            await drive_run(kernel, new[number])
        asked = (await kernel.dispatch(CreateRun("asking", 1))).run_id
        await _work(kernel)
        assert (await kernel.dispatch(SignalStep(asked, "ask", "approval", payload="y"))).delivered
        await kernel.dispatch(RedriveRun(new[0], from_=Start()))
        assert (await kernel.dispatch(CancelRun(new[0]))).cancelled
        await kernel.dispatch(ReapStaleLeases("1h"))
        while (await kernel.dispatch(FlushOutbox())).published:
            pass
        # And another caller.
        bound = kernel.using(beside)
        theirs = (await bound.dispatch(CreateRun("shipping", 5))).run_id
        await bound.dispatch(TransitionRun(theirs))
        await bound.dispatch(RedriveRun(new[1], from_=FromStage("again")))
        await bound.dispatch(CancelRun(asked))
        await beside.commit()
    # Nor does who comes after them keep the first one.
    await kernel.using(held).dispatch(CreateRun("shipping", 6))
    await held.commit()
    assert (await drive_run(kernel, theirs)).status is Status.COMPLETED


@pytest.mark.guarantee("sql.callers-transaction-commits-both")
async def test_a_plain_session_by_pymysql_decides_on_both(
    kernel: Kernel, engine: AsyncEngine, url: str, open_database: Callable[..., Database]
) -> None:
    plain = create_plain_engine(url.replace("mariadb://", "mariadb+pymysql://"))

    @asynccontextmanager
    async def opened() -> AsyncIterator[Kernel]:
        other = open_database(url)
        yield Kernel(
            persistence=SqlAlchemyPersistence(other),
            blob_store=SqlAlchemyBlobStore(other),
            job_transport=SqlAlchemyJobTransport(other),
            event_sink=CollectingEventSink(),
            clock=other.clock,
            registry=WorkflowRegistry([shipping_twice]),
        )
        await other.close()

    def call() -> None:
        with SyncKernel(opened) as sync:
            for kept in (False, True):
                with Session(plain) as session:
                    create = CreateRun("shipping", 1, idempotency_key="once")
                    created.append(sync.using(session).dispatch(create).run_id)
                    session.execute(text("INSERT INTO orders VALUES (1)"))
                    session.commit() if kept else session.rollback()

    created: list[str] = []
    await kernel.dispatch(CreateRun("shipping", 0))
    await asyncio.to_thread(call)
    plain.dispose()
    assert await kernel.runs.get(created[0]) is None
    assert (await drive_run(kernel, created[1])).output == 3
    async with engine.connect() as connection:
        assert (await connection.execute(text("SELECT id FROM orders"))).scalars().all() == [1]
