"""A kernel in its caller's transaction: what it writes is there with the commit, or not at all."""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import Column, Integer, Table, Text, func, insert, select
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped

from stagewright import (
    Kernel,
    StageContext,
    Status,
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
    RedriveRun,
    SignalStep,
    Start,
    TransitionRun,
)
from stagewright.errors import IdempotencyKeyReusedError, InvalidInputError, RunNotFoundError
from stagewright.hosting import drive_run
from stagewright.testing import CollectingEventSink
from stagewright_persistence_sqlalchemy import Database, create_engine

# The kernel's driver, and the caller's; a plain engine is as SQLAlchemy makes it, under the server's REPEATABLE READ.
PAIRS = [
    ("sqlite", "aiosqlite"),
    ("asyncpg", "asyncpg"),
    ("asyncpg", "psycopg"),
    ("psycopg", "asyncpg"),
    ("psycopg", "psycopg"),
    pytest.param("mariadb", "asyncmy", marks=pytest.mark.slow),
    pytest.param("mariadb", "plain asyncmy", marks=pytest.mark.slow),
]
pytestmark = pytest.mark.parametrize(("way", "driver"), PAIRS, indirect=["way"], ids=str)


class Base(DeclarativeBase):
    pass


orders = Table("orders", Base.metadata, Column("id", Integer, primary_key=True), Column("run_id", Text))


class Order(Base):
    __table__ = orders
    id: Mapped[int]
    run_id: Mapped[str | None]


async def ship(ctx: StageContext[int]) -> int:
    return ctx.input + 1


async def ask(ctx: StageContext[int]) -> Any:
    return await ctx.step.wait_for_signal("approval", timeout="1d", returns=str)


shipping = define_workflow("shipping", input=int).pipe(define_stage("ship", ship)).build()
asking = define_workflow("asking", input=int).pipe(define_stage("ask", ask)).build()


@pytest.fixture
def kernel(database: Database, make_kernel: Callable[..., Kernel]) -> Kernel:
    return make_kernel(database, shipping, asking)


@pytest_asyncio.fixture
async def engine(database: Database, driver: str, url: str) -> AsyncIterator[AsyncEngine]:
    """The caller's own engine, on the kernel's database."""
    plain = url.replace("+asyncpg", "").replace("+psycopg", "")
    *sort, name = driver.split()
    make = create_async_engine if sort else create_engine
    engine = make(plain.replace("://", f"+{name}://", 1), pool_size=3)
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.drop_all)
        await connection.run_sync(Base.metadata.create_all)
    yield engine
    await engine.dispose()


async def order_with_run(session: AsyncSession, kernel: Kernel, number: int = 1, **options: Any) -> str:
    created = await kernel.using(session).dispatch(CreateRun("shipping", number, **options))
    await session.execute(insert(orders).values(id=number, run_id=created.run_id))
    return created.run_id


async def count(engine: AsyncEngine, table: Table = orders) -> int:
    async with engine.connect() as connection:
        return int((await connection.execute(select(func.count()).select_from(table))).scalar_one())


@pytest.mark.guarantee("sql.callers-transaction-commits-both")
async def test_a_run_is_there_when_the_caller_commits(kernel: Kernel, engine: AsyncEngine) -> None:
    async with AsyncSession(engine) as session, session.begin():
        run_id = await order_with_run(session, kernel)
        bound = kernel.using(session)
        assert (await bound.runs.get(run_id)) is not None
        assert await kernel.runs.get(run_id) is None
        if engine.dialect.name != "sqlite":
            # On SQLite a claim would wait for this transaction's end.
            assert (await kernel.dispatch(ClaimPendingRuns("worker"))).claimed == ()
            assert (await kernel.dispatch(FlushOutbox())).published == 0
    run = await kernel.runs.get(run_id)
    assert run is not None
    assert run.status is Status.PENDING
    await drive_run(kernel, run_id)
    done = await kernel.runs.get(run_id)
    assert done is not None
    assert (done.status, done.output) == (Status.COMPLETED, 2)
    assert await count(engine) == 1


@pytest.mark.guarantee("sql.callers-rollback-leaves-nothing")
async def test_a_rollback_leaves_nothing_not_even_the_key(
    kernel: Kernel, engine: AsyncEngine, sink: CollectingEventSink
) -> None:
    async with AsyncSession(engine) as session:
        run_id = await order_with_run(session, kernel, idempotency_key="order 1")
        await session.rollback()
        assert await kernel.runs.get(run_id) is None
        assert await count(engine) == 0
        await session.rollback()
        # The key is as good as new, for another body too.
        again = await kernel.using(session).dispatch(CreateRun("shipping", 7, idempotency_key="order 1"))
        await session.commit()
        with pytest.raises(IdempotencyKeyReusedError):
            await kernel.using(session).dispatch(CreateRun("shipping", 8, idempotency_key="order 1"))
        same = await kernel.using(session).dispatch(CreateRun("shipping", 7, idempotency_key="order 1"))
        await session.commit()
    assert again.run_id == same.run_id != run_id
    page = await kernel.runs.list()
    assert [run.id for run in page.items] == [again.run_id]
    await drive_run(kernel, again.run_id)
    assert {event.run_id for event in sink.events} == {again.run_id}


@pytest.mark.guarantee("sql.callers-rollback-leaves-nothing")
async def test_an_exception_of_the_callers_undoes_the_run_with_the_row(
    kernel: Kernel, engine: AsyncEngine
) -> None:
    with pytest.raises(LookupError):
        async with engine.begin() as connection:
            bound = kernel.using(connection)
            first = await bound.dispatch(CreateRun("shipping", 1))
            second = await bound.dispatch(CreateRun("asking", 1))
            await connection.execute(insert(orders).values(id=1, run_id=first.run_id))
            found = [run.id for run in (await bound.runs.list()).items]
            assert sorted(found) == sorted([first.run_id, second.run_id])
            raise LookupError
    assert (await kernel.runs.list()).items == ()
    assert await count(engine) == 0


async def test_a_savepoint_of_the_callers_takes_the_run_along(kernel: Kernel, engine: AsyncEngine) -> None:
    async with AsyncSession(engine) as session, session.begin():
        kept = undone = await order_with_run(session, kernel, 1)
        with pytest.raises(LookupError):
            async with session.begin_nested():
                undone = await order_with_run(session, kernel, 2, idempotency_key="k")
                raise LookupError
        last = await order_with_run(session, kernel, 3, idempotency_key="k")
    assert await kernel.runs.get(undone) is None
    for run_id in (kept, last):
        await drive_run(kernel, run_id)
        run = await kernel.runs.get(run_id)
        assert run is not None
        assert run.status is Status.COMPLETED
    assert await count(engine) == 2


async def test_a_session_inside_a_connections_transaction_ends_nothing_of_it(
    kernel: Kernel, engine: AsyncEngine
) -> None:
    """As test suites have it, which undo at the end what the code under test has committed."""
    async with engine.connect() as connection:
        outer = await connection.begin()
        async with AsyncSession(connection, join_transaction_mode="create_savepoint") as session:
            run_id = await order_with_run(session, kernel)
            await session.commit()
            undone = await order_with_run(session, kernel, 2)
            await session.rollback()
        assert await kernel.using(connection).runs.get(run_id) is not None
        assert await kernel.using(connection).runs.get(undone) is None
        assert await kernel.runs.get(run_id) is None
        await outer.rollback()
    assert (await kernel.runs.list()).items == ()
    assert await count(engine) == 0


@pytest.mark.guarantee("sql.failed-dispatches-leave-callers-whole")
async def test_a_failed_dispatch_leaves_the_session_usable(kernel: Kernel, engine: AsyncEngine) -> None:
    async with AsyncSession(engine) as session, session.begin():
        bound = kernel.using(session)
        with pytest.raises(InvalidInputError):
            await bound.dispatch(CreateRun("shipping", "no number", idempotency_key="k"))
        with pytest.raises(RunNotFoundError):
            await bound.dispatch(SignalStep("nobody", "ask", "approval"))
        run_id = await order_with_run(session, kernel, idempotency_key="k")
        with pytest.raises(IdempotencyKeyReusedError):
            await bound.dispatch(CreateRun("shipping", 5, idempotency_key="k"))
        with pytest.raises(RunNotFoundError):
            await bound.annotations.attach("nobody", {"a": 1})
    assert [run.id for run in (await kernel.runs.list()).items] == [run_id]
    assert await count(engine) == 1


@pytest.mark.parametrize("kept", [True, False])
async def test_a_runs_whole_life_can_be_told_in_the_callers_transaction(
    kernel: Kernel, engine: AsyncEngine, sink: CollectingEventSink, *, kept: bool
) -> None:
    async with AsyncSession(engine) as session:
        bound = kernel.using(session)
        cancelled = (await bound.dispatch(CreateRun("shipping", 1))).run_id
        asked = (await bound.dispatch(CreateRun("asking", 1))).run_id
        await bound.dispatch(TransitionRun(asked))
        assert (await bound.dispatch(SignalStep(asked, "ask", "approval", payload="yes"))).delivered
        repeated = await bound.dispatch(SignalStep(asked, "ask", "approval", payload="no"))
        assert repeated.already_completed
        await bound.annotations.attach(cancelled, {"by": "me"}, idempotency_key="once", emit_event=True)
        assert (await bound.dispatch(CancelRun(cancelled))).cancelled
        redriven = await bound.dispatch(RedriveRun(cancelled, from_=Start()))
        assert redriven.redrive_count == 1
        assert (await bound.dispatch(CancelRun(cancelled))).cancelled
        assert [signal.payload for signal in await bound.runs.signals(asked)] == ["yes"]
        told = [event.type for event in await bound.runs.events(cancelled)]
        await (session.commit() if kept else session.rollback())
    if not kept:
        assert (await kernel.runs.list()).items == ()
        assert (await kernel.dispatch(FlushOutbox())).published == 0
        assert (await kernel.dispatch(ClaimJobs("worker"))).jobs == ()
        return
    await drive_run(kernel, asked)
    run = await kernel.runs.get(asked)
    assert run is not None
    assert run.output == "yes"
    assert [row.value for row in await kernel.annotations.list(cancelled)] == ["me"]
    while (await kernel.dispatch(FlushOutbox())).published:
        pass
    assert [event.type for event in sink.events if event.run_id == cancelled] == told


async def test_what_the_session_has_pending_is_its_own_affair(kernel: Kernel, engine: AsyncEngine) -> None:
    async with AsyncSession(engine) as session:
        session.add(Order(id=1, run_id="later"))
        created = await kernel.using(session).dispatch(CreateRun("shipping", 1))
        # Nothing was flushed behind the caller's back, and nothing of the caller's was expired.
        assert [type(one) for one in session.new] == [Order]
        order = next(iter(session.new))
        assert isinstance(order, Order)
        order.run_id = created.run_id
        await session.flush()
        assert await kernel.using(session).runs.get(created.run_id) is not None
        assert order.run_id == created.run_id
        assert not session.is_modified(order)
        await session.commit()
    async with AsyncSession(engine) as session:
        assert (await session.scalars(select(Order.run_id))).all() == [created.run_id]


@pytest.mark.guarantee("sql.rolled-back-definitions-not-believed")
async def test_a_definition_that_was_rolled_back_is_not_believed(
    database: Database, make_kernel: Callable[..., Kernel], engine: AsyncEngine
) -> None:
    def build(*stage_ids: str) -> Kernel:
        stages = [define_stage(stage_id, ship) for stage_id in stage_ids]
        workflow = define_workflow("versioned", input=int).version("1")
        for one in stages:
            workflow = workflow.pipe(one)
        return make_kernel(database, registry=WorkflowRegistry([workflow.build()]))

    first, second = build("a"), build("a", "b")
    async with AsyncSession(engine) as session:
        bound = first.using(session)
        created = await bound.dispatch(CreateRun("versioned", 1))
        # Each of these looks up what the run is pinned to.
        await bound.dispatch(CreateRun("versioned", 1))
        await bound.dispatch(TransitionRun(created.run_id))
        await session.rollback()
    theirs = await second.dispatch(CreateRun("versioned", 1))
    assert (await first.dispatch(ClaimPendingRuns("first"))).claimed == ()
    assert (await first.dispatch(TransitionRun(theirs.run_id))).action == "noop"
    await drive_run(second, theirs.run_id)
    run = await second.runs.get(theirs.run_id)
    assert run is not None
    assert run.output == 3


async def test_a_large_signal_goes_with_the_callers_transaction(
    database: Database, make_kernel: Callable[..., Kernel], engine: AsyncEngine
) -> None:
    kernel = make_kernel(database, asking, spill_threshold_bytes=100)
    blobs = kernel.ports.blob_store
    run_id = (await kernel.dispatch(CreateRun("asking", 1))).run_id
    async with AsyncSession(engine) as session:
        await kernel.using(session).dispatch(SignalStep(run_id, "ask", "approval", payload="no" * 500))
        await session.rollback()
        assert [key async for key in blobs.list("")] == []
        await kernel.using(session).dispatch(SignalStep(run_id, "ask", "approval", payload="yes" * 500))
        await session.commit()
    assert len([key async for key in blobs.list("")]) == 1
    await drive_run(kernel, run_id)
    assert await kernel.runs.output_of(run_id, "ask") == "yes" * 500


async def test_a_redrive_takes_the_blobs_of_removed_stages_along(
    database: Database, make_kernel: Callable[..., Kernel], engine: AsyncEngine
) -> None:
    async def large(ctx: StageContext[Any]) -> str:
        return "x" * 1_000

    async def last(ctx: StageContext[str]) -> int:
        return len(ctx.input)

    workflow = define_workflow("large", input=int).pipe(define_stage("large", large))
    workflow = workflow.pipe(define_stage("copy", large)).pipe(define_stage("last", last))
    kernel = make_kernel(database, workflow.build(), spill_threshold_bytes=100)
    run_id = (await kernel.dispatch(CreateRun("large", 1))).run_id

    async def blobs_of(stage_id: str) -> list[str]:
        return [key async for key in kernel.ports.blob_store.list("") if f"/{stage_id}/output" in key]

    assert (await drive_run(kernel, run_id)).output == 1_000
    [copied] = await blobs_of("copy")
    for kept in (False, True):
        async with AsyncSession(engine) as session:
            await kernel.using(session).dispatch(RedriveRun(run_id, from_=Start()))
            await (session.commit() if kept else session.rollback())
        assert await blobs_of("copy") == ([] if kept else [copied])
    run = await drive_run(kernel, run_id)
    assert (run.status, run.output, run.redrive_count) == (Status.COMPLETED, 1_000, 1)
    assert len(await blobs_of("copy")) == 1


async def test_waiting_workers_find_a_run_soon_after_the_commit(
    kernel: Kernel,
    engine: AsyncEngine,
    work_off: Callable[..., Coroutine[Any, Any, None]],
    eventually: Callable[..., Awaitable[None]],
) -> None:
    persistence: Any = kernel.ports.persistence
    while not await persistence.wait_for_work(timedelta(seconds=30)):
        pass
    async with AsyncSession(engine) as session:
        run_id = await order_with_run(session, kernel)
        assert not await persistence.wait_for_work(timedelta(seconds=0.2))
        await session.commit()
    assert await persistence.wait_for_work(timedelta(seconds=60))
    await work_off(kernel, [run_id], workers=2)
