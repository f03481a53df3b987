"""Databases with fresh tables, kernels over them, and crowds of workers that work runs off."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import pytest
import pytest_asyncio

from stagewright import Kernel, Workflow, WorkflowRegistry
from stagewright.commands import ClaimJobs, ClaimPendingRuns, FlushOutbox
from stagewright.hosting.job_runner import run_job
from stagewright.records import RunRecord
from stagewright.status import TERMINAL_RUN_STATUSES, Status
from stagewright.testing import CollectingEventSink
from stagewright_persistence_sqlalchemy import (
    Database,
    SqlAlchemyBlobStore,
    SqlAlchemyJobTransport,
    SqlAlchemyPersistence,
    SqlAlchemyStepLedger,
    create_engine,
)
from stagewright_persistence_sqlalchemy.sessions import Sessions
from stagewright_persistence_sqlalchemy.tables import metadata

_PATIENCE = 90.0
_ENDINGS = ("workflow:completed", "workflow:failed", "workflow:cancelled")


@pytest.fixture(params=["sqlite", "asyncpg"])
def way(request: pytest.FixtureRequest) -> str:
    """The database and its driver: `sqlite`, `asyncpg` or `psycopg`."""
    return str(request.param)


@pytest.fixture
def url(way: str, request: pytest.FixtureRequest) -> str:
    """Where the test's database is."""
    if way == "sqlite":
        return str(request.getfixturevalue("sqlite_url"))
    plain: str = request.getfixturevalue("postgres_url")
    return plain.replace("postgresql://", f"postgresql+{way}://")


@pytest_asyncio.fixture
async def open_database() -> AsyncIterator[Callable[..., Database]]:
    """`open_database(url, wrap=None, **options)`: a database object of its own; `wrap` gets and gives `Sessions`."""
    async with AsyncExitStack() as opened:

        def open_one(
            url: str, *, wrap: Callable[[Sessions], Sessions] | None = None, **options: Any
        ) -> Database:
            database = Database(create_engine(url, **options))
            if wrap is not None:
                database.sessions = wrap(database.sessions)
            opened.push_async_callback(database.close)
            return database

        yield open_one


@pytest.fixture
def make_tables() -> Callable[[Database], Awaitable[None]]:
    """`await make_tables(database)`: every table, empty."""

    async def make(database: Database) -> None:
        async with database.engine.begin() as connection:
            await connection.run_sync(metadata.drop_all)
            await connection.run_sync(metadata.create_all)

    return make


@pytest_asyncio.fixture
async def database(
    url: str,
    open_database: Callable[..., Database],
    make_tables: Callable[[Database], Awaitable[None]],
) -> Database:
    """The test's database, with empty tables."""
    database = open_database(url)
    await make_tables(database)
    return database


@pytest.fixture
def sink() -> CollectingEventSink:
    return CollectingEventSink()


@pytest.fixture
def make_kernel(sink: CollectingEventSink) -> Callable[..., Kernel]:
    """`make_kernel(database, *workflows, **arguments)`: a kernel whose ports are all in that database."""

    def make(database: Database, *workflows: Workflow, **arguments: Any) -> Kernel:
        given: dict[str, Any] = {
            "persistence": SqlAlchemyPersistence(database),
            "blob_store": SqlAlchemyBlobStore(database),
            "job_transport": SqlAlchemyJobTransport(database),
            "step_ledger": SqlAlchemyStepLedger(database),
            "event_sink": sink,
            "clock": database.clock,
            "registry": WorkflowRegistry(workflows),
        }
        return Kernel(**(given | arguments))

    return make


@pytest.fixture
def eventually() -> Callable[..., Awaitable[None]]:
    """`await eventually(condition, within=10)`: until a function, or an async one, answers with truth."""

    async def wait(condition: Callable[[], Any], *, within: float = 10.0) -> None:
        async with asyncio.timeout(within):
            while True:
                answer = condition()
                if asyncio.iscoroutine(answer):
                    answer = await answer
                if answer:
                    return
                await asyncio.sleep(0.005)

    return wait


@pytest.fixture
def work_off() -> Callable[..., Coroutine[Any, Any, None]]:
    """`await work_off(kernel, run_ids, workers=8, batch=1, bears=())`: claim and execute until all runs have ended.

    Errors of the types in `bears` are taken as a host takes them: by going on. Everything else ends the test.
    """

    async def run(
        kernel: Kernel,
        run_ids: Iterable[str],
        *,
        workers: int = 8,
        batch: int = 1,
        bears: tuple[type[Exception], ...] = (),
        within: float = _PATIENCE,
    ) -> None:
        left = set(run_ids)

        async def work(name: str) -> None:
            pause = Random(name)
            while left:
                try:
                    claimed = await kernel.dispatch(ClaimPendingRuns(name, max_claims=3))
                    jobs = (await kernel.dispatch(ClaimJobs(name, limit=batch))).jobs
                    for job in jobs:
                        await run_job(kernel, job)
                    await kernel.dispatch(FlushOutbox())
                except bears:
                    await asyncio.sleep(0.05)
                    continue
                if not claimed.claimed and not jobs:
                    await asyncio.sleep(pause.uniform(0.002, 0.02))

        async def watch() -> None:
            while left:
                for run_id in sorted(left):
                    try:
                        status = await kernel.ports.persistence.get_run_status(run_id)
                    except bears:
                        break
                    if status not in TERMINAL_RUN_STATUSES:
                        # Runs end about in the order in which they were created.
                        break
                    left.discard(run_id)
                await asyncio.sleep(0.02)

        async with asyncio.timeout(within), asyncio.TaskGroup() as tasks:
            for number in range(workers):
                tasks.create_task(work(f"worker-{number}"))
            tasks.create_task(watch())

    return run


@pytest.fixture
def deliver_all() -> Callable[[Kernel], Awaitable[None]]:
    """`await deliver_all(kernel)`: hand every event that is left to the sink."""

    async def deliver(kernel: Kernel) -> None:
        while (await kernel.dispatch(FlushOutbox())).published:
            pass

    return deliver


@pytest.fixture
def check_run(sink: CollectingEventSink) -> Callable[..., Coroutine[Any, Any, RunRecord]]:
    """`await check_run(kernel, run_id, statuses=(COMPLETED,))`: it has ended, and its story is told whole and in order.

    With `repeated` the sink may have been given an event again; by its id it is known then.
    """

    async def check(
        kernel: Kernel,
        run_id: str,
        statuses: Collection[Status] = (Status.COMPLETED,),
        *,
        repeated: bool = False,
    ) -> RunRecord:
        run = await kernel.runs.get(run_id)
        assert run is not None
        assert run.status in statuses
        told = await kernel.runs.events(run_id, limit=1_000)
        assert [event.sequence for event in told] == list(range(1, len(told) + 1))
        endings = [event.type for event in told if event.type in _ENDINGS]
        assert endings == [f"workflow:{run.status.value.lower()}"]
        assert told[-1].type == endings[0]
        delivered = [event for event in sink.events if event.run_id == run_id]
        ids = [event.event_id for event in delivered]
        if repeated:
            ids = list(dict.fromkeys(ids))
        assert ids == [event.id for event in told]
        return run

    return check
