"""Kernels over every store, conditions to wait for, and workers in processes of their own."""

import asyncio
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import Engine, event

from stagewright import Kernel, Workflow, open_kernel
from stagewright_persistence_sqlalchemy.plugin import empty
from stagewright_test_support.fixtures import shared_address
from stagewright_test_support.servers import PostgresDatabases

PATIENCE = 20.0


@pytest.fixture(scope="session")
def postgres_with_tables(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a database with the present schema, to make copies of: migrations take longer than most tests."""
    databases = PostgresDatabases.at(shared_address(request.config, "postgres"))
    name = f"t_host_{uuid.uuid4().hex[:12]}"
    asyncio.run(empty(databases.create(name)))
    yield name
    databases.drop(name)


@pytest.fixture(scope="session")
def sqlite_with_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the present schema, to make copies of."""
    file = tmp_path_factory.mktemp("with-tables") / "empty.sqlite3"
    asyncio.run(empty(f"sqlite:///{file.as_posix()}"))
    return file


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where a test's runs are kept, by every kind of store; a test may choose with indirect parameters.

    Each test has a database of its own, so that a host finds no work of another test.
    """
    match request.param:
        case "memory":
            yield "memory://"
        case "sqlite":
            url = str(request.getfixturevalue("sqlite_url"))
            file: Path = request.getfixturevalue("sqlite_with_tables")
            shutil.copyfile(file, url.removeprefix("sqlite:///"))
            yield url
        case _:
            databases = PostgresDatabases.at(shared_address(request.config, "postgres"))
            name = f"t_host_{uuid.uuid4().hex[:12]}"
            yield databases.create(name, template=request.getfixturevalue("postgres_with_tables"))
            databases.drop(name)


@pytest_asyncio.fixture
async def opened() -> AsyncIterator[Callable[..., Awaitable[Kernel]]]:
    """`await opened(url, *workflows, **options)`: a kernel that is closed after the test, its schema made."""
    async with AsyncExitStack() as stack:

        async def open_one(url: str, *workflows: Workflow, **options: Any) -> Kernel:
            options = {"create_schema": None if url.startswith("memory") else True, **options}
            return await stack.enter_async_context(open_kernel(workflows, url, **options))

        yield open_one


@pytest.fixture
def eventually() -> Callable[..., Awaitable[None]]:
    """`await eventually(condition, within=20)`: until a function, or an async one, answers with truth."""

    async def wait(condition: Callable[[], Any], *, within: float = PATIENCE) -> None:
        async with asyncio.timeout(within):
            while True:
                answer = condition()
                if asyncio.iscoroutine(answer):
                    answer = await answer
                if answer:
                    return
                await asyncio.sleep(0.005)

    return wait


_SETTLED = 0.03
_LEAP = 0.5


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> Callable[[], AbstractContextManager[None]]:
    """`with hurried():` while nothing happens, the monotonic clock leaps on: an idle minute passes in a few seconds.

    A leap is shorter than what an answer may take, so that nobody runs out of patience with a server that is slow.
    """

    @contextmanager
    def hurry() -> Iterator[None]:
        selector = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]  # what loops of Unix wait by
        select, now = selector.select, time.monotonic
        leapt = 0.0

        def select_or_leap(timeout: float | None) -> Any:  # Any: what selectors answer with
            nonlocal leapt
            if timeout is None or timeout <= _SETTLED:
                return select(timeout)
            happened = select(_SETTLED)
            if not happened:
                leapt += min(timeout - _SETTLED, _LEAP)
            return happened

        # It stays ahead until the test is over: timers that are left go by it.
        monkeypatch.setattr(time, "monotonic", lambda: now() + leapt)
        with monkeypatch.context() as patched:
            patched.setattr(selector, "select", select_or_leap)
            yield

    return hurry


@pytest.fixture
def sent() -> Any:
    """The statements that asyncpg sends in this process while the test lasts."""
    texts: list[str] = []

    def connect(connection: Any, record: object) -> None:  # Any: SQLAlchemy's adapted connection
        connection.driver_connection.add_query_logger(lambda query: texts.append(query.query))

    event.listen(Engine, "connect", connect)
    yield texts
    event.remove(Engine, "connect", connect)


WORKFLOWS = """
import asyncio
import gc
import os
import sys
import time
from pathlib import Path

from stagewright import BlockingStageContext, RetryPolicy, StageContext, define_workflow, stage

HERE = Path(__file__).parent


def is_held() -> bool:
    return (HERE / "held").exists()


def note(line: str) -> None:
    with (HERE / "effects.txt").open("a", encoding="utf-8") as effects:
        effects.write(f"{os.getpid()} {line}\\n")


@stage("large")
async def large(ctx: StageContext[float]) -> str:
    return "x" * int(ctx.input)


@stage("garbage")
async def garbage(ctx: StageContext[float]) -> list[int]:
    return [gc.get_freeze_count(), gc.get_threshold()[0]]


@stage("sleep")
async def sleep(ctx: StageContext[float]) -> float:
    note(f"begin {ctx.run_id} {ctx.attempt}")
    await asyncio.sleep(ctx.input)
    note(f"end {ctx.run_id} {ctx.attempt}")
    return ctx.input


@stage("block")
async def block(ctx: StageContext[float]) -> float:
    note(f"begin {ctx.run_id} {ctx.attempt}")
    until = time.monotonic() + ctx.input
    while time.monotonic() < until or is_held():
        sum(range(10_000))
    note(f"end {ctx.run_id} {ctx.attempt}")
    return ctx.input


@stage("thread")
def thread(ctx: BlockingStageContext[float]) -> float:
    note(f"begin {ctx.run_id} {ctx.attempt}")
    time.sleep(ctx.input)
    while is_held():
        time.sleep(0.05)
    note(f"end {ctx.run_id} {ctx.attempt}")
    return ctx.input


@stage("late", timeout="1s", retry=RetryPolicy(max_attempts=2, delay=0))
def late(ctx: BlockingStageContext[float]) -> float:
    note(f"begin {ctx.run_id} {ctx.attempt}")
    if ctx.attempt == 1:
        time.sleep(ctx.input)
    note(f"end {ctx.run_id} {ctx.attempt}")
    return ctx.attempt


@stage("stall", timeout="1s", retry=RetryPolicy(max_attempts=1))
async def stall(ctx: StageContext[float]) -> float:
    note(f"begin {ctx.run_id} {ctx.attempt}")
    time.sleep(ctx.input)
    return ctx.input


async def leave() -> None:
    sys.exit("of a task")


@stage("quit", retry=RetryPolicy(max_worker_losses=1))
async def quit(ctx: StageContext[float]) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(leave())


stages = (sleep, large, garbage, block, thread, late, stall, quit)
flows = [define_workflow(one.id, input=float).pipe(one).build() for one in stages]
"""


@pytest.fixture
def flows(tmp_path: Path) -> Path:
    """A file of workflows, each of one stage, which takes its input in seconds.

    While a file `held` lies beside it, bodies of `block` and `thread` don't end.
    """
    path = tmp_path / "flows.py"
    path.write_text(WORKFLOWS, encoding="utf-8")
    return path


class WorkerProcess:
    """A `stagewright worker` and what it logged."""

    def __init__(self, arguments: list[str], folder: Path, environment: Mapping[str, str]) -> None:
        self.log_file = folder / f"worker-{len(list(folder.glob('worker-*.log')))}.log"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("STAGEWRIGHT_")}
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "stagewright.cli", "worker", *arguments],
                cwd=folder,
                env={**inherited, **environment},
                stdout=log,
                stderr=log,
            )

    @property
    def log(self) -> str:
        """Everything that it logged so far."""
        return self.log_file.read_text(encoding="utf-8")

    def has_ended(self) -> bool:
        return self.process.poll() is not None


@pytest.fixture
def worker(flows: Path) -> Iterator[Callable[..., WorkerProcess]]:
    """`worker(url, *options, environment={})`: a worker process on the flows; it is killed after the test."""
    started: list[WorkerProcess] = []

    def start(url: str, *options: str, environment: Mapping[str, str] | None = None) -> WorkerProcess:
        arguments = [f"{flows}:flows", "--url", url, *options]
        started.append(WorkerProcess(arguments, flows.parent, environment or {}))
        return started[-1]

    yield start
    for one in started:
        if not one.has_ended():
            one.process.kill()
        one.process.wait()


@pytest.fixture
def effects(flows: Path) -> Callable[[], list[list[str]]]:
    """The lines that bodies wrote: process, `begin` or `end`, run, attempt."""
    path = flows.parent / "effects.txt"
    return lambda: [line.split() for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def flow_list(flows: Path) -> list[Workflow]:
    """The workflows of the file, in this process."""
    namespace: dict[str, Any] = {"__name__": "flows", "__file__": str(flows)}
    exec(compile(flows.read_text(encoding="utf-8"), str(flows), "exec"), namespace)
    found: list[Workflow] = namespace["flows"]
    return found
