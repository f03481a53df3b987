"""`stage.pollSuspended`: whose time has come gets its job back, once, and goes on where it stopped."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Status, Workflow, define_stage, define_workflow
from stagewright.commands import (
    CancelRun,
    ClaimJobs,
    ExecuteJobResult,
    PollSuspendedStages,
    PollSuspendedStagesResult,
)
from stagewright.errors import AfterCommitError, TransientError
from stagewright.kernel.commands.job_enqueue_owed import EnqueueOwedJobs, EnqueueOwedJobsResult
from stagewright.memory import InMemoryDatabase, InMemoryJobTransport, InMemoryPersistence, InMemoryStepLedger
from stagewright.records import DequeuedJob, JobRecord, RunRecord, ServedDefinition, StepRecord, StoredStage
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
StartRun = Callable[..., Awaitable[str]]
TakeJob = Callable[..., Awaitable[DequeuedJob]]
Execute = Callable[..., Awaitable[ExecuteJobResult]]
Finish = Callable[[Kernel, str], Awaitable[RunRecord]]
Told = Callable[[Kernel, str], Awaitable[list[str]]]
Statuses = Callable[[Kernel, str], Awaitable[dict[str, Status]]]
HoldAt = Callable[..., tuple[asyncio.Event, asyncio.Event]]
FailAt = Callable[..., None]
Suspend = Callable[..., Awaitable[DequeuedJob]]

on_both = pytest.mark.parametrize("transport", ["enlisting", "separate"], indirect=True)
separate = pytest.mark.parametrize("transport", ["separate"], indirect=True)

NOTHING = PollSuspendedStagesResult(0, 0, 0, ())


async def echo(ctx: StageContext[Any]) -> Any:
    return ctx.input


@pytest.fixture
def kernel(make_kernel: MakeKernel, flow_of: FlowOf) -> Kernel:
    return make_kernel(flow_of(echo))


@pytest.fixture
def suspend(
    database: InMemoryDatabase,
    persistence: InMemoryPersistence,
    transport: InMemoryJobTransport,
    ledger: InMemoryStepLedger,
    clock: FakeClock,
) -> Suspend:
    """`await suspend(job, "2d")`: what a durable sleep of that length leaves of a delivered job and its stage."""

    async def leave(job: DequeuedJob, length: str = "1m") -> DequeuedJob:
        stage = await persistence.get_stage(job.run_id, job.stage_id)
        assert stage is not None
        due = FakeClock(clock.now())
        due.advance(length)
        record = replace(
            stage,
            status=Status.SUSPENDED,
            next_poll_at=due.now(),
            waiting_step_id="nap",
            started_at=clock.now(),
        )
        database.stages.write(stage.id, record)
        nap = StepRecord(
            id=f"nap of {stage.id}",
            stage_record_id=stage.id,
            step_id="nap",
            seq=1,
            kind="sleep",
            status="pending",
            deadline_at=due.now(),
            created_at=clock.now(),
            updated_at=clock.now(),
        )
        await ledger.claim(nap)
        await transport.suspend(job.job_id, due.now(), job.fence)
        return job

    return leave


@pytest.fixture
def stage_of(persistence: InMemoryPersistence) -> Callable[[str], Awaitable[StoredStage]]:
    """`await stage_of(run_id)`: the run's first stage."""

    async def read(run_id: str) -> StoredStage:
        stage = await persistence.get_stage(run_id, "s1")
        assert stage is not None
        return stage

    return read


@pytest.fixture
def job_of(transport: InMemoryJobTransport) -> Callable[[str], Awaitable[JobRecord]]:
    """`await job_of(run_id)`: the run's one job."""

    async def read(run_id: str) -> JobRecord:
        (job,) = await transport.get_jobs_by_run(run_id)
        return job

    return read


StageOf = Callable[[str], Awaitable[StoredStage]]
JobOf = Callable[[str], Awaitable[JobRecord]]


@on_both
@pytest.mark.guarantee("kernel.suspended-stages-resume-in-a-job-slot")
async def test_a_due_stage_is_handed_back_as_the_job_that_it_was(
    kernel: Kernel,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    suspend: Suspend,
    stage_of: StageOf,
    job_of: JobOf,
    clock: FakeClock,
    told: Told,
) -> None:
    run_id = await start_run(kernel, "in")
    first = await suspend(await take_job(kernel))
    before, starts = await stage_of(run_id), (await told(kernel, run_id)).count("stage:started")
    assert await kernel.dispatch(PollSuspendedStages()) == NOTHING, "it isn't due"
    clock.advance("59s")
    assert await kernel.dispatch(PollSuspendedStages()) == NOTHING
    assert (await kernel.dispatch(ClaimJobs("w"))).jobs == ()
    clock.advance("1s")
    assert await kernel.dispatch(PollSuspendedStages()) == PollSuspendedStagesResult(1, 1, 0, (run_id,))
    handed, job = await stage_of(run_id), await job_of(run_id)
    assert (handed.status, handed.next_poll_at) == (Status.SUSPENDED, None)
    assert handed.job_enqueued_at == clock.now()
    assert (job.id, job.status, job.due_at, job.deliveries) == (first.job_id, Status.PENDING, None, 1)
    assert await kernel.dispatch(PollSuspendedStages()) == NOTHING
    clock.advance("3s")
    again = await take_job(kernel)
    assert (again.job_id, again.fence.deliveries) == (first.job_id, 2)
    result = await execute(kernel, again)
    assert (result.outcome, result.output) == ("completed", "in")
    after = await stage_of(run_id)
    assert (after.started_at, after.attempt) == (before.started_at, 1)
    assert (await told(kernel, run_id)).count("stage:started") == starts


async def test_a_claimed_stage_runs_again_with_the_claim(
    kernel: Kernel,
    start_run: StartRun,
    take_job: TakeJob,
    suspend: Suspend,
    stage_of: StageOf,
    execute: Execute,
    clock: FakeClock,
    moments: list[str],
) -> None:
    run_id = await start_run(kernel)
    await suspend(await take_job(kernel))
    started = (await stage_of(run_id)).started_at
    clock.advance("1m")
    await kernel.dispatch(PollSuspendedStages())
    clock.advance("3s")
    job = await take_job(kernel)
    record = await stage_of(run_id)
    assert (record.status, record.next_poll_at, record.started_at) == (Status.RUNNING, None, started)
    moments.clear()
    await execute(kernel, job)
    assert moments[: moments.index("commit")].count("begin") == 1, "the claim was phase 1"


@on_both
async def test_the_earliest_due_go_first_up_to_the_limit(
    kernel: Kernel, start_run: StartRun, take_job: TakeJob, suspend: Suspend, clock: FakeClock
) -> None:
    runs = []
    for minutes in (3, 1, 2):
        runs.append(await start_run(kernel))
        await suspend(await take_job(kernel), f"{minutes}m")
    clock.advance("1h")
    assert await kernel.dispatch(PollSuspendedStages(max_checks=0)) == NOTHING
    polled = await kernel.dispatch(PollSuspendedStages(max_checks=2))
    assert polled == PollSuspendedStagesResult(2, 2, 0, (runs[1], runs[2]))
    assert (await kernel.dispatch(PollSuspendedStages())).resumed_run_ids == (runs[0],)


async def test_what_is_not_served_is_left_and_takes_no_place(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    suspend: Suspend,
    stage_of: StageOf,
    clock: FakeClock,
) -> None:
    old = make_kernel(flow_of(echo))
    new = make_kernel(flow_of(echo, echo))
    older = await start_run(old)
    await suspend(await take_job(old), "1m")
    newer = await start_run(new)
    await suspend(await take_job(new), "2m")
    clock.advance("1h")
    before = await stage_of(older)
    assert (await new.dispatch(PollSuspendedStages(max_checks=1))).resumed_run_ids == (newer,)
    assert await stage_of(older) == before
    # Whoever polls for everything still hands over only what this build can run.
    assert await new.dispatch(PollSuspendedStages(serves="all")) == NOTHING
    served = [ServedDefinition("other", "v1")]
    assert await old.dispatch(PollSuspendedStages(serves=served)) == NOTHING
    assert (await old.dispatch(PollSuspendedStages())).resumed_run_ids == (older,)


@on_both
async def test_of_several_pollers_one_hands_a_stage_over(
    kernel: Kernel,
    start_run: StartRun,
    take_job: TakeJob,
    suspend: Suspend,
    clock: FakeClock,
    finish: Finish,
) -> None:
    runs = []
    for _ in range(5):
        runs.append(await start_run(kernel))
        await suspend(await take_job(kernel))
    clock.advance("1m")
    polls = await asyncio.gather(*(kernel.dispatch(PollSuspendedStages()) for _ in range(6)))
    assert sum(poll.resumed for poll in polls) == 5
    assert sorted(run for poll in polls for run in poll.resumed_run_ids) == sorted(runs)
    for run_id in runs:
        assert (await finish(kernel, run_id)).status is Status.COMPLETED


@on_both
@pytest.mark.parametrize("first", ["cancel", "poll"])
async def test_a_poll_and_a_cancel_agree(
    kernel: Kernel,
    start_run: StartRun,
    take_job: TakeJob,
    suspend: Suspend,
    clock: FakeClock,
    hold_at: HoldAt,
    statuses: Statuses,
    first: str,
) -> None:
    run_id = await start_run(kernel)
    await suspend(await take_job(kernel))
    clock.advance("1m")
    reached, go = hold_at("commit")
    commands = {"cancel": CancelRun(run_id), "poll": PollSuspendedStages()}
    held = asyncio.create_task(kernel.dispatch(commands[first]))
    await reached.wait()
    other = asyncio.create_task(kernel.dispatch(commands["poll" if first == "cancel" else "cancel"]))
    await asyncio.sleep(0.01)
    go.set()
    await asyncio.gather(held, other)
    assert await statuses(kernel, run_id) == {"s1": Status.CANCELLED}
    assert await kernel.dispatch(PollSuspendedStages()) == NOTHING
    for job in (await kernel.dispatch(ClaimJobs("w"))).jobs:
        # Where the transport has transactions of its own, a job may be left; it is an orphan.
        assert not kernel.ports.transport_enlists
        assert (await run_ghost(kernel, job)).ghost_reason == "orphan"


async def run_ghost(kernel: Kernel, job: DequeuedJob) -> ExecuteJobResult:
    command = {"type": "job.execute", "run_id": job.run_id, "workflow_id": "flow", "stage_id": job.stage_id}
    result = await kernel.dispatch(command)
    assert isinstance(result, ExecuteJobResult)
    return result


@on_both
async def test_a_job_that_is_gone_is_made_anew(
    kernel: Kernel,
    start_run: StartRun,
    take_job: TakeJob,
    suspend: Suspend,
    transport: InMemoryJobTransport,
    job_of: JobOf,
    finish: Finish,
    clock: FakeClock,
) -> None:
    run_id = await start_run(kernel)
    await suspend(await take_job(kernel))
    await transport.delete_by_run_and_stages(run_id, ["s1"])
    clock.advance("1m")
    assert (await kernel.dispatch(PollSuspendedStages())).resumed == 1
    job = await job_of(run_id)
    assert (job.status, job.deliveries, job.payload) == (Status.PENDING, 0, {"config": {}})
    assert (await finish(kernel, run_id)).status is Status.COMPLETED


async def test_siblings_of_one_run_are_handed_over_together(
    make_kernel: MakeKernel, start_run: StartRun, suspend: Suspend, clock: FakeClock, finish: Finish
) -> None:
    stages = [define_stage(name, echo, input=Any, output=Any) for name in ("a", "b", "c")]
    kernel = make_kernel(define_workflow("flow", input=Any).parallel(*stages).build())
    run_id = await start_run(kernel)
    for job in (await kernel.dispatch(ClaimJobs("w", limit=3))).jobs:
        await suspend(job)
    clock.advance("1m")
    assert await kernel.dispatch(PollSuspendedStages()) == PollSuspendedStagesResult(3, 3, 0, (run_id,))
    assert (await finish(kernel, run_id)).status is Status.COMPLETED


@separate
@pytest.mark.guarantee("kernel.owed-jobs-come-within-seconds")
async def test_a_job_lost_after_the_commit_is_owed_and_comes_within_seconds(
    kernel: Kernel,
    start_run: StartRun,
    take_job: TakeJob,
    suspend: Suspend,
    stage_of: StageOf,
    fail_at: FailAt,
    finish: Finish,
    clock: FakeClock,
) -> None:
    run_id = await start_run(kernel)
    await suspend(await take_job(kernel))
    clock.advance("1m")
    fail_at("resume", error=TransientError("the queue is gone"))
    with pytest.raises(AfterCommitError):
        await kernel.dispatch(PollSuspendedStages())
    owed = await stage_of(run_id)
    assert (owed.status, owed.next_poll_at, owed.job_enqueued_at) == (Status.SUSPENDED, None, None)
    assert await kernel.dispatch(EnqueueOwedJobs()) == EnqueueOwedJobsResult(0), "it may be on its way"
    clock.advance("5s")
    assert await kernel.dispatch(EnqueueOwedJobs()) == EnqueueOwedJobsResult(1)
    assert await kernel.dispatch(EnqueueOwedJobs()) == EnqueueOwedJobsResult(0)
    assert (await finish(kernel, run_id)).status is Status.COMPLETED


@separate
@pytest.mark.parametrize("moment", ["enqueue_parallel", "update_stage"])
async def test_a_first_job_lost_after_the_commit_is_owed_too(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    fail_at: FailAt,
    finish: Finish,
    transport: InMemoryJobTransport,
    clock: FakeClock,
    moment: str,
) -> None:
    kernel = make_kernel(flow_of(echo, echo))
    fail_at(moment, error=TransientError("the queue is gone"))
    with pytest.raises(AfterCommitError):
        await start_run(kernel)
    clock.advance("5s")
    before = await transport.depth()
    assert await kernel.dispatch(EnqueueOwedJobs()) == EnqueueOwedJobsResult(1)
    assert (before, await transport.depth()) == (0 if moment == "enqueue_parallel" else 1, 1)
    (run,) = (await kernel.runs.list()).items
    assert (await finish(kernel, run.id)).status is Status.COMPLETED


@separate
async def test_a_job_whose_suspension_is_not_acknowledged_yet_stays_owed(
    kernel: Kernel,
    start_run: StartRun,
    take_job: TakeJob,
    suspend: Suspend,
    stage_of: StageOf,
    job_of: JobOf,
    transport: InMemoryJobTransport,
    database: InMemoryDatabase,
    finish: Finish,
    clock: FakeClock,
) -> None:
    run_id = await start_run(kernel)
    job = await take_job(kernel)
    stage = await stage_of(run_id)
    waits = replace(stage, status=Status.SUSPENDED, next_poll_at=clock.now(), waiting_step_id="nap")
    database.stages.write(stage.id, waits)
    assert (await kernel.dispatch(PollSuspendedStages())).resumed == 1
    assert (await job_of(run_id)).status is Status.RUNNING, "its worker is about to acknowledge it"
    assert (await stage_of(run_id)).job_enqueued_at is None
    await transport.suspend(job.job_id, clock.now(), job.fence)
    clock.advance("5s")
    assert await kernel.dispatch(EnqueueOwedJobs()) == EnqueueOwedJobsResult(1)
    assert (await job_of(run_id)).status is Status.PENDING
    assert (await finish(kernel, run_id)).status is Status.COMPLETED


@separate
async def test_a_job_that_was_taken_at_once_is_not_written_down_as_enqueued(
    kernel: Kernel,
    start_run: StartRun,
    take_job: TakeJob,
    suspend: Suspend,
    stage_of: StageOf,
    execute: Execute,
    hold_at: HoldAt,
    clock: FakeClock,
) -> None:
    run_id = await start_run(kernel)
    await suspend(await take_job(kernel))
    clock.advance("1m")
    reached, go = hold_at("update_stage", nth=2)
    polling = asyncio.create_task(kernel.dispatch(PollSuspendedStages()))
    await reached.wait()
    await execute(kernel, await take_job(kernel))
    go.set()
    assert (await polling).resumed == 1
    done = await stage_of(run_id)
    assert (done.status, done.job_enqueued_at) == (Status.COMPLETED, None)


async def test_nothing_due_costs_one_read_and_no_transaction(kernel: Kernel, moments: list[str]) -> None:
    moments.clear()
    await kernel.dispatch(PollSuspendedStages())
    await kernel.dispatch(EnqueueOwedJobs())
    assert moments == ["get_suspended_stages", "get_owed_stages"]


async def test_waiting_hosts_are_woken_by_a_hand_over(
    kernel: Kernel,
    start_run: StartRun,
    take_job: TakeJob,
    suspend: Suspend,
    persistence: InMemoryPersistence,
    clock: FakeClock,
) -> None:
    await start_run(kernel)
    await suspend(await take_job(kernel))
    clock.advance("1m")
    while await persistence.wait_for_work(timedelta(0)):
        pass
    waiting = asyncio.create_task(persistence.wait_for_work(timedelta(seconds=5)))
    await kernel.dispatch(PollSuspendedStages())
    assert await waiting
