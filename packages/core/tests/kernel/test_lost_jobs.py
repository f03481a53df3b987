"""A transport elsewhere that comes back without some of its jobs: the stages that want them get them again."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Status, Workflow, define_stage, define_workflow
from stagewright.commands import (
    CancelRun,
    ClaimJobs,
    ExecuteJob,
    ExecuteJobResult,
    PollSuspendedStages,
    ReapStuckRuns,
    ReapStuckRunsResult,
)
from stagewright.errors import AfterCommitError, TransientError
from stagewright.hosting import run_job
from stagewright.kernel.commands.job_enqueue_owed import EnqueueOwedJobs, EnqueueOwedJobsResult
from stagewright.kernel.procedures.replace_lost import OWNERS_LEARN_WITHIN
from stagewright.memory import InMemoryDatabase, InMemoryJobTransport
from stagewright.records import DequeuedJob, RunRecord, StagePatch
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
StartRun = Callable[..., Awaitable[str]]
TakeJob = Callable[..., Awaitable[DequeuedJob]]
Execute = Callable[..., Awaitable[ExecuteJobResult]]
Finish = Callable[[Kernel, str], Awaitable[RunRecord]]

NOTHING = EnqueueOwedJobsResult(0)


class Forgetful(InMemoryJobTransport):
    """A `MayLoseJobs`."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(InMemoryDatabase(clock=clock), clock)
        self.losses = 0
        self.replaced = 0

    async def lose(self, run_id: str, *stage_ids: str) -> None:
        assert await self.delete_by_run_and_stages(run_id, stage_ids) == len(stage_ids)
        self.losses += 1

    async def go_back(self, run_id: str, known: str) -> None:
        [job] = await self.get_jobs_by_run(run_id)
        if known == "completed":
            await self.complete(job.id)
        else:
            await self.suspend(job.id, job.created_at)
            if known == "cancelled":
                assert await self.cancel_by_run(run_id) == 1
        self.losses += 1

    async def possible_losses(self) -> str | None:
        return None if self.losses == self.replaced else str(self.losses)

    async def losses_replaced(self, losses: str) -> None:
        self.replaced = int(losses)


async def echo(ctx: StageContext[Any]) -> Any:
    return ctx.input


async def nap(ctx: StageContext[Any]) -> Any:
    await ctx.step.sleep("nap", "30d")
    return ctx.input


@pytest.fixture
def transport(clock: FakeClock) -> Forgetful:
    return Forgetful(clock)


@pytest.fixture
def kernel(make_kernel: MakeKernel, flow_of: FlowOf) -> Kernel:
    return make_kernel(flow_of(echo, echo))


async def begin(kernel: Kernel, run_id: str) -> None:
    """A worker has begun the first stage, and is lost."""
    [job] = (await kernel.dispatch(ClaimJobs("lost worker"))).jobs
    assert job.run_id == run_id
    stage = await kernel.ports.persistence.get_stage(run_id, "s1")
    assert stage is not None
    patch = StagePatch(updated_at=kernel.ports.clock.now(), status=Status.RUNNING)
    await kernel.ports.persistence.update_stage(stage.id, patch)


@pytest.mark.guarantee("kernel.lost-jobs-come-within-a-tick")
async def test_a_job_that_was_lost_is_there_again_after_the_next_tick(
    kernel: Kernel, transport: Forgetful, start_run: StartRun, finish: Finish
) -> None:
    runs = [await start_run(kernel, number) for number in range(120)]
    for run_id in runs[::2]:
        await transport.lose(run_id, "s1")
    assert await kernel.dispatch(EnqueueOwedJobs()) == EnqueueOwedJobsResult(60)
    assert await transport.depth() == 120
    assert await kernel.dispatch(EnqueueOwedJobs()) == NOTHING
    assert [(await finish(kernel, run_id)).output for run_id in runs] == list(range(120))


@pytest.mark.tampers
async def test_nothing_is_looked_through_unless_jobs_may_be_missing(
    kernel: Kernel, transport: Forgetful, start_run: StartRun
) -> None:
    run_id = await start_run(kernel)
    await transport.lose(run_id, "s1")
    await transport.losses_replaced(str(transport.losses))
    assert await kernel.dispatch(EnqueueOwedJobs()) == NOTHING
    assert await transport.depth() == 0


async def test_what_is_there_stays_as_it_is(
    kernel: Kernel, transport: Forgetful, start_run: StartRun, take_job: TakeJob
) -> None:
    claimed, waiting, cancelled = [await start_run(kernel) for _ in range(3)]
    job = await take_job(kernel)
    assert job.run_id == claimed
    await kernel.dispatch(CancelRun(cancelled))
    transport.losses += 1
    before = [await transport.get_jobs_by_run(run_id) for run_id in (claimed, waiting, cancelled)]
    assert await kernel.dispatch(EnqueueOwedJobs()) == NOTHING
    assert [await transport.get_jobs_by_run(run_id) for run_id in (claimed, waiting, cancelled)] == before


async def test_the_stage_of_a_worker_that_lost_its_job_is_begun_anew_once_the_worker_has_learnt_it(
    kernel: Kernel,
    transport: Forgetful,
    start_run: StartRun,
    clock: FakeClock,
    finish: Finish,
) -> None:
    run_id = await start_run(kernel)
    await begin(kernel, run_id)
    await transport.lose(run_id, "s1")
    assert await kernel.dispatch(EnqueueOwedJobs()) == EnqueueOwedJobsResult(1)
    assert await transport.depth() == 0
    clock.advance(OWNERS_LEARN_WITHIN)
    assert await transport.depth() == 1
    assert (await finish(kernel, run_id)).status is Status.COMPLETED


async def handed_back(kernel: Kernel, start_run: StartRun, take_job: TakeJob, clock: FakeClock) -> str:
    """A run whose stage has slept and has a job again."""
    run_id = await start_run(kernel)
    job = await take_job(kernel)
    assert (await run_job(kernel, job)).outcome == "suspended"
    clock.advance(timedelta(days=31))
    assert (await kernel.dispatch(PollSuspendedStages())).resumed == 1
    return run_id


@pytest.mark.guarantee("kernel.lost-jobs-come-within-a-tick")
@pytest.mark.parametrize("is_running", [False, True])
@pytest.mark.parametrize("known", ["suspended", "completed", "cancelled"])
async def test_a_job_that_is_as_it_was_before_is_lost_too(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    transport: Forgetful,
    start_run: StartRun,
    take_job: TakeJob,
    clock: FakeClock,
    finish: Finish,
    known: str,
    is_running: bool,
) -> None:
    """A replica that took over, or a log that ends too early, knows an older state of it."""
    kernel = make_kernel(flow_of(nap, echo))
    run_id = await handed_back(kernel, start_run, take_job, clock)
    if is_running:
        await begin(kernel, run_id)
    await transport.go_back(run_id, known)
    assert await transport.depth() == 0
    assert await kernel.dispatch(EnqueueOwedJobs()) == EnqueueOwedJobsResult(1)
    if is_running:
        assert await transport.depth() == 0, "its worker may not have learnt it yet"
        clock.advance(OWNERS_LEARN_WITHIN)
    assert await transport.depth() == 1
    assert await kernel.dispatch(EnqueueOwedJobs()) == NOTHING
    assert (await finish(kernel, run_id)).status is Status.COMPLETED


@pytest.mark.parametrize("is_running", [False, True])
async def test_a_run_whose_job_is_as_it_was_before_is_not_given_up(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    transport: Forgetful,
    start_run: StartRun,
    take_job: TakeJob,
    clock: FakeClock,
    finish: Finish,
    is_running: bool,
) -> None:
    kernel = make_kernel(flow_of(nap, echo))
    run_id = await handed_back(kernel, start_run, take_job, clock)
    if is_running:
        await begin(kernel, run_id)
    await transport.go_back(run_id, "suspended")
    await transport.losses_replaced(str(transport.losses))
    clock.advance(timedelta(hours=1))
    assert await kernel.dispatch(ReapStuckRuns("10m")) == ReapStuckRunsResult(0, 0, 0, 1)
    assert (await finish(kernel, run_id)).status is Status.COMPLETED


async def test_stages_that_wait_for_a_signal_or_a_time_are_left_alone(
    make_kernel: MakeKernel, flow_of: FlowOf, transport: Forgetful, start_run: StartRun, take_job: TakeJob
) -> None:
    async def patient(ctx: StageContext[Any]) -> Any:
        return await ctx.step.wait_for_signal("go", timeout="3d")

    for body in (patient, nap):
        kernel = make_kernel(flow_of(body))
        run_id = await start_run(kernel)
        assert (await run_job(kernel, await take_job(kernel))).outcome == "suspended"
        transport.losses += 1
        before = await transport.get_jobs_by_run(run_id)
        assert await kernel.dispatch(EnqueueOwedJobs()) == NOTHING
        assert await transport.get_jobs_by_run(run_id) == before


async def test_a_run_that_had_to_move_on_when_its_worker_and_its_job_were_lost_moves_on(
    kernel: Kernel, transport: Forgetful, start_run: StartRun, finish: Finish
) -> None:
    run_id = await start_run(kernel, 3)
    await kernel.dispatch(ExecuteJob(run_id=run_id, workflow_id="flow", stage_id="s1"))
    await transport.lose(run_id, "s1")
    assert await kernel.dispatch(EnqueueOwedJobs()) == NOTHING
    assert [one.stage_id for one in await transport.get_jobs_by_run(run_id)] == ["s2"]
    assert (await finish(kernel, run_id)).output == 3


@pytest.mark.guarantee("kernel.unreachable-transports-hold-no-run")
async def test_an_outcome_whose_acknowledgement_failed_moves_its_run_on(
    kernel: Kernel,
    transport: Forgetful,
    start_run: StartRun,
    take_job: TakeJob,
    finish: Finish,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_id = await start_run(kernel, 3)
    job = await take_job(kernel)

    async def fail(*_: object) -> Any:
        raise TransientError("the queue is gone")

    with monkeypatch.context() as broken:
        broken.setattr(transport, "complete", fail)
        with pytest.raises(AfterCommitError):
            await run_job(kernel, job)
    assert [one.stage_id for one in await transport.get_jobs_by_run(run_id)] == ["s1", "s2"]
    assert (await finish(kernel, run_id)).output == 3


async def test_a_sleeping_sibling_hides_nothing(
    make_kernel: MakeKernel,
    transport: Forgetful,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
) -> None:
    stages = [define_stage(f"s{number}", body) for number, body in enumerate((nap, echo), start=1)]
    kernel = make_kernel(define_workflow("flow", input=Any).parallel(*stages).build())
    run_id = await start_run(kernel)
    assert (await execute(kernel, await take_job(kernel))).outcome == "suspended"
    await transport.lose(run_id, "s1", "s2")
    assert await kernel.dispatch(EnqueueOwedJobs()) == EnqueueOwedJobsResult(1)
    assert [job.stage_id for job in await transport.get_jobs_by_run(run_id)] == ["s2"]


async def test_a_lost_sleeper_wakes_in_time(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    transport: Forgetful,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    clock: FakeClock,
    finish: Finish,
) -> None:
    kernel = make_kernel(flow_of(nap))
    run_id = await start_run(kernel, "up")
    assert (await execute(kernel, await take_job(kernel))).outcome == "suspended"
    await transport.lose(run_id, "s1")
    assert await kernel.dispatch(EnqueueOwedJobs()) == NOTHING
    clock.advance("30d")
    await kernel.dispatch(PollSuspendedStages())
    assert (await finish(kernel, run_id)).output == "up"


async def test_what_this_process_does_not_serve_is_owed_to_one_that_does(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    transport: Forgetful,
    start_run: StartRun,
    clock: FakeClock,
    finish: Finish,
) -> None:
    kernel, other = make_kernel(flow_of(echo)), make_kernel(flow_of(echo, id="other"))
    run_id = await start_run(kernel)
    await transport.lose(run_id, "s1")
    assert await other.dispatch(EnqueueOwedJobs()) == NOTHING
    clock.advance("5s")
    assert await other.dispatch(EnqueueOwedJobs()) == NOTHING
    assert await kernel.dispatch(EnqueueOwedJobs()) == EnqueueOwedJobsResult(1)
    assert (await finish(kernel, run_id)).status is Status.COMPLETED


@pytest.mark.guarantee("kernel.lost-jobs-fail-no-run")
async def test_a_run_whose_running_stage_has_lost_its_job_is_not_given_up(
    kernel: Kernel,
    transport: Forgetful,
    start_run: StartRun,
    clock: FakeClock,
    finish: Finish,
) -> None:
    run_id = await start_run(kernel)
    await begin(kernel, run_id)
    await transport.lose(run_id, "s1")
    # Nobody noticed.
    await transport.losses_replaced(str(transport.losses))
    clock.advance(timedelta(minutes=20))
    assert await kernel.dispatch(ReapStuckRuns("15m")) == ReapStuckRunsResult(0, 0, 0, 1)
    assert (await finish(kernel, run_id)).status is Status.COMPLETED
