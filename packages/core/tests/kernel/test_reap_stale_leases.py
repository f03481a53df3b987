"""`lease.reapStale`: lost workers are replaced, and what can't be is told with its reason at once."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from stagewright import Kernel, RetryPolicy, StageContext, Status, Workflow, define_stage, define_workflow
from stagewright.commands import (
    ClaimJobs,
    ExecuteJobResult,
    ReapStaleLeases,
    ReapStaleLeasesResult,
    ReapStuckRuns,
    ReapStuckRunsResult,
)
from stagewright.errors import InvalidCommandError, TransientError
from stagewright.memory import InMemoryJobTransport, InMemoryPersistence
from stagewright.records import DequeuedJob, RunRecord, StagePatch
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
StartRun = Callable[..., Awaitable[str]]
TakeJob = Callable[..., Awaitable[DequeuedJob]]
Execute = Callable[..., Coroutine[Any, Any, ExecuteJobResult]]
Finish = Callable[[Kernel, str], Awaitable[RunRecord]]
Told = Callable[[Kernel, str], Awaitable[list[str]]]
Statuses = Callable[[Kernel, str], Awaitable[dict[str, Status]]]
HoldAt = Callable[..., tuple[asyncio.Event, asyncio.Event]]
FailAt = Callable[..., None]

pytestmark = pytest.mark.parametrize("transport", ["enlisting", "separate"], indirect=True)

NOTHING = ReapStaleLeasesResult(0, 0)
TWICE = RetryPolicy(max_worker_losses=2)


async def echo(ctx: StageContext[Any]) -> Any:
    return ctx.input


@pytest.fixture
def kernel(make_kernel: MakeKernel, flow_of: FlowOf) -> Kernel:
    return make_kernel(flow_of(echo, retry=TWICE))


async def reap(kernel: Kernel, cap: str | None = None) -> ReapStaleLeasesResult:
    return await kernel.dispatch(ReapStaleLeases("45s", absolute_timeout=cap))


async def run_of(kernel: Kernel, run_id: str) -> RunRecord:
    run = await kernel.runs.get(run_id)
    assert run is not None
    return run


async def begin(kernel: Kernel, job: DequeuedJob) -> None:
    """Phase 1, where the claim didn't do it."""
    if not kernel.ports.transport_enlists:
        stage = (await kernel.ports.persistence.load_runs([job.run_id]))[0].stages[0]
        now = kernel.ports.clock.now()
        running = StagePatch(updated_at=now, status=Status.RUNNING, started_at=now)
        await kernel.ports.persistence.update_stage(stage.id, running)


async def test_a_lost_workers_job_is_claimable_again_and_the_run_ends_well(
    kernel: Kernel, start_run: StartRun, take_job: TakeJob, finish: Finish, clock: FakeClock, told: Told
) -> None:
    run_id = await start_run(kernel, "in")
    lost = await take_job(kernel, "lost")
    assert await reap(kernel) == NOTHING
    clock.advance("46s")
    before = await told(kernel, run_id)
    assert await reap(kernel) == ReapStaleLeasesResult(1, 0)
    assert await reap(kernel) == NOTHING
    assert await told(kernel, run_id) == before
    again = await take_job(kernel, "other")
    assert (again.job_id, again.worker_losses, again.failures) == (lost.job_id, 1, 0)
    clock.advance("46s")
    # The budget of failures is another one.
    assert await reap(kernel) == ReapStaleLeasesResult(0, 1)


@pytest.mark.guarantee("kernel.lost-workers-end-a-stage-with-its-reason")
async def test_at_its_limit_the_stage_fails_naming_the_last_owner_and_the_run_moves_on(
    kernel: Kernel,
    start_run: StartRun,
    take_job: TakeJob,
    clock: FakeClock,
    told: Told,
    statuses: Statuses,
    transport: InMemoryJobTransport,
) -> None:
    run_id = await start_run(kernel)
    for worker in ("first", "second"):
        await begin(kernel, await take_job(kernel, worker))
        clock.advance("46s")
        await reap(kernel)
    assert await statuses(kernel, run_id) == {"s1": Status.FAILED}
    run = await run_of(kernel, run_id)
    assert (run.status, run.completed_at) == (Status.FAILED, clock.now())
    assert run.error is not None
    assert (run.error.code, run.error.stage_id) == ("LEASE_HEARTBEAT_LOST", "s1")
    assert "'second'" in run.error.message
    assert "worker loss 2 of at most 2" in run.error.message
    (stage,) = await kernel.runs.stages(run_id)
    assert (stage.error, stage.completed_at) == (run.error, clock.now())
    assert (await told(kernel, run_id))[-2:] == ["stage:failed", "workflow:failed"]
    (job,) = await transport.get_jobs_by_run(run_id)
    assert (job.status, job.worker_losses, job.failures) == (Status.FAILED, 2, 0)
    (line,) = (await kernel.runs.logs(run_id, level="ERROR")).items
    assert "'second'" in line.message


async def test_a_run_with_a_sibling_that_can_still_move_waits_for_it(
    make_kernel: MakeKernel, start_run: StartRun, execute: Execute, clock: FakeClock, statuses: Statuses
) -> None:
    once = RetryPolicy(max_worker_losses=1)
    stages = [define_stage(name, echo, input=Any, output=Any, retry=once) for name in ("a", "b")]
    kernel = make_kernel(define_workflow("flow", input=Any).parallel(*stages).build())
    run_id = await start_run(kernel)
    jobs = {job.stage_id: job for job in (await kernel.dispatch(ClaimJobs("w", limit=2))).jobs}
    clock.advance("40s")
    assert await kernel.ports.job_transport.touch(jobs["b"].job_id, jobs["b"].fence)
    clock.advance("6s")
    assert await reap(kernel) == ReapStaleLeasesResult(0, 1)
    assert (await run_of(kernel, run_id)).status is Status.RUNNING
    assert (await execute(kernel, jobs["b"])).outcome == "completed"
    assert await statuses(kernel, run_id) == {"a": Status.FAILED, "b": Status.COMPLETED}
    run = await run_of(kernel, run_id)
    assert run.status is Status.FAILED
    assert run.error is not None
    assert run.error.code == "LEASE_HEARTBEAT_LOST"


@pytest.mark.guarantee("kernel.no-delivery-outlasts-the-absolute-cap")
async def test_beyond_the_absolute_cap_stage_and_run_fail_at_once_heartbeats_or_not(
    make_kernel: MakeKernel,
    start_run: StartRun,
    execute: Execute,
    clock: FakeClock,
    statuses: Statuses,
    told: Told,
    transport: InMemoryJobTransport,
) -> None:
    stages = [define_stage(name, echo, input=Any, output=Any) for name in ("a", "b", "c")]
    kernel = make_kernel(define_workflow("flow", input=Any).parallel(*stages).build())
    run_id = await start_run(kernel)
    (runaway,) = (await kernel.dispatch(ClaimJobs("stuck in a loop"))).jobs
    clock.advance("59m")
    (sibling,) = (await kernel.dispatch(ClaimJobs("honest"))).jobs
    clock.advance("61s")
    for job in (runaway, sibling):
        assert await transport.touch(job.job_id, job.fence)
    assert await reap(kernel) == NOTHING, "without a cap there is none"
    assert await reap(kernel, "0s") == NOTHING
    assert await reap(kernel, "1h") == ReapStaleLeasesResult(0, 1)
    run = await run_of(kernel, run_id)
    assert run.status is Status.FAILED
    assert run.error is not None
    assert (run.error.code, run.error.stage_id) == ("LEASE_ABSOLUTE_CAP", runaway.stage_id)
    assert "3600 s" in run.error.message
    assert "'stuck in a loop'" in run.error.message
    assert list((await statuses(kernel, run_id)).values()) == [
        Status.FAILED,
        Status.CANCELLED,
        Status.CANCELLED,
    ]
    assert (await told(kernel, run_id))[-2:] == ["stage:failed", "workflow:failed"]
    kept = {job.stage_id: job.status for job in await transport.get_jobs_by_run(run_id)}
    assert kept == {"a": Status.FAILED, "b": Status.RUNNING, "c": Status.CANCELLED}
    late = await execute(kernel, sibling)
    assert (late.ghost, late.ghost_reason) == (True, "orphan")


async def test_a_frozen_workers_late_outcome_is_refused(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    clock: FakeClock,
    told: Told,
) -> None:
    begun, thaw = asyncio.Event(), asyncio.Event()

    async def freezes_once(ctx: StageContext[Any]) -> Any:
        if begun.is_set():
            return "other"
        begun.set()
        await thaw.wait()
        return "frozen"

    kernel = make_kernel(flow_of(freezes_once))
    run_id = await start_run(kernel)
    late = asyncio.create_task(execute(kernel, await take_job(kernel, "frozen")))
    await begun.wait()
    clock.advance("46s")
    assert await reap(kernel) == ReapStaleLeasesResult(1, 0)
    again = await take_job(kernel, "other")
    thaw.set()
    if kernel.ports.transport_enlists:
        assert (await late).ghost, "the job has another owner"
    other = await execute(kernel, again)
    result = await late
    run = await run_of(kernel, run_id)
    # Without a fence in the transaction, whichever outcome is recorded first stands, and the other is refused.
    assert result.ghost is not other.ghost
    assert (other if result.ghost else result).outcome == "completed"
    assert run.output == ("other" if result.ghost else "frozen")
    assert (await told(kernel, run_id)).count("stage:completed") == 1


async def test_an_outcome_that_comes_while_leases_are_reaped_is_recorded_or_refused_whole(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    hold_at: HoldAt,
    clock: FakeClock,
    told: Told,
) -> None:
    once = RetryPolicy(max_worker_losses=1)
    kernel = make_kernel(flow_of(echo, retry=once))
    run_id = await start_run(kernel)
    job = await take_job(kernel)
    clock.advance("46s")
    reached, go = hold_at("commit", nth=1 if kernel.ports.transport_enlists else 2)
    late = asyncio.create_task(execute(kernel, job))
    await reached.wait()
    reaping = asyncio.create_task(reap(kernel))
    await asyncio.sleep(0.02)
    go.set()
    result, swept = await asyncio.gather(late, reaping)
    assert swept.released == 0
    run = await run_of(kernel, run_id)
    assert run.status is (Status.FAILED if result.ghost else Status.COMPLETED)
    endings = [
        kind for kind in await told(kernel, run_id) if kind in ("workflow:completed", "workflow:failed")
    ]
    assert len(endings) == 1


async def test_of_several_reapers_one_ends_a_lease_and_one_event_tells_of_it(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, clock: FakeClock, told: Told
) -> None:
    once = RetryPolicy(max_worker_losses=1)
    kernel = make_kernel(flow_of(echo, retry=once))
    runs = [await start_run(kernel) for _ in range(4)]
    await kernel.dispatch(ClaimJobs("w", limit=4))
    clock.advance("46s")
    reaped = await asyncio.gather(*(reap(kernel) for _ in range(5)))
    assert sum(one.expired for one in reaped) == 4
    for run_id in runs:
        assert (await told(kernel, run_id)).count("workflow:failed") == 1


async def test_a_reaper_that_dies_between_job_and_stage_is_made_up_for(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    fail_at: FailAt,
    persistence: InMemoryPersistence,
    clock: FakeClock,
) -> None:
    once = RetryPolicy(max_worker_losses=1)
    kernel = make_kernel(flow_of(echo, retry=once))
    run_id = await start_run(kernel)
    await begin(kernel, await take_job(kernel, "lost"))
    clock.advance("46s")
    fail_at("load_runs", times=3, error=TransientError("the database is restarting"))
    with pytest.raises(TransientError):
        await reap(kernel)
    if kernel.ports.transport_enlists:
        assert await reap(kernel) == ReapStaleLeasesResult(0, 1), "nothing was kept of the first one"
    else:
        assert await reap(kernel) == NOTHING
        clock.advance("15m")
        assert await kernel.dispatch(ReapStuckRuns("15m")) == ReapStuckRunsResult(0, 0, 1, 0)
    run = await run_of(kernel, run_id)
    assert run.status is Status.FAILED
    assert run.error is not None
    assert run.error.code == "LEASE_HEARTBEAT_LOST"
    assert "'lost'" in run.error.message


async def test_a_threshold_is_a_length_of_time(kernel: Kernel) -> None:
    for odd in ("soon", -1, float("nan"), True):
        with pytest.raises(InvalidCommandError, match="stale_threshold"):
            await kernel.dispatch({"type": "lease.reapStale", "stale_threshold": odd})
    assert await kernel.dispatch({"type": "lease.reapStale", "stale_threshold": 45}) == NOTHING


async def test_waiting_hosts_are_woken_by_a_released_job(
    kernel: Kernel, start_run: StartRun, take_job: TakeJob, persistence: InMemoryPersistence, clock: FakeClock
) -> None:
    await start_run(kernel)
    await take_job(kernel)
    clock.advance("46s")
    while await persistence.wait_for_work(timedelta(0)):
        pass
    await reap(kernel)
    assert await persistence.wait_for_work(timedelta(0))
