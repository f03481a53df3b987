"""Worker processes that tests start, kill, freeze and thaw, and a look at what they did."""

import asyncio
import json
import os
import random
import signal
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from sqlalchemy import make_url

from stagewright import Kernel, StageContext, define_workflow, open_kernel, stage
from stagewright_test_support.servers.launch import last_lines, launch

PROGRAMS = Path(__file__).parent
_IDLE_TRANSACTIONS = (
    "SELECT count(*) FROM pg_stat_activity "
    "WHERE datname = current_database() AND state LIKE 'idle in transaction%'"
)
_JOBS = "SELECT count(*) FROM job_queue"
_FREE_JOBS = "SELECT count(*) FROM (SELECT FROM job_queue FOR UPDATE SKIP LOCKED) AS free"


class WorkerProcess:
    """One process of a program in this folder."""

    def __init__(self, program: str, options: dict[str, Any], log: Path) -> None:
        self.name = str(options["name"])
        self.log = log
        command = [sys.executable, str(PROGRAMS / program), json.dumps(options)]
        self._process = launch(
            command, log=log, account=None, farewell=signal.SIGKILL, environment=dict(os.environ)
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it at this instant."""
        self._process.kill()
        self._process.wait()

    async def ended(self, within: float = 30.0) -> int:
        """Its exit code, once it has ended."""
        return await asyncio.to_thread(self._process.wait, within)

    def last_words(self) -> str:
        return f"{self.name}:\n{last_lines(self.log, 40)}"


class Workers:
    """Starts worker processes over one database, and reads what they tell."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self._folder = folder
        self._told = folder / "told.jsonl"
        self.processes: list[WorkerProcess] = []

    def start(
        self, name: str, workflows: list[str], *, program: str = "worker_process.py", **options: Any
    ) -> WorkerProcess:
        """Start a process of a program with the options that it takes."""
        given = {"url": self.url, "told": str(self._told), "name": name, "workflows": workflows, **options}
        worker = WorkerProcess(program, given, self._folder / f"{name}.log")
        self.processes.append(worker)
        return worker

    def told(self, **facts: object) -> list[dict[str, Any]]:
        """What was told with these facts; `...` stands for any value."""
        if not self._told.exists():
            return []
        lines = [json.loads(line) for line in self._told.read_text().splitlines()]
        return [
            line
            for line in lines
            if all(name in line and value in (..., line[name]) for name, value in facts.items())
        ]

    async def until(self, condition: Callable[[], Any], what: str, within: float = 30.0) -> None:
        """Wait until a function, or an async one, answers with truth."""
        try:
            async with asyncio.timeout(within):
                while True:
                    answer = condition()
                    if asyncio.iscoroutine(answer):
                        answer = await answer
                    if answer:
                        return
                    await asyncio.sleep(0.05)
        except TimeoutError:
            words = "\n\n".join(worker.last_words() for worker in self.processes)
            pytest.fail(f"not within {within:g} s: {what}\n\n{words}", pytrace=False)

    def freeze(self, worker: WorkerProcess) -> None:
        """Stop a process where it holds nothing that every other process has to wait for."""
        self._freeze_when(self._can_be_written, worker)

    def freeze_with_a_job(self, worker: WorkerProcess) -> None:
        """Stop a process where it has a job locked, which everybody else passes over; PostgreSQL only."""
        self._freeze_when(lambda: self._found(_FREE_JOBS) != self._found(_JOBS), worker)

    def _freeze_when(self, condition: Callable[[], bool], worker: WorkerProcess) -> None:
        worker.send(signal.SIGSTOP)
        deadline = time.monotonic() + 120
        while not condition():
            if time.monotonic() > deadline:
                pytest.fail(f"{worker.name} was never met where it should stand still")
            worker.send(signal.SIGCONT)
            time.sleep(random.uniform(0.0, 0.01))
            worker.send(signal.SIGSTOP)

    def _can_be_written(self) -> bool:
        if not self.url.startswith("sqlite"):
            return self._found(_IDLE_TRANSACTIONS) == 0
        path = str(make_url(self.url).database)
        with closing(sqlite3.connect(path, timeout=0.05, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
        return True

    def _found(self, question: str) -> object:
        # What was sent before the process was stopped still arrives, and may be its transaction's end.
        time.sleep(0.005)
        with psycopg.connect(self.url) as connection:
            (found,) = connection.execute(question.encode()).fetchone() or (None,)
            return found

    def kill_all(self) -> None:
        for worker in self.processes:
            if not worker.has_ended():
                worker.kill()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def workers(url: str, tmp_path: Path) -> Iterator[Workers]:
    """Workers over the test's database; those that are left at the end are killed."""
    started = Workers(url, tmp_path)
    yield started
    started.kill_all()


@stage("pay")
async def pay(ctx: StageContext[int]) -> int:
    raise AssertionError("the test's own process runs no body")


@stage("thank")
async def thank(ctx: StageContext[int]) -> int:
    raise AssertionError("the test's own process runs no body")


@pytest_asyncio.fixture
async def open_observer(url: str) -> AsyncIterator[Callable[[list[str]], Awaitable[Kernel]]]:
    """`await open_observer(workflow_ids)`: a kernel over the database, its schema made, that creates and looks."""
    opened: list[Any] = []

    async def open_one(workflow_ids: list[str]) -> Kernel:
        workflows = [
            define_workflow(workflow_id, input=int).pipe(pay).pipe(thank).build()
            for workflow_id in workflow_ids
        ]
        context = open_kernel(workflows, url, create_schema=True)
        opened.append(context)
        return await context.__aenter__()

    yield open_one
    for context in opened:
        await context.__aexit__(None, None, None)
