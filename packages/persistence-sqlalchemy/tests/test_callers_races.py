"""Callers' transactions beside each other, and beside workers who look for work all the time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from stagewright import Kernel, StageContext, Status, define_stage, define_workflow
from stagewright.commands import CancelRun, ClaimJobs, ClaimPendingRuns, CreateRun, FlushOutbox
from stagewright.errors import SessionRefusedError, TransientError
from stagewright.hosting import drive_run
from stagewright.hosting.job_runner import run_job
from stagewright.status import TERMINAL_RUN_STATUSES
from stagewright.testing import CollectingEventSink
from stagewright_persistence_sqlalchemy import Database
from stagewright_test_support.backend_choice import stores

MARIADB = pytest.param("mariadb", marks=pytest.mark.slow)
servers = pytest.mark.parametrize("way", [*stores("asyncpg", "psycopg"), MARIADB], indirect=True)
everywhere = pytest.mark.parametrize("way", [*stores("sqlite", "asyncpg", "psycopg"), MARIADB], indirect=True)
WAITING = {
    "postgresql": (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    ),
    "mariadb": (
        "SELECT count(*) FROM information_schema.innodb_trx AS open JOIN information_schema.processlist AS one"
        " ON one.id = open.trx_mysql_thread_id WHERE open.trx_state = 'LOCK WAIT' AND one.db = DATABASE()"
    ),
}

executed: list[str] = []


async def ship(ctx: StageContext[int]) -> int:
    executed.append(ctx.run_id)
    return ctx.input + 1


shipping = define_workflow("shipping", input=int).pipe(define_stage("ship", ship)).build()


@pytest.fixture
def kernel(database: Database, make_kernel: Callable[..., Kernel]) -> Kernel:
    executed.clear()
    return make_kernel(database, shipping)


@asynccontextmanager
async def workers(kernel: Kernel, count: int = 2) -> AsyncIterator[None]:
    """Workers who look for work without a pause worth it."""

    async def work(name: str) -> None:
        while True:
            await kernel.dispatch(ClaimPendingRuns(name, max_claims=3))
            for job in (await kernel.dispatch(ClaimJobs(name, limit=3))).jobs:
                await run_job(kernel, job)
            await kernel.dispatch(FlushOutbox())
            await asyncio.sleep(0.005)

    tasks = [asyncio.create_task(work(f"worker-{number}")) for number in range(count)]
    try:
        yield
        assert not any(task.done() for task in tasks), [task.exception() for task in tasks if task.done()]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def somebody_waits(database: Database) -> bool:
    """Whether a session of a server waits for another one's lock."""
    if database.kind.name == "mariadb":
        # What it shows of transactions is as old as the last look, unless nobody has looked for a tenth of a second.
        await asyncio.sleep(0.15)
    async with database.engine.connect() as connection:
        waiting = await connection.execute(text(WAITING[database.kind.name]))
        return bool(waiting.scalar_one())


@everywhere
@pytest.mark.guarantee("sql.callers-transaction-commits-both")
async def test_workers_take_what_is_committed_and_nothing_else(
    kernel: Kernel,
    database: Database,
    sink: CollectingEventSink,
    eventually: Callable[..., Awaitable[None]],
) -> None:
    dice, kept, undone = Random(7), list[str](), list[str]()

    async def call(number: int) -> None:
        async with AsyncSession(database.engine) as session:
            bound = kernel.using(session)
            created = await bound.dispatch(CreateRun("shipping", number, idempotency_key=f"k{number}"))
            # Workers have their turns meanwhile, as far as the database lets them.
            await asyncio.sleep(dice.uniform(0, 0.02))
            assert created.run_id not in executed
            if dice.random() < 0.5:
                await session.commit()
                kept.append(created.run_id)
            else:
                await session.rollback()
                undone.append(created.run_id)

    async def have_ended() -> bool:
        statuses = [await kernel.ports.persistence.get_run_status(run_id) for run_id in kept]
        return all(status in TERMINAL_RUN_STATUSES for status in statuses)

    async with workers(kernel):
        async with asyncio.TaskGroup() as callers:
            for number in range(20):
                callers.create_task(call(number))
        await eventually(have_ended, within=60)
    while (await kernel.dispatch(FlushOutbox())).published:
        pass
    assert kept
    assert undone
    assert sorted(executed) == sorted(kept)
    assert {event.run_id for event in sink.events} == set(kept)


@servers
@pytest.mark.parametrize("kept", [True, False])
async def test_the_second_holder_of_a_key_waits_for_the_first_callers_end(
    kernel: Kernel, database: Database, eventually: Callable[..., Awaitable[None]], *, kept: bool
) -> None:
    create = CreateRun("shipping", 1, idempotency_key="order 1")
    async with AsyncSession(database.engine) as first, AsyncSession(database.engine) as second:
        mine = await kernel.using(first).dispatch(create)
        waiting = asyncio.create_task(kernel.using(second).dispatch(create))
        await eventually(lambda: somebody_waits(database), within=60)
        await (first.commit() if kept else first.rollback())
        theirs = await waiting
        await second.commit()
    assert (mine.run_id == theirs.run_id) is kept
    assert [run.id for run in (await kernel.runs.list()).items] == [theirs.run_id]


@servers
async def test_a_dispatch_that_is_cancelled_while_it_waits_leaves_nothing(
    kernel: Kernel, database: Database, eventually: Callable[..., Awaitable[None]]
) -> None:
    # Else the second caller would wait for the first one's definition.
    known = await kernel.dispatch(CreateRun("shipping", 0))
    create = CreateRun("shipping", 1, idempotency_key="order 1")
    async with AsyncSession(database.engine) as first, AsyncSession(database.engine) as second:
        mine = await kernel.using(first).dispatch(create)
        await kernel.using(second).dispatch(CreateRun("shipping", 2))
        waiting = asyncio.create_task(kernel.using(second).dispatch(create))
        await eventually(lambda: somebody_waits(database), within=60)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(SessionRefusedError, match="rollback"):
            await kernel.using(second).dispatch(CreateRun("shipping", 3))
        await second.rollback()
        other = await kernel.using(second).dispatch(CreateRun("shipping", 3))
        await second.commit()
        await first.commit()
    assert {run.id for run in (await kernel.runs.list()).items} == {known.run_id, mine.run_id, other.run_id}


@servers
@pytest.mark.parametrize("kept", [True, False])
async def test_an_outcome_waits_for_a_caller_who_has_cancelled_its_run(
    kernel: Kernel, database: Database, eventually: Callable[..., Awaitable[None]], *, kept: bool
) -> None:
    run_id = (await kernel.dispatch(CreateRun("shipping", 1))).run_id
    await kernel.dispatch(ClaimPendingRuns("worker"))
    [job] = (await kernel.dispatch(ClaimJobs("worker"))).jobs
    async with AsyncSession(database.engine) as session:
        assert (await kernel.using(session).dispatch(CancelRun(run_id))).cancelled
        executing = asyncio.create_task(run_job(kernel, job))
        await eventually(lambda: somebody_waits(database), within=60)
        await (session.commit() if kept else session.rollback())
        await executing
    run = await kernel.runs.get(run_id)
    assert run is not None
    assert run.status is (Status.CANCELLED if kept else Status.COMPLETED)


@servers
@pytest.mark.guarantee("kernel.nothing-tried-again-in-callers-transactions")
async def test_a_conflict_of_a_stricter_transaction_is_told_and_the_next_one_succeeds(
    kernel: Kernel, database: Database
) -> None:
    run_id = (await kernel.dispatch(CreateRun("shipping", 1))).run_id
    strict = database.engine.execution_options(isolation_level="REPEATABLE READ")
    async with AsyncSession(strict) as session:
        await session.execute(text("SELECT * FROM workflow_runs"))
        await kernel.dispatch(ClaimPendingRuns("worker"))
        with pytest.raises(TransientError) as refusal:
            await kernel.using(session).dispatch(CancelRun(run_id))
        assert "do all of it anew" in refusal.value.__notes__[0]
        await session.rollback()
        assert (await kernel.using(session).dispatch(CancelRun(run_id))).cancelled
        await session.commit()
    run = await kernel.runs.get(run_id)
    assert run is not None
    assert run.status is Status.CANCELLED


@everywhere
async def test_the_kernel_itself_goes_on_beside_a_callers_transaction(
    kernel: Kernel, database: Database
) -> None:
    """On SQLite it waits for its turn; nobody is told that the database is locked."""
    await kernel.dispatch(CreateRun("shipping", 0))  # else it would wait for the caller's definition
    async with AsyncSession(database.engine) as session:
        mine = await kernel.using(session).dispatch(CreateRun("shipping", 1))
        beside = asyncio.create_task(kernel.dispatch(CreateRun("shipping", 2)))
        if database.kind.skips_locked:
            await beside
        else:
            await asyncio.wait({beside}, timeout=0.3)
            assert not beside.done()
        await session.commit()
        theirs = await beside
    for run_id in (mine.run_id, theirs.run_id):
        assert (await drive_run(kernel, run_id)).status is Status.COMPLETED
