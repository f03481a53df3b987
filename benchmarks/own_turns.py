"""The turns of Stagewright and of the floor, each called in a process of its own."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.contender import STAGES, WORKFLOW, Contender
from benchmarks.draining import drain
from benchmarks.figures import Figures, Request, Stopwatch
from benchmarks.idle_latency import COMPLETED, FIRST_LINE, measure_latency, measure_resident
from benchmarks.postgres_floor import open_floor
from benchmarks.run_tables import RunTables, open_tables
from benchmarks.stagewright_runs import open_stagewright
from benchmarks.step_replay import measure_replay
from benchmarks.three_stage_flow import first_input

from stagewright import Kernel, StageContext, Workflow, define_workflow, open_kernel
from stagewright.commands import CreateRun
from stagewright_host_node import NodeHost

__all__ = [
    "backlog",
    "floor",
    "hosted_three_stages",
    "idle_first_line",
    "idle_three_stages",
    "import_time",
    "resident",
    "steps",
    "three_stages",
]

_PRODUCERS = 16
_LOOK_AGAIN = 0.005
_PATIENCE = 60


def floor(request: Request) -> Figures:
    """Three-stage runs by asyncpg alone; `batched` says how jobs are claimed."""

    async def measure() -> Figures:
        # The kernel makes the tables.
        async with (
            open_stagewright(request.url),
            open_floor(request.url, connections=request.slots) as contender,
        ):
            return await _drain(contender, request)

    return asyncio.run(measure())


def three_stages(request: Request) -> Figures:
    """Three-stage runs by a kernel's commands, in the loops of the floor; `batched` as there."""

    async def measure() -> Figures:
        async with open_stagewright(request.url) as contender:
            return await _drain(contender, request)

    return asyncio.run(measure())


async def _drain(contender: Contender, request: Request) -> Figures:
    batched = bool(request.options.get("batched"))
    await drain(contender, runs=2 * request.slots, slots=request.slots, batched=batched)
    taken = await drain(contender, runs=request.size, slots=request.slots, batched=batched)
    return Figures(taken.runs, taken.seconds, taken.cpu_seconds)


def hosted_three_stages(request: Request) -> Figures:
    """Three-stage runs by a worker as it is shipped, created by the same process meanwhile."""

    async def measure() -> Figures:
        ends = _Ends()
        workflow = _counted(WORKFLOW, STAGES, ends)
        async with (
            open_kernel(workflow, request.url, create_schema=True) as kernel,
            open_tables(request.url) as tables,
            NodeHost(kernel, concurrency=request.slots, handle_signals=False),
        ):
            await _create_and_wait(kernel, tables, ends, 2 * request.slots)
            await tables.clear()
            watch = Stopwatch()
            await _create_and_wait(kernel, tables, ends, request.size)
            return watch.stop(request.size)

    return asyncio.run(measure())


def backlog(request: Request) -> Figures:
    """Single-stage runs that wait when the worker is started."""

    async def measure() -> Figures:
        ends = _Ends()
        workflow = _counted(WORKFLOW, STAGES[:1], ends)
        async with (
            open_kernel(workflow, request.url, create_schema=True) as kernel,
            open_tables(request.url) as tables,
        ):
            await _create(kernel, request.size)
            watch = Stopwatch()
            async with NodeHost(kernel, concurrency=request.slots, handle_signals=False):
                await _wait(tables, ends, request.size)
                return watch.stop(request.size)

    return asyncio.run(measure())


class _Ends:
    """Counts the bodies of last stages that were called, so that tables are looked at only when that is worth it."""

    def __init__(self) -> None:
        self.bodies = 0
        self.expected = 0
        self.were_reached = asyncio.Event()

    def expect(self, bodies: int) -> None:
        self.expected = bodies
        self.bodies = 0
        self.were_reached.clear()

    def count(self) -> None:
        self.bodies += 1
        if self.bodies >= self.expected:
            self.were_reached.set()


def _counted(workflow_id: str, stages: tuple[str, ...], ends: _Ends) -> Workflow:
    async def add_one(ctx: StageContext[Any]) -> Any:
        return {"amount": ctx.input["amount"] + 1}

    async def add_one_and_count(ctx: StageContext[Any]) -> Any:
        ends.count()
        return {"amount": ctx.input["amount"] + 1}

    builder = define_workflow(workflow_id, input=Any)
    for stage_id in stages[:-1]:
        builder = builder.stage(stage_id, add_one, input=Any, output=Any)
    return builder.stage(stages[-1], add_one_and_count, input=Any, output=Any).build()


async def _create_and_wait(kernel: Kernel, tables: RunTables, ends: _Ends, runs: int) -> None:
    ends.expect(runs)
    await _create(kernel, runs)
    await _wait_for_rows(tables, ends, runs)


async def _create(kernel: Kernel, runs: int) -> None:
    async def produce(count: int) -> None:
        for _ in range(count):
            await kernel.dispatch(CreateRun(WORKFLOW, first_input()))

    async with asyncio.TaskGroup() as tasks:
        for number in range(_PRODUCERS):
            tasks.create_task(produce(len(range(number, runs, _PRODUCERS))))


async def _wait(tables: RunTables, ends: _Ends, runs: int) -> None:
    ends.expected = runs
    await _wait_for_rows(tables, ends, runs)


async def _wait_for_rows(tables: RunTables, ends: _Ends, runs: int) -> None:
    await ends.were_reached.wait()
    # The last bodies were called; that their outcomes are committed is a matter of a moment.
    async with asyncio.timeout(_PATIENCE):
        while (await tables.count())["runs"] < runs:  # noqa: ASYNC110 - what the database has rings no bell
            await asyncio.sleep(_LOOK_AGAIN)


def steps(request: Request) -> Figures:
    """One stage of so many steps; `replay_ms` is what an invocation takes that finds them done."""
    (cost,) = asyncio.run(measure_replay(request.url, [request.size]))
    return Figures(cost.steps, cost.first / 1e3, more={"replay_ms": cost.replay})


def idle_first_line(request: Request) -> Figures:
    """Milliseconds from `CreateRun` to the first line of the body in another process."""
    return _idle(request, FIRST_LINE)


def idle_three_stages(request: Request) -> Figures:
    """Milliseconds from `CreateRun` to COMPLETED, by another process."""
    return _idle(request, COMPLETED)


def _idle(request: Request, what: str) -> Figures:
    measured = asyncio.run(measure_latency(request.url, Path(request.folder), request.size, [what]))
    return Figures(samples=tuple(measured[what]))


def resident(request: Request) -> Figures:
    """MB of an idle worker."""
    return Figures(samples=(asyncio.run(measure_resident(request.url, Path(request.folder))),))


def import_time(request: Request) -> Figures:
    """Milliseconds to import all public names of the package `of`, compiled, each time in a new process."""
    code = "import time; began, cpu = time.perf_counter(), time.process_time(); "
    # Names may be imported when they are used.
    code += f"from {request.options['of']} import *; print(time.perf_counter() - began, time.process_time() - cpu)"
    # The first one compiles.
    command = [sys.executable, "-c", code]
    told = [subprocess.check_output(command, text=True) for _ in range(1 + request.size)]
    taken = [tuple(map(float, one.split())) for one in told[1:]]
    samples = tuple(1e3 * wall for wall, _ in taken)
    return Figures(request.size, cpu_seconds=sum(cpu for _, cpu in taken), samples=samples)
