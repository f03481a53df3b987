"""The turns of Stagewright and of the floor, each called in a process of its own."""

import asyncio
from pathlib import Path
from typing import Any

from benchmarks.contender import FAN, STAGES, WORKFLOW, Contender
from benchmarks.draining import drain
from benchmarks.figures import Figures, Pace, Request, Stopwatch
from benchmarks.idle_latency import COMPLETED, FIRST_LINE, measure_latency, measure_resident
from benchmarks.postgres_floor import open_floor
from benchmarks.run_tables import RunTables, open_tables
from benchmarks.stagewright_runs import open_stagewright
from benchmarks.step_replay import open_steps
from benchmarks.steps_floor import open_steps_floor
from benchmarks.three_stage_flow import first_input

from stagewright import Kernel, StageContext, Workflow, define_stage, define_workflow, open_kernel
from stagewright.commands import CreateRun
from stagewright_host_node import NodeHost
from stagewright_host_node.garbage_collection import settle_garbage_collection

__all__ = [
    "backlog",
    "fan_out",
    "floor",
    "hosted_three_stages",
    "idle_first_line",
    "idle_three_stages",
    "resident",
    "steps",
    "steps_floor",
    "three_stages",
]

_PRODUCERS = 16
_WAITING_FIRST = 100
_STEPS_FIRST = 20
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
    pace = Pace(request, 2 * request.slots)
    while not pace.is_found:
        taken = await drain(contender, runs=pace.size, slots=request.slots, batched=batched)
        pace.note(Figures(taken.runs, taken.seconds, taken.cpu_seconds))
    return pace.figures


def hosted_three_stages(request: Request) -> Figures:
    """Three-stage runs by a worker as it is shipped, created by the same process meanwhile."""
    ends = _Ends()
    return _hosted(request, _counted(WORKFLOW, STAGES, ends), ends, warm_up=2 * request.slots)


def fan_out(request: Request) -> Figures:
    """Runs of stages side by side, in the same way; counted are the stages."""
    ends = _Ends(bodies_each=FAN)
    return _hosted(request, _fanned(ends), ends, warm_up=4)


def _hosted(request: Request, workflow: Workflow, ends: "_Ends", *, warm_up: int) -> Figures:
    async def measure() -> Figures:
        async with (
            open_kernel(workflow, request.url, create_schema=True) as kernel,
            open_tables(request.url) as tables,
            NodeHost(kernel, concurrency=request.slots, handle_signals=False),
        ):
            settle_garbage_collection()
            pace = Pace(request, warm_up)
            while not pace.is_found:
                await tables.clear()
                watch = Stopwatch()
                await _create_and_wait(kernel, tables, ends, pace.size)
                pace.note(watch.stop(pace.size * ends.bodies_each))
            return pace.figures

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
            settle_garbage_collection()
            pace = Pace(request, _WAITING_FIRST)
            while not pace.is_found:
                await tables.clear()
                pace.note(await _take_backlog(kernel, tables, ends, pace.size, request.slots))
            return pace.figures

    return asyncio.run(measure())


async def _take_backlog(kernel: Kernel, tables: RunTables, ends: "_Ends", runs: int, slots: int) -> Figures:
    await _create(kernel, runs)
    ends.expect(runs)
    watch = Stopwatch()
    async with NodeHost(kernel, concurrency=slots, handle_signals=False):
        await _wait_for_rows(tables, ends, runs)
        return watch.stop(runs)


class _Ends:
    """Counts the bodies of last stages that were called, so that tables are looked at only when that is worth it."""

    def __init__(self, *, bodies_each: int = 1) -> None:
        self.bodies_each = bodies_each
        self.bodies = 0
        self.expected = 0
        self.were_reached = asyncio.Event()

    def expect(self, runs: int) -> None:
        self.expected = runs * self.bodies_each
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


def _fanned(ends: _Ends) -> Workflow:
    async def add_one_and_count(ctx: StageContext[Any]) -> Any:
        ends.count()
        return {"amount": ctx.input["amount"] + 1}

    sides = (
        define_stage(f"side-{number}", add_one_and_count, input=Any, output=Any) for number in range(FAN)
    )
    return define_workflow(WORKFLOW, input=Any).parallel(*sides).build()


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


async def _wait_for_rows(tables: RunTables, ends: _Ends, runs: int) -> None:
    await ends.were_reached.wait()
    # The last bodies were called; that their outcomes are committed is a matter of a moment.
    async with asyncio.timeout(_PATIENCE):
        while (await tables.count())["runs"] < runs:  # noqa: ASYNC110 - what the database has rings no bell
            await asyncio.sleep(_LOOK_AGAIN)


def steps(request: Request) -> Figures:
    """One stage of so many steps; `replay_ms` is what an invocation takes that finds them done."""

    async def measure() -> Figures:
        pace = Pace(request, _STEPS_FIRST)
        async with open_steps(request.url) as take:
            while not pace.is_found:
                cost = await take(pace.size)
                pace.note(Figures(cost.steps, cost.first / 1e3, more={"replay_ms": cost.replay}))
        return pace.figures

    return asyncio.run(measure())


def steps_floor(request: Request) -> Figures:
    """The two writes of each of so many steps, by asyncpg alone."""

    async def measure() -> Figures:
        pace = Pace(request, _STEPS_FIRST)
        # The kernel makes the tables.
        async with open_steps(request.url), open_steps_floor(request.url) as take:
            while not pace.is_found:
                watch = Stopwatch()
                assert await take(pace.size) == sum(range(pace.size))
                pace.note(watch.stop(pace.size))
        return pace.figures

    return asyncio.run(measure())


def idle_first_line(request: Request) -> Figures:
    """Milliseconds from `CreateRun` to the first line of the body in another process."""
    return _idle(request, FIRST_LINE)


def idle_three_stages(request: Request) -> Figures:
    """Milliseconds from `CreateRun` to COMPLETED, by another process."""
    return _idle(request, COMPLETED)


def _idle(request: Request, what: str) -> Figures:
    folder = Path(request.folder)
    measured = asyncio.run(
        measure_latency(request.url, folder, request.size, [what], seconds=request.seconds)
    )
    return Figures(samples=tuple(measured[what]))


def resident(request: Request) -> Figures:
    """MB of an idle worker."""
    return Figures(samples=(asyncio.run(measure_resident(request.url, Path(request.folder))),))
