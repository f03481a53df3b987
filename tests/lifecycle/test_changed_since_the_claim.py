"""Runs in which something happens between the claim of a job and its outcome, which expects them unchanged."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Status, define_stage, define_workflow
from stagewright.annotations import Actor
from stagewright.commands import CancelRun, ClaimJobs, ClaimPendingRuns, CreateRun, ExecuteJobResult
from stagewright.hosting import run_job
from stagewright.records import DequeuedJob

OpenStore = Callable[..., Awaitable[Kernel]]


class Gate:
    """A body that waits until it is let go."""

    def __init__(self) -> None:
        self.inside, self.go = asyncio.Event(), asyncio.Event()

    async def body(self, ctx: StageContext[Any]) -> int:
        self.inside.set()
        await self.go.wait()
        return 1


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
async def kernel(open_store: OpenStore, gate: Gate) -> Kernel:
    first = define_stage("first", gate.body, input=Any, output=int)

    async def double(ctx: StageContext[int]) -> int:
        return 2 * ctx.input

    second = define_stage("second", double, input=int, output=int)
    return await open_store(define_workflow("flow", input=Any).pipe(first).pipe(second).build())


async def claimed(kernel: Kernel) -> DequeuedJob:
    await kernel.dispatch(CreateRun("flow"))
    await kernel.dispatch(ClaimPendingRuns("w"))
    (job,) = (await kernel.dispatch(ClaimJobs("w"))).jobs
    assert job.loaded is not None
    return job


async def begun(kernel: Kernel, gate: Gate) -> tuple[DequeuedJob, "asyncio.Task[ExecuteJobResult]"]:
    job = await claimed(kernel)
    executing = asyncio.create_task(run_job(kernel, job))
    await gate.inside.wait()
    return job, executing


async def sequences(kernel: Kernel, run_id: str) -> list[int | None]:
    return [event.sequence for event in await kernel.runs.events(run_id)]


@pytest.mark.guarantee("kernel.outcomes-survive-what-happens-meanwhile")
async def test_an_outcome_is_recorded_although_something_was_told_of_the_run(
    kernel: Kernel, gate: Gate
) -> None:
    job, executing = await begun(kernel, gate)
    await kernel.annotations.attach(
        job.run_id, {"note": "meanwhile"}, actor=Actor(kind="person"), emit_event=True
    )
    gate.go.set()
    assert (await executing).outcome == "completed"
    (next_job,) = (await kernel.dispatch(ClaimJobs("w"))).jobs
    assert (await run_job(kernel, next_job)).output == 2
    run = await kernel.runs.get(job.run_id)
    assert run is not None
    assert (run.status, run.output) == (Status.COMPLETED, 2)
    told = await sequences(kernel, job.run_id)
    assert told == list(range(1, len(told) + 1))


@pytest.mark.guarantee("kernel.outcomes-survive-what-happens-meanwhile")
async def test_an_outcome_of_a_run_that_was_cancelled_is_discarded(kernel: Kernel, gate: Gate) -> None:
    job, executing = await begun(kernel, gate)
    assert (await kernel.dispatch(CancelRun(job.run_id))).cancelled
    gate.go.set()
    result = await executing
    assert (result.ghost, result.ghost_reason) == (True, "orphan")
    run = await kernel.runs.get(job.run_id)
    assert run is not None
    assert (run.status, run.output) == (Status.CANCELLED, None)
    assert [stage.status for stage in await kernel.runs.stages(job.run_id)] == [Status.CANCELLED]


@pytest.mark.guarantee("kernel.outcomes-survive-what-happens-meanwhile")
async def test_an_outcome_of_a_delivery_that_was_lost_is_discarded_whole(kernel: Kernel, gate: Gate) -> None:
    job, executing = await begun(kernel, gate)
    before = await kernel.ports.persistence.load_runs([job.run_id])
    await asyncio.sleep(0.02)
    sweep = await kernel.ports.job_transport.release_stale(timedelta(milliseconds=10))
    assert [one.id for one in sweep.released] == [job.job_id]
    gate.go.set()
    result = await executing
    assert (result.ghost, result.ghost_reason) == (True, "orphan")
    assert await kernel.ports.persistence.load_runs([job.run_id]) == before
    (again,) = (await kernel.dispatch(ClaimJobs("w"))).jobs
    assert (await run_job(kernel, again)).outcome == "completed"
