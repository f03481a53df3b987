"""Jobs in a queue elsewhere: whoever writes down late that it has one does so only for a job that is still wanted."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Status, Workflow
from stagewright.commands import (
    CancelRun,
    ClaimPendingRuns,
    CreateRun,
    ExecuteJobResult,
    FlushOutbox,
    PollSuspendedStages,
    PurgeRuns,
    RedriveRun,
)
from stagewright.errors import AfterCommitError, TransientError
from stagewright.kernel.commands.job_enqueue_owed import EnqueueOwedJobs, EnqueueOwedJobsResult
from stagewright.memory import InMemoryPersistence
from stagewright.records import DequeuedJob, RunRecord, StoredStage
from stagewright.testing import FakeClock

TakeJob = Callable[..., Awaitable[DequeuedJob]]
Execute = Callable[..., Awaitable[ExecuteJobResult]]
StageOf = Callable[[str], Awaitable[StoredStage]]
HoldAt = Callable[..., tuple[asyncio.Event, asyncio.Event]]
Finish = Callable[[Kernel, str], Awaitable[RunRecord]]

pytestmark = pytest.mark.parametrize("transport", ["separate"], indirect=True)


async def nap(ctx: StageContext[Any]) -> Any:
    await ctx.step.sleep("nap", "1m")
    return ctx.input


@pytest.fixture
def kernel(make_kernel: Callable[..., Kernel], flow_of: Callable[..., Workflow]) -> Kernel:
    return make_kernel(flow_of(nap))


@pytest.fixture
def stage_of(persistence: InMemoryPersistence) -> StageOf:
    async def read(run_id: str) -> StoredStage:
        (stage,) = await persistence.get_stages_by_run(run_id)
        return stage

    return read


@pytest.mark.guarantee("kernel.owed-jobs-come-within-seconds")
async def test_a_job_that_is_owed_anew_stays_owed(
    kernel: Kernel,
    take_job: TakeJob,
    execute: Execute,
    stage_of: StageOf,
    hold_at: HoldAt,
    fail_at: Callable[..., None],
    finish: Finish,
    clock: FakeClock,
) -> None:
    run_id = (await kernel.dispatch(CreateRun("flow"))).run_id
    reached, go = hold_at("update_stage", nth=1)
    claiming = asyncio.create_task(kernel.dispatch(ClaimPendingRuns("w")))
    await reached.wait()
    assert (await execute(kernel, await take_job(kernel))).outcome == "suspended"
    clock.advance("1m")
    fail_at("resume", error=TransientError("the queue is gone"))
    with pytest.raises(AfterCommitError):
        await kernel.dispatch(PollSuspendedStages())
    go.set()
    assert len((await claiming).claimed) == 1
    owed = await stage_of(run_id)
    assert (owed.status, owed.next_poll_at, owed.job_enqueued_at) == (Status.SUSPENDED, None, None)
    clock.advance("5s")
    assert await kernel.dispatch(EnqueueOwedJobs()) == EnqueueOwedJobsResult(1)
    assert (await finish(kernel, run_id)).status is Status.COMPLETED


async def test_a_stage_that_has_ended_meanwhile_is_left_as_it_is(
    kernel: Kernel, stage_of: StageOf, hold_at: HoldAt
) -> None:
    run_id = (await kernel.dispatch(CreateRun("flow"))).run_id
    reached, go = hold_at("update_stage", nth=1)
    claiming = asyncio.create_task(kernel.dispatch(ClaimPendingRuns("w")))
    await reached.wait()
    await kernel.dispatch(CancelRun(run_id))
    ended = await stage_of(run_id)
    go.set()
    await claiming
    assert await stage_of(run_id) == ended


async def test_a_run_that_was_purged_meanwhile_is_no_failure(
    kernel: Kernel, hold_at: HoldAt, clock: FakeClock
) -> None:
    run_id = (await kernel.dispatch(CreateRun("flow"))).run_id
    reached, go = hold_at("update_stage", nth=1)
    claiming = asyncio.create_task(kernel.dispatch(ClaimPendingRuns("w")))
    await reached.wait()
    await kernel.dispatch(CancelRun(run_id))
    await kernel.dispatch(FlushOutbox())
    assert (await kernel.dispatch(PurgeRuns(clock.now()))).purged == 1
    go.set()
    assert len((await claiming).claimed) == 1
    assert await kernel.runs.get(run_id) is None


async def test_the_job_of_a_redriven_stage_is_written_down(kernel: Kernel, stage_of: StageOf) -> None:
    run_id = (await kernel.dispatch(CreateRun("flow"))).run_id
    await kernel.dispatch(ClaimPendingRuns("w"))
    await kernel.dispatch(CancelRun(run_id))
    await kernel.dispatch(RedriveRun(run_id))
    stage = await stage_of(run_id)
    assert (stage.status, stage.attempt) == (Status.PENDING, 2)
    assert stage.job_enqueued_at is not None
