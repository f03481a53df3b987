"""What a stage of many durable steps costs, done and replayed: `python -m benchmarks.step_replay`."""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from stagewright import Kernel, StageContext, Workflow, define_stage, define_workflow, open_kernel
from stagewright.commands import (
    ClaimJobs,
    ClaimPendingRuns,
    CreateRun,
    ExecuteJob,
    JobRef,
    PollSuspendedStages,
)
from stagewright_test_support.servers import PostgresServer

__all__ = ["Cost", "main", "measure_replay", "open_steps"]

_SIZES = (100, 300, 1_000, 3_000)
_WARM_UP = 20
_PAUSE = 0.1


@dataclass(frozen=True, slots=True)
class Cost:
    """What so many steps took.

    Attributes:
        steps: How many.
        first: Milliseconds of the invocation that did them.
        replay: Milliseconds of an invocation that found them done.
    """

    steps: int
    first: float
    replay: float


def _workflow() -> Workflow:
    async def body(ctx: StageContext[int]) -> int:
        total = 0
        for number in range(ctx.input):
            total += await ctx.step.run(f"step-{number}", lambda number=number: _work(number), returns=int)
        await ctx.step.sleep("pause", _PAUSE)
        return total

    return define_workflow("steps", input=int).pipe(define_stage("s", body, input=int, output=int)).build()


async def _work(number: int) -> int:
    return number


async def _execute(kernel: Kernel, run_id: str) -> float:
    (job,) = (await kernel.dispatch(ClaimJobs("worker"))).jobs
    reference = JobRef(job.job_id, job.fence)
    began = time.perf_counter()
    await kernel.dispatch(ExecuteJob(run_id, "steps", "s", job=reference))
    return (time.perf_counter() - began) * 1e3


async def measure_replay(url: str, sizes: Sequence[int]) -> list[Cost]:
    """Do so many steps in one stage, and replay them.

    Args:
        url: The database.
        sizes: How many steps, each in a run of its own.
    """
    async with open_steps(url) as measure:
        await measure(_WARM_UP)
        return [await measure(size) for size in sizes]


@asynccontextmanager
async def open_steps(url: str) -> AsyncIterator[Callable[[int], Awaitable[Cost]]]:
    """What does so many steps in one stage, and replays them, in an empty database; the first time warms it up."""
    async with open_kernel([_workflow()], url, create_schema=True) as kernel:
        yield partial(_measure, kernel)


async def _measure(kernel: Kernel, size: int) -> Cost:
    run_id = (await kernel.dispatch(CreateRun("steps", size))).run_id
    await kernel.dispatch(ClaimPendingRuns("worker"))
    first = await _execute(kernel, run_id)
    await asyncio.sleep(_PAUSE * 1.2)
    assert (await kernel.dispatch(PollSuspendedStages())).resumed == 1
    cost = Cost(size, first, await _execute(kernel, run_id))
    run = await kernel.runs.get(run_id)
    assert run is not None
    assert run.output == sum(range(size)), run.error
    return cost


def _rows(database: str, rounds: Sequence[Sequence[Cost]]) -> list[str]:
    rows = []
    for costs in zip(*rounds, strict=True):
        steps = costs[0].steps
        first = statistics.median(cost.first for cost in costs)
        replay = statistics.median(cost.replay for cost in costs)
        each = f"{first:.0f} | {first / steps:.2f} | {replay:.1f} | {replay / steps * 1e3:.0f}"
        rows.append(f"| {database} | {steps:,} | {each} |")
    return rows


def main(arguments: Sequence[str]) -> None:
    """Measure on PostgreSQL and SQLite and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.step_replay")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured")
    rounds: int = parser.parse_args(arguments).rounds
    rows = [
        "| database | steps | done, ms | ms a step | replayed, ms | µs a step |",
        "|---|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as name, PostgresServer.start(durable=True) as server:
        urls = {
            "PostgreSQL": server.create_database("steps"),
            "SQLite": f"sqlite:///{Path(name) / 'steps.db'}",
        }
        for database, url in urls.items():
            measured = [asyncio.run(measure_replay(url, _SIZES)) for _ in range(rounds)]
            rows += _rows(database, measured)
    sys.stdout.write("\n".join(rows) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
