"""Processes are killed by SIGKILL at every position of steps of every kind: each run reaches its right end."""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from stagewright import Kernel, Status
from stagewright_persistence_sqlalchemy import Database

pytestmark = [pytest.mark.slow, pytest.mark.guarantee("steps.a-crash-repeats-one-execution-at-most")]

MakeKernel = Callable[..., Kernel]
WORKER = Path(__file__).with_name("killed_steps_worker.py")
OUTPUT = ["first", "approval", "parcel", "thread", "again", "timed out", "second", "last"]
EXECUTIONS = {"first": 1, "thread": 1, "again": 2, "second": 1}
"""How often each function is executed when nothing is killed: one fails the first time."""


class Processes:
    """The processes of one test, and what their functions did."""

    def __init__(self, url: str, told: Path) -> None:
        self._url = url
        self._told = told
        self._first: asyncio.subprocess.Process | None = None

    async def kill_each(self, mode: str) -> None:
        """Until one lives."""
        self._first = await asyncio.create_subprocess_exec(
            sys.executable,
            str(WORKER),
            self._url,
            str(self._told),
            mode,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert await self._line() == "killed"

    async def take_over(self) -> None:
        """In one more process."""
        assert self._first is not None
        assert self._first.stdin is not None
        self._first.stdin.write(b"\n")
        assert await self._line() == "done"

    def effects(self, run_id: str) -> list[dict[str, Any]]:
        """What the functions of a run's steps did, in order."""
        if not self._told.exists():
            return []
        told = [json.loads(line) for line in self._told.read_text().splitlines()]
        return [line for line in told if line["run"] == run_id]

    async def end(self) -> None:
        if self._first is None:
            return
        if self._first.returncode is None:
            self._first.kill()
        await self._first.communicate()

    async def _line(self) -> str:
        assert self._first is not None
        assert self._first.stdout is not None
        async with asyncio.timeout(120):
            return (await self._first.stdout.readline()).decode().strip()


@pytest_asyncio.fixture
async def processes(url: str, database: Database, tmp_path: Path) -> AsyncIterator[Processes]:
    """Over the test's database, whose tables are there and empty."""
    started = Processes(url, tmp_path / "told.jsonl")
    yield started
    await started.end()


@pytest.fixture
def kernel(database: Database, make_kernel: MakeKernel) -> Kernel:
    """One that looks."""
    return make_kernel(database)


@pytest.fixture
def check_run(kernel: Kernel) -> Callable[[str], Awaitable[None]]:
    """`await check_run(run_id)`: it has the right end, and its events and signals tell of everything once."""

    async def check(run_id: str) -> None:
        run = await kernel.runs.get(run_id)
        assert run is not None
        assert (run.status, run.output) == (Status.COMPLETED, OUTPUT)
        events = await kernel.runs.events(run_id)
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        types = Counter(event.type for event in events)
        assert (types["step:signalled"], types["stage:completed"], types["workflow:completed"]) == (2, 1, 1)
        assert await kernel.runs.signals(run_id) == []

    return check


async def runs_of(kernel: Kernel, **only: Any) -> list[str]:
    return [run.id for run in (await kernel.runs.list(limit=1000, **only)).items]


async def test_whoever_takes_over_from_a_killed_process_executes_one_step_again_at_most(
    processes: Processes, kernel: Kernel, check_run: Callable[[str], Awaitable[None]]
) -> None:
    """One run for each position: what was recorded is not executed again, what was in the middle once more."""
    await processes.kill_each("apart")
    runs = await runs_of(kernel)
    assert len(runs) > 60
    before: dict[str, Counter[str]] = {}
    recorded: dict[str, set[str]] = {}
    for run_id in runs:
        before[run_id] = Counter(effect["step"] for effect in processes.effects(run_id))
        steps = await kernel.runs.steps(run_id)
        recorded[run_id] = {step.step_id for step in steps if step.status == "completed"}
    await processes.take_over()
    repeated: set[str] = set()
    for run_id in runs:
        await check_run(run_id)
        effects = [effect for effect in processes.effects(run_id) if effect["step"] in EXECUTIONS]
        counts = Counter(effect["step"] for effect in effects)
        assert counts.keys() == EXECUTIONS.keys()
        assert all(counts[name] <= times + 1 for name, times in EXECUTIONS.items()), counts
        assert all(counts[name] == before[run_id][name] for name in recorded[run_id] & counts.keys())
        assert all(
            effect["is_reclaim"] for effect in effects if effect["attempt"] > EXECUTIONS[effect["step"]]
        )
        assert len({effect["external_key"] for effect in effects}) == len(EXECUTIONS)
        repeated |= {name for name, times in EXECUTIONS.items() if counts[name] > times}
    assert repeated == EXECUTIONS.keys(), "each was killed in the middle, and executed again"


async def test_processes_that_are_killed_one_after_the_other_end_one_run(
    processes: Processes, kernel: Kernel, check_run: Callable[[str], Awaitable[None]]
) -> None:
    """Each comes one point further than the last, which it took over from."""
    await processes.kill_each("on one run")
    (run_id,) = await runs_of(kernel, workflow_id="flow")
    await check_run(run_id)
    effects = [effect for effect in processes.effects(run_id) if effect["step"] in EXECUTIONS]
    assert len({effect["external_key"] for effect in effects}) == len(EXECUTIONS)
    attempts = [(effect["step"], effect["attempt"]) for effect in effects]
    assert len(set(attempts)) == len(attempts), "no attempt of a step is made twice"
