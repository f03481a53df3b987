"""With a transport in the same database an outcome, its acknowledgement and the run's next step are one."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Status, Workflow
from stagewright.commands import ExecuteJob, JobRef, TransitionRun
from stagewright.memory import InMemoryJobTransport
from stagewright.records import DequeuedJob, Fence
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
StartRun = Callable[..., Awaitable[str]]
TakeJob = Callable[[Kernel], Awaitable[DequeuedJob]]
HoldAt = Callable[..., tuple[asyncio.Event, asyncio.Event]]


async def echo(ctx: StageContext[Any]) -> Any:
    return ctx.input


@pytest.mark.guarantee("kernel.fences-refuse-strangers")
@pytest.mark.parametrize("fence", ["deliveries", "started_at", "job_id"])
async def test_an_outcome_under_a_wrong_fence_is_not_kept(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    transport: InMemoryJobTransport,
    statuses: Callable[[Kernel, str], Awaitable[dict[str, Status]]],
    clock: FakeClock,
    fence: str,
) -> None:
    kernel = make_kernel(flow_of(echo))
    run_id = await start_run(kernel)
    job = await take_job(kernel)
    right, moved = job.fence, clock.advance("1ms")
    wrong = {
        "deliveries": JobRef(job.job_id, Fence(started_at=right.started_at, deliveries=2)),
        "started_at": JobRef(job.job_id, Fence(started_at=moved, deliveries=1)),
        "job_id": JobRef("another", right),
    }[fence]
    result = await kernel.dispatch(ExecuteJob(run_id, "flow", "s1", job=wrong))
    assert (result.outcome, result.ghost, result.ghost_reason) == ("failed", True, "orphan")
    assert (await statuses(kernel, run_id))["s1"] is Status.RUNNING
    (record,) = await transport.get_jobs_by_run(run_id)
    assert record.status is Status.RUNNING
    assert (
        await kernel.dispatch(ExecuteJob(run_id, "flow", "s1", job=JobRef(job.job_id, job.fence)))
    ).outcome == "completed"


async def test_the_run_has_moved_on_with_the_outcome_and_a_later_transition_finds_nothing_to_do(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    statuses: Callable[[Kernel, str], Awaitable[dict[str, Status]]],
) -> None:
    kernel = make_kernel(flow_of(echo, echo))
    run_id = await start_run(kernel, 1)
    for stage_id in ("s1", "s2"):
        job = await take_job(kernel)
        assert job.stage_id == stage_id
        await kernel.dispatch(ExecuteJob(run_id, "flow", stage_id, job=JobRef(job.job_id, job.fence)))
        assert (await kernel.dispatch(TransitionRun(run_id))).action == "noop"
    assert await statuses(kernel, run_id) == {"s1": Status.COMPLETED, "s2": Status.COMPLETED}
    run = await kernel.runs.get(run_id)
    assert run is not None
    assert run.status is Status.COMPLETED


async def test_nothing_of_an_outcome_is_seen_before_all_of_it(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    statuses: Callable[[Kernel, str], Awaitable[dict[str, Status]]],
    transport: InMemoryJobTransport,
    hold_at: HoldAt,
) -> None:
    kernel = make_kernel(flow_of(echo, echo))
    run_id = await start_run(kernel)
    job = await take_job(kernel)
    reached, go = hold_at("commit")
    executing = asyncio.create_task(
        kernel.dispatch(ExecuteJob(run_id, "flow", "s1", job=JobRef(job.job_id, job.fence)))
    )
    await reached.wait()
    assert await statuses(kernel, run_id) == {"s1": Status.RUNNING}
    assert [one.status for one in await transport.get_jobs_by_run(run_id)] == [Status.RUNNING]
    go.set()
    await executing
    assert await statuses(kernel, run_id) == {"s1": Status.COMPLETED, "s2": Status.PENDING}
    jobs = [one.status for one in await transport.get_jobs_by_run(run_id)]
    assert jobs == [Status.COMPLETED, Status.PENDING]


async def test_an_outcome_that_can_not_be_written_leaves_the_stage_to_whoever_comes_next(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    statuses: Callable[[Kernel, str], Awaitable[dict[str, Status]]],
    transport: InMemoryJobTransport,
    clock: FakeClock,
    fail_at: Callable[..., None],
) -> None:
    kernel = make_kernel(flow_of(echo))
    run_id = await start_run(kernel, 7)
    job = await take_job(kernel)
    fail_at("commit", error=ConnectionError("connection lost"))
    with pytest.raises(ConnectionError):
        await kernel.dispatch(ExecuteJob(run_id, "flow", "s1", job=JobRef(job.job_id, job.fence)))
    assert await statuses(kernel, run_id) == {"s1": Status.RUNNING}
    clock.advance("1m")
    await transport.release_stale(timedelta(seconds=45))
    again = await take_job(kernel)
    result = await kernel.dispatch(ExecuteJob(run_id, "flow", "s1", job=JobRef(again.job_id, again.fence)))
    assert result.output == 7
