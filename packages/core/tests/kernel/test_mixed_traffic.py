"""Everything at once: claimers, workers, cancels and flushers on the same runs, in many interleavings."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from stagewright import Kernel, RetryPolicy, StageContext, Status, define_stage, define_workflow
from stagewright.commands import (
    CancelRun,
    ClaimJobs,
    ClaimPendingRuns,
    CreateRun,
    ExecuteJob,
    FlushOutbox,
    JobRef,
    TransitionRun,
)
from stagewright.memory import InMemoryDatabase
from stagewright.status import TERMINAL_RUN_STATUSES
from stagewright.testing import CollectingEventSink, FakeClock

MakeKernel = Callable[..., Kernel]
Told = Callable[[Kernel, str], Awaitable[list[str]]]

pytestmark = pytest.mark.parametrize("transport", ["enlisting", "separate"], indirect=True)

ENDINGS = {
    Status.COMPLETED: "workflow:completed",
    Status.FAILED: "workflow:failed",
    Status.CANCELLED: "workflow:cancelled",
}


async def flaky(ctx: StageContext[Any]) -> Any:
    for _ in range(ctx.input % 4):
        await asyncio.sleep(0)
    if ctx.input % 5 == ctx.attempt or ctx.input == 7:
        raise ValueError(f"attempt {ctx.attempt}")
    return ctx.input


async def gather(ctx: StageContext[Any]) -> Any:
    return sum(ctx.input.values())


RETRY = RetryPolicy(3)
PARALLEL = [define_stage(name, flaky, input=Any, output=Any, retry=RETRY) for name in ("b", "c", "d")]
WORKFLOW = (
    define_workflow("flow", input=Any)
    .stage("a", flaky, input=Any, output=Any, retry=RETRY)
    .parallel(*PARALLEL)
    .stage("e", gather, input=Any, output=Any)
    .build()
)


async def check(
    kernel: Kernel, number: int, run_id: str, story: list[str], delivered: list[int | None], cancelled: bool
) -> None:
    run = await kernel.runs.get(run_id)
    assert run is not None
    assert (run.status is Status.CANCELLED) is cancelled
    if not cancelled:
        assert run.status is (Status.FAILED if number == 7 else Status.COMPLETED)
        assert run.output == (None if number == 7 else 3 * number)
    assert [kind for kind in story if kind in ENDINGS.values()] == [ENDINGS[run.status]]
    assert delivered == list(range(1, len(story) + 1))


@pytest.mark.parametrize("seed", range(8))
async def test_mixed_traffic_leaves_every_run_ended_and_told_truly(
    make_kernel: MakeKernel,
    sink: CollectingEventSink,
    clock: FakeClock,
    database: InMemoryDatabase,
    told: Told,
    seed: int,
) -> None:
    random = Random(seed)
    kernel = make_kernel(WORKFLOW, spill_threshold_bytes=0)
    runs = [(await kernel.dispatch(CreateRun("flow", number))).run_id for number in range(20)]
    open_runs = set(runs)
    cancelled: set[str] = set()

    async def dawdle() -> None:
        for _ in range(random.randrange(12)):
            await asyncio.sleep(0)

    async def worker(name: str) -> None:
        while open_runs:
            await kernel.dispatch(ClaimPendingRuns(name, max_claims=random.randrange(1, 4)))
            for job in (await kernel.dispatch(ClaimJobs(name, limit=2))).jobs:
                reference = JobRef(job.job_id, job.fence)
                await kernel.dispatch(ExecuteJob(job.run_id, "flow", job.stage_id, job=reference))
                await kernel.dispatch(TransitionRun(job.run_id))
            await dawdle()

    async def canceller() -> None:
        for run_id in random.sample(runs, 6):
            await dawdle()
            if (await kernel.dispatch(CancelRun(run_id))).cancelled:
                cancelled.add(run_id)

    async def flusher() -> None:
        while open_runs:
            await kernel.dispatch(FlushOutbox(random.randrange(1, 20)))
            await dawdle()

    async def watcher() -> None:
        while open_runs:
            clock.advance("1s")
            for run_id in list(open_runs):
                run = await kernel.runs.get(run_id)
                if run is not None and run.status in TERMINAL_RUN_STATUSES:
                    open_runs.discard(run_id)

    tasks = [worker(f"w{number}") for number in range(4)]
    async with asyncio.timeout(60):
        await asyncio.gather(*tasks, canceller(), flusher(), flusher(), watcher())
    while (await kernel.dispatch(FlushOutbox())).published:
        pass
    for number, run_id in enumerate(runs):
        delivered = [event.sequence for event in sink.events if event.run_id == run_id]
        await check(kernel, number, run_id, await told(kernel, run_id), delivered, run_id in cancelled)
    assert database.locks.is_idle
