"""Kernels over every kind of store, each test with a database of its own, checked as a whole at its end."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import pytest
import pytest_asyncio

from stagewright import Kernel, Workflow, WorkflowRegistry, open_kernel
from stagewright.commands import FlushOutbox
from stagewright.records import RunRecord
from stagewright.status import TERMINAL_RUN_STATUSES, Status
from stagewright.testing import CollectingEventSink, assert_consistent
from stagewright_persistence_sqlalchemy.plugin import empty
from stagewright_test_support.backend_choice import stores
from stagewright_test_support.fixtures import shared_address
from stagewright_test_support.servers import MariadbDatabases, PostgresDatabases
from stagewright_test_support.services import need_backend

ENDINGS = {
    Status.COMPLETED: "workflow:completed",
    Status.FAILED: "workflow:failed",
    Status.CANCELLED: "workflow:cancelled",
}


SERVERS: Mapping[str, type[MariadbDatabases] | type[PostgresDatabases]] = {
    "postgres": PostgresDatabases,
    "mariadb": MariadbDatabases,
}


@pytest.fixture(scope="session")
def emptied(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], str]]:
    """`emptied(kind)`: the URL of a database with the present schema, and without a row.

    Of each kind there is one, since the migrations of a new one take longer than most tests.
    """
    urls: dict[str, str] = {}
    with ExitStack() as made, asyncio.Runner() as runner:

        def url_of(kind: str) -> str:
            if kind == "sqlite":
                return f"sqlite:///{(tmp_path_factory.getbasetemp() / 'lifecycle.sqlite3').as_posix()}"
            databases = SERVERS[kind].at(shared_address(request.config, kind))
            name = f"t_lifecycle_{uuid.uuid4().hex[:12]}"
            made.callback(databases.drop, name)
            return databases.create(name)

        def give(kind: str) -> str:
            if kind not in urls:
                urls[kind] = url_of(kind)
            runner.run(empty(urls[kind]))
            return urls[kind]

        yield give


@pytest.fixture(params=stores("memory", "sqlite", "postgres", "mariadb"))
def url(request: pytest.FixtureRequest, emptied: Callable[[str], str]) -> str:
    kind = str(request.param)
    if kind == "sqlite":
        need_backend(kind)
    return "memory://" if kind == "memory" else emptied(kind)


@pytest.fixture
def sink() -> CollectingEventSink:
    return CollectingEventSink()


@pytest_asyncio.fixture
async def open_store(url: str, sink: CollectingEventSink) -> AsyncIterator[Callable[..., Awaitable[Kernel]]]:
    """`await open_store(*workflows, **options)`: a kernel over the test's store, which is consistent at the end."""
    async with AsyncExitStack() as stack:
        opened: list[Kernel] = []

        async def open_one(*workflows: Workflow, **options: Any) -> Kernel:
            given: dict[str, Any] = {
                "event_sink": sink,
                "create_schema": None if url.startswith("memory") else True,
                **options,
            }
            kernel = await stack.enter_async_context(open_kernel(workflows, url, **given))
            opened.append(kernel)
            return kernel

        yield open_one
        for kernel in opened:
            await assert_consistent(kernel)


@pytest.fixture
def beside() -> Callable[..., Kernel]:
    """`beside(kernel, *workflows)`: another build over the same store, which has these workflows."""

    def make(kernel: Kernel, *workflows: Workflow) -> Kernel:
        ports = kernel.ports
        return Kernel(
            persistence=ports.persistence,
            job_transport=ports.job_transport,
            blob_store=ports.blob_store,
            step_ledger=ports.step_ledger,
            event_sink=ports.event_sink,
            run_reader=ports.run_reader,
            clock=ports.clock,
            registry=WorkflowRegistry(workflows),
        )

    return make


@pytest.fixture
def eventually() -> Callable[..., Awaitable[None]]:
    """`await eventually(condition, within=60)`: until an async function answers with truth."""

    async def wait(condition: Callable[[], Awaitable[Any]], *, within: float = 60.0) -> None:
        async with asyncio.timeout(within):
            while not await condition():  # noqa: ASYNC110 - what a store holds announces itself to nobody
                await asyncio.sleep(0.01)

    return wait


@pytest.fixture
def ended(sink: CollectingEventSink) -> Callable[[Kernel, str], Awaitable[RunRecord]]:
    """`await ended(kernel, run_id)`: the run, which has ended once, and whose sink was told all of it in order."""

    async def check(kernel: Kernel, run_id: str) -> RunRecord:
        while (await kernel.dispatch(FlushOutbox())).published:
            pass
        run = await kernel.runs.get(run_id)
        assert run is not None
        assert run.status in TERMINAL_RUN_STATUSES
        told = await kernel.runs.events(run_id, limit=1_000)
        assert [event.type for event in told if event.type in ENDINGS.values()] == [ENDINGS[run.status]]
        delivered = [event.event_id for event in sink.events if event.run_id == run_id]
        assert list(dict.fromkeys(delivered)) == [event.id for event in told]
        return run

    return check
