"""One delivery of a job is executed twice, or long after the next one: it changes nothing that isn't its own."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Status, Workflow
from stagewright.commands import ExecuteJob, ExecuteJobResult, JobRef
from stagewright.hosting import run_job
from stagewright.memory import InMemoryJobTransport
from stagewright.records import DequeuedJob, RunRecord
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
StartRun = Callable[..., Awaitable[str]]
TakeJob = Callable[[Kernel], Awaitable[DequeuedJob]]
Execute = Callable[..., Awaitable[ExecuteJobResult]]
Resume = Callable[[Kernel, str], Awaitable[None]]
Finish = Callable[[Kernel, str], Awaitable[RunRecord]]

pytestmark = pytest.mark.parametrize("transport", ["enlisting", "separate"], indirect=True)


async def naps(ctx: StageContext[Any]) -> Any:
    await ctx.step.sleep("nap", "1m")
    return "rested"


async def asked_again(kernel: Kernel, job: DequeuedJob) -> ExecuteJobResult:
    return await kernel.dispatch(
        ExecuteJob(job.run_id, job.workflow_id, job.stage_id, job=JobRef(job.job_id, job.fence))
    )


@pytest.mark.guarantee("kernel.old-deliveries-start-nothing")
async def test_an_old_delivery_does_not_take_up_a_suspended_stage_whose_time_has_come(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    resume: Resume,
    finish: Finish,
    clock: FakeClock,
    statuses: Callable[[Kernel, str], Awaitable[dict[str, Status]]],
) -> None:
    """Nobody would ever wake its job again, and the run would stand still."""
    kernel = make_kernel(flow_of(naps))
    run_id = await start_run(kernel)
    job = await take_job(kernel)
    await execute(kernel, job)
    clock.advance("2m")
    late = await asked_again(kernel, job)
    assert (late.ghost, late.ghost_reason) == (True, "orphan")
    assert await statuses(kernel, run_id) == {"s1": Status.SUSPENDED}
    await resume(kernel, run_id)
    assert (await finish(kernel, run_id)).output == "rested"


@pytest.mark.guarantee("kernel.old-deliveries-start-nothing")
async def test_an_old_delivery_does_not_disturb_the_worker_that_has_the_job_by_now(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    transport: InMemoryJobTransport,
    clock: FakeClock,
) -> None:
    began, go, bodies = asyncio.Event(), asyncio.Event(), list[int]()

    async def body(ctx: StageContext[Any]) -> Any:
        bodies.append(ctx.attempt)
        began.set()
        await go.wait()
        return "done"

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    old = await take_job(kernel)
    clock.advance("1m")
    await transport.release_stale(timedelta(seconds=45))
    job = await take_job(kernel)
    executing = asyncio.create_task(run_job(kernel, job))
    await began.wait()
    go.set()
    late = await run_job(kernel, old)
    assert (late.ghost, late.ghost_reason) == (True, "orphan")
    assert (await executing).outcome == "completed"
    run = await kernel.runs.get(run_id)
    assert run is not None
    assert (run.status, run.output) == (Status.COMPLETED, "done")
    # Where the claim starts stages, bodies are fenced at their end alone.
    assert len(bodies) == (2 if kernel.ports.transport_enlists else 1)


async def test_a_delivery_that_comes_twice_at_once_leaves_a_run_that_goes_on(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    finish: Finish,
    clock: FakeClock,
) -> None:
    """The execution that is overtaken must not take the job away from the other one, which may be lost yet."""
    began, go = [asyncio.Event(), asyncio.Event()], asyncio.Event()
    bodies: list[int] = []

    async def body(ctx: StageContext[Any]) -> Any:
        bodies.append(ctx.attempt)
        if len(bodies) <= len(began):
            began[len(bodies) - 1].set()
            await go.wait()
        return "done"

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    job = await take_job(kernel)
    first = asyncio.create_task(run_job(kernel, job))
    await began[0].wait()
    second = asyncio.create_task(run_job(kernel, job))
    await began[1].wait()
    second.cancel()
    await asyncio.wait({second})
    go.set()
    await first
    clock.advance("2s")
    run = await finish(kernel, run_id)
    assert (run.status, run.output) == (Status.COMPLETED, "done")
