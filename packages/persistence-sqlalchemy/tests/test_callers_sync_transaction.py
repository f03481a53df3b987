"""A `SyncKernel` in the transaction of a plain session: in the caller's thread, with an event loop there or without."""

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, String, create_engine, event, func, inspect, select, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

from stagewright import (
    Kernel,
    StageContext,
    Status,
    SyncKernel,
    define_stage,
    define_workflow,
    open_kernel,
)
from stagewright.commands import ClaimPendingRuns, CreateRun, ExecuteJob, FlushOutbox, SignalStep
from stagewright.errors import (
    IdempotencyKeyReusedError,
    OwnTransactionsError,
    RunNotFoundError,
    SessionRefusedError,
)
from stagewright.hosting import drive_run
from stagewright.system import TimeSortableIds
from stagewright_persistence_sqlalchemy import prepare_sqlite
from stagewright_persistence_sqlalchemy.tables import PLAIN_TABLES

pytestmark = pytest.mark.parametrize(
    "way",
    ["sqlite", "asyncpg", "psycopg", pytest.param("mariadb", marks=pytest.mark.slow)],
    indirect=True,
)


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(String(40))


async def ship(ctx: StageContext[int]) -> int:
    return ctx.input + 1


async def ask(ctx: StageContext[int]) -> Any:
    return await ctx.step.wait_for_signal("approval", timeout="1d", returns=str)


shipping = define_workflow("shipping", input=int).pipe(define_stage("ship", ship)).build()
asking = define_workflow("asking", input=int).pipe(define_stage("ask", ask)).build()


def plainly(url: str) -> str:
    """The same database by a driver without an event loop, under the server's own settings."""
    return url.replace("+asyncpg", "+psycopg").replace("mariadb://", "mariadb+pymysql://")


@pytest.fixture
def kernel(url: str) -> Iterator[SyncKernel]:
    if not url.startswith("sqlite"):
        # The tests of a file share a database.
        emptied = create_engine(plainly(url))
        with emptied.begin() as connection:
            if url.startswith("mariadb"):
                # It takes seconds to make tables.
                there = inspect(connection).get_table_names()
                for table in reversed(
                    [one for one in PLAIN_TABLES.metadata.sorted_tables if one.name in there]
                ):
                    connection.execute(table.delete())
            else:
                connection.execute(text("DROP SCHEMA public CASCADE"))
                connection.execute(text("CREATE SCHEMA public"))
        emptied.dispose()
    with SyncKernel(lambda: open_kernel([shipping, asking], url, create_schema=True)) as kernel:
        yield kernel


@pytest.fixture
def engine(url: str, kernel: SyncKernel) -> Iterator[Engine]:
    """The caller's own engine on the kernel's database, by a driver without an event loop."""
    engine = create_engine(plainly(url))
    if engine.dialect.name == "sqlite":
        prepare_sqlite(engine)
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


def orders(engine: Engine) -> int:
    with Session(engine) as session:
        return session.scalar(select(func.count()).select_from(Order)) or 0


def place(session: Session, kernel: SyncKernel, number: int = 1, **options: Any) -> str:
    created = kernel.using(session).dispatch(CreateRun("shipping", number, **options))
    session.add(Order(id=number, run_id=created.run_id))
    return created.run_id


def completes(kernel: SyncKernel, run_id: str) -> None:
    run = kernel.call(lambda inner: drive_run(inner, run_id))
    assert run.status is Status.COMPLETED


@pytest.mark.guarantee("sql.callers-transaction-commits-both")
def test_a_run_is_there_when_the_caller_commits(kernel: SyncKernel, engine: Engine) -> None:
    threads: set[int] = set()
    event.listen(engine, "before_cursor_execute", lambda *_: threads.add(threading.get_ident()))
    with Session(engine) as session, session.begin():
        run_id = place(session, kernel)
        assert kernel.using(session).call(lambda inner: inner.runs.get(run_id)) is not None
        assert kernel.call(lambda inner: inner.runs.get(run_id)) is None
    assert threads == {threading.get_ident()}
    completes(kernel, run_id)
    assert orders(engine) == 1


@pytest.mark.guarantee("sql.callers-rollback-leaves-nothing")
def test_a_rollback_leaves_nothing(kernel: SyncKernel, engine: Engine) -> None:
    with Session(engine) as session:
        run_id = place(session, kernel, idempotency_key="once")
        session.flush()
        session.rollback()
        assert kernel.call(lambda inner: inner.runs.get(run_id)) is None
        assert orders(engine) == 0
        with pytest.raises(LookupError), session.begin_nested():
            place(session, kernel, 2, idempotency_key="once")
            raise LookupError
        last = place(session, kernel, 3, idempotency_key="once")
        with pytest.raises(IdempotencyKeyReusedError):
            kernel.using(session).dispatch(CreateRun("shipping", 4, idempotency_key="once"))
        with pytest.raises(RunNotFoundError):
            kernel.using(session).dispatch(
                {"type": "step.signal", "run_id": "x", "stage_id": "ask", "step_id": "a"}
            )
        session.commit()
    page = kernel.call(lambda inner: inner.runs.list())
    assert [run.id for run in page.items] == [last]
    completes(kernel, last)
    assert orders(engine) == 1


async def test_it_works_in_a_thread_whose_event_loop_runs(kernel: SyncKernel, engine: Engine) -> None:
    assert asyncio.get_running_loop().is_running()
    with Session(engine) as session:
        run_id = place(session, kernel)
        kernel.using(session).dispatch(CreateRun("asking", 1, idempotency_key="k"))
        session.commit()
    assert orders(engine) == 1
    assert kernel.call(lambda inner: inner.runs.get(run_id)) is not None


def test_a_plain_connection_will_do_and_a_scoped_session(kernel: SyncKernel, engine: Engine) -> None:
    with engine.begin() as connection:
        first = kernel.using(connection).dispatch(CreateRun("shipping", 1)).run_id
    with engine.connect() as connection:
        undone = kernel.using(connection).dispatch(CreateRun("shipping", 1)).run_id
    scoped = scoped_session(sessionmaker(engine))
    second = kernel.using(scoped).dispatch(CreateRun("shipping", 1)).run_id
    scoped.commit()
    scoped.remove()
    assert kernel.call(lambda inner: inner.runs.get(undone)) is None
    for run_id in (first, second):
        completes(kernel, run_id)


def test_a_signal_and_its_row_come_together(kernel: SyncKernel, engine: Engine) -> None:
    run_id = kernel.dispatch(CreateRun("asking", 1)).run_id
    with Session(engine) as session, session.begin():
        bound = kernel.using(session)
        assert bound.dispatch(SignalStep(run_id, "ask", "approval", payload="yes")).delivered
        bound.call(lambda inner: inner.annotations.attach(run_id, {"by": "me"}))
        assert kernel.call(lambda inner: inner.runs.signals(run_id)) == []
    completes(kernel, run_id)


@pytest.mark.guarantee("sql.callers-sessions-run-nothing")
def test_what_runs_or_publishes_is_refused(kernel: SyncKernel, engine: Engine) -> None:
    with Session(engine) as session, session.begin():
        for command in (ExecuteJob("run", "shipping", "ship"), FlushOutbox()):
            with pytest.raises(OwnTransactionsError, match=command.type):
                kernel.using(session).dispatch(command)
        run_id = place(session, kernel)
        assert kernel.using(session).dispatch(ClaimPendingRuns("me")).claimed[0].run_id == run_id
    completes(kernel, run_id)


class _InterruptingIds(TimeSortableIds):
    """Has the main thread interrupted, by the first id that is asked for, while that waits for the kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.interrupted = threading.Event()

    def new_id(self) -> str:
        if not self.interrupted.is_set():
            os.kill(os.getpid(), signal.SIGINT)
            self.interrupted.wait()
        return super().new_id()


def test_an_interrupted_dispatch_is_undone_and_the_session_goes_on(
    kernel: SyncKernel, engine: Engine, url: str
) -> None:
    ids = _InterruptingIds()

    @asynccontextmanager
    async def opened() -> AsyncIterator[Kernel]:
        async with open_kernel(shipping, url) as inner:
            ports = inner.ports
            yield Kernel(
                persistence=ports.persistence,
                blob_store=ports.blob_store,
                job_transport=ports.job_transport,
                event_sink=ports.event_sink,
                clock=ports.clock,
                registry=ports.registry,
                ids=ids,
            )

    def interrupt(*_: object) -> None:
        ids.interrupted.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        with SyncKernel(opened) as interrupted, Session(engine) as session, session.begin():
            with pytest.raises(KeyboardInterrupt):
                interrupted.using(session).dispatch(CreateRun("shipping", 9, idempotency_key="k"))
            run_id = place(session, interrupted, idempotency_key="k")
    finally:
        signal.signal(signal.SIGINT, before)
    assert [run.id for run in kernel.call(lambda inner: inner.runs.list()).items] == [run_id]
    completes(kernel, run_id)


def test_an_interrupted_statement_keeps_nobody(kernel: SyncKernel, engine: Engine) -> None:
    left = 3

    def interrupt(*_: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt

    with Session(engine) as session:
        event.listen(session.connection(), "before_cursor_execute", interrupt)
        with pytest.raises(KeyboardInterrupt):
            kernel.using(session).dispatch(CreateRun("shipping", 9, idempotency_key="k"))
        # SQLAlchemy has given the connection up.
        session.rollback()
        run_id = place(session, kernel, idempotency_key="k")
        session.commit()
    assert [run.id for run in kernel.call(lambda inner: inner.runs.list()).items] == [run_id]
    completes(kernel, run_id)


def test_sessions_of_the_other_sort_are_refused_by_name(kernel: SyncKernel, engine: Engine) -> None:
    with Session(engine) as session:
        for given, problem in ((object(), "not a Session or Connection"), (engine, "not a Session")):
            with pytest.raises(SessionRefusedError, match=problem):
                kernel.using(given).dispatch(CreateRun("shipping", 1))

        async def plain(inner: Kernel) -> None:
            inner.using(session)

        with pytest.raises(SessionRefusedError, match=r"SyncKernel\.using"):
            kernel.call(plain)
    with pytest.raises(SessionRefusedError, match="is closed"):
        kernel.using(_closed(engine)).dispatch(CreateRun("shipping", 1))
    finished = Session(engine, close_resets_only=False)
    finished.close()
    with pytest.raises(SessionRefusedError, match="closed"):
        kernel.using(finished).dispatch(CreateRun("shipping", 1))


def _closed(engine: Engine) -> Connection:
    with engine.connect() as connection:
        return connection


def test_two_threads_use_their_own_sessions_at_once(kernel: SyncKernel, engine: Engine) -> None:
    made: list[str] = []
    barrier = threading.Barrier(2)

    def work(number: int) -> None:
        barrier.wait()
        for one in range(5):
            with Session(engine) as session, session.begin():
                made.append(place(session, kernel, number * 10 + one + 1))

    run: Callable[[int], threading.Thread] = lambda number: threading.Thread(target=work, args=(number,))  # noqa: E731
    threads = [run(number) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 10
    assert orders(engine) == 10
