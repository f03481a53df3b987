"""Jobs that must not run, or not here, or not any more: nothing is written for them."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Status, Suspend, Workflow, define_workflow
from stagewright.commands import CancelRun, ClaimJobs, CreateRun, ExecuteJob, ExecuteJobResult, JobRef
from stagewright.definitions import NotReady
from stagewright.hosting.job_runner import run_job
from stagewright.memory import InMemoryJobTransport, InMemoryPersistence
from stagewright.records import DequeuedJob, RunRecord, StagePatch
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
StartRun = Callable[..., Awaitable[str]]
TakeJob = Callable[[Kernel], Awaitable[DequeuedJob]]
Execute = Callable[..., Awaitable[ExecuteJobResult]]
Finish = Callable[[Kernel, str], Awaitable[RunRecord]]
Contents = Callable[[], dict[str, object]]

pytestmark = pytest.mark.parametrize("transport", ["enlisting", "separate"], indirect=True)


async def echo(ctx: StageContext[Any]) -> Any:
    return ctx.input


async def never(ctx: StageContext[Any]) -> Any:
    pytest.fail("the body ran")


def command(job: DequeuedJob) -> ExecuteJob:
    return ExecuteJob(job.run_id, job.workflow_id, job.stage_id, job=JobRef(job.job_id, job.fence))


def assert_ghost(result: ExecuteJobResult, reason: str) -> None:
    assert (result.outcome, result.ghost, result.ghost_reason) == ("failed", True, reason)
    assert (result.will_retry, result.retryable, result.output) == (False, False, None)
    assert result.error is not None


@pytest.mark.guarantee("kernel.ghosts-write-nothing")
async def test_a_job_of_a_run_that_is_still_pending_is_a_race(
    make_kernel: MakeKernel, flow_of: FlowOf, contents: Contents
) -> None:
    kernel = make_kernel(flow_of(never))
    run_id = (await kernel.dispatch(CreateRun("flow"))).run_id
    before = contents()
    assert_ghost(await kernel.dispatch(ExecuteJob(run_id, "flow", "s1")), "race")
    assert contents() == before


async def test_a_job_of_a_cancelled_run_is_an_orphan(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, take_job: TakeJob, contents: Contents
) -> None:
    kernel = make_kernel(flow_of(never))
    run_id = await start_run(kernel)
    job = await take_job(kernel)
    await kernel.dispatch(CancelRun(run_id))
    before = contents()
    result = await kernel.dispatch(command(job))
    assert_ghost(result, "orphan")
    assert "CANCELLED" in str(result.error)
    assert contents() == before


@pytest.mark.parametrize("fails", [False, True])
async def test_a_job_of_an_ended_run_is_an_orphan(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    finish: Finish,
    contents: Contents,
    fails: bool,
) -> None:
    async def body(ctx: StageContext[Any]) -> int:
        return 1 // (not fails)

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    ended = await finish(kernel, run_id)
    assert ended.status is (Status.FAILED if fails else Status.COMPLETED)
    before = contents()
    assert_ghost(await kernel.dispatch(ExecuteJob(run_id, "flow", "s1")), "orphan")
    assert contents() == before


@pytest.mark.guarantee("kernel.other-versions-are-handed-back")
async def test_a_run_of_another_version_is_not_this_builds_even_if_the_stage_is_gone(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, take_job: TakeJob, contents: Contents
) -> None:
    old = make_kernel(flow_of(never))
    await start_run(old)
    job = await take_job(old)
    dropped = define_workflow("flow", input=Any).stage("other", never, input=Any, output=Any).build()
    before = contents()
    result = await make_kernel(dropped).dispatch(command(job))
    assert_ghost(result, "version")
    assert flow_of(never).definition_version in str(result.error)
    assert dropped.definition_version in str(result.error)
    assert contents() == before


async def test_an_ended_run_is_an_orphan_for_every_build(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun
) -> None:
    old = make_kernel(flow_of(echo))
    run_id = await start_run(old)
    await old.dispatch(CancelRun(run_id))
    assert_ghost(await make_kernel(flow_of(echo, echo)).dispatch(ExecuteJob(run_id, "flow", "s1")), "orphan")


@pytest.mark.guarantee("kernel.a-done-stage-answers-again")
async def test_a_second_delivery_of_a_completed_stage_gets_the_stored_output(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    contents: Contents,
) -> None:
    calls: list[int] = []

    async def once(ctx: StageContext[Any]) -> Any:
        calls.append(ctx.attempt)
        return {"n": len(calls)}

    kernel = make_kernel(flow_of(once, echo))
    await start_run(kernel)
    job = await take_job(kernel)
    first = await execute(kernel, job)
    before = contents()
    second = await kernel.dispatch(command(job))
    assert second == first == ExecuteJobResult(outcome="completed", output={"n": 1})
    assert calls == [1]
    assert contents() == before


async def test_a_stale_job_of_a_completed_stage_is_settled_by_its_new_owner(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    transport: InMemoryJobTransport,
) -> None:
    kernel = make_kernel(flow_of(echo, echo))
    run_id = await start_run(kernel, 3)
    job = await take_job(kernel)
    assert (await kernel.dispatch(ExecuteJob(run_id, "flow", "s1"))).outcome == "completed"
    assert (await kernel.dispatch(command(job))).output == 3
    (record,) = await transport.get_jobs_by_run(run_id)
    assert record.status is Status.COMPLETED


async def test_a_job_delivered_for_a_failed_stage_answers_its_failure(
    make_kernel: MakeKernel, start_run: StartRun, persistence: InMemoryPersistence, contents: Contents
) -> None:
    async def fail(ctx: StageContext[Any]) -> Any:
        raise LookupError("not there")

    builder = define_workflow("flow", input=Any)
    failing = builder.stage("a", fail, input=Any, output=Any).build().stages[0]
    waiting = builder.stage("b", echo, input=Any, output=Any).build().stages[0]
    kernel = make_kernel(builder.parallel(failing, waiting).build())
    run_id = await start_run(kernel)
    first = await kernel.dispatch(ExecuteJob(run_id, "flow", "a"))
    before = contents()
    again = await kernel.dispatch(ExecuteJob(run_id, "flow", "a"))
    assert (again.outcome, again.error, again.ghost, again.will_retry) == (
        "failed",
        first.error,
        False,
        False,
    )
    assert contents() == before


@pytest.mark.tampers
async def test_a_cancelled_stage_of_a_running_run_is_an_orphan(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    persistence: InMemoryPersistence,
    clock: FakeClock,
) -> None:
    kernel = make_kernel(flow_of(never))
    run_id = await start_run(kernel)
    (record,) = await persistence.get_stages_by_run(run_id)
    await persistence.update_stage(record.id, StagePatch(updated_at=clock.now(), status=Status.CANCELLED))
    assert_ghost(await kernel.dispatch(ExecuteJob(run_id, "flow", "s1")), "orphan")


# Suspended stages


async def test_a_job_for_a_suspended_stage_that_is_not_due_waits_again(
    make_kernel: MakeKernel,
    start_run: StartRun,
    take_job: TakeJob,
    transport: InMemoryJobTransport,
    clock: FakeClock,
) -> None:
    calls: list[int] = []

    async def submit(ctx: StageContext[Any]) -> Suspend:
        calls.append(1)
        return Suspend({"id": 1}, poll_interval="1m")

    async def check(state: Any, ctx: StageContext[Any]) -> NotReady:
        return NotReady()

    workflow = (
        define_workflow("flow", input=Any)
        .stage("s1", submit, input=Any, output=Any, mode="async-batch", check_completion=check)
        .build()
    )
    kernel = make_kernel(workflow)
    run_id = await start_run(kernel)
    job = await take_job(kernel)
    due = (await kernel.dispatch(command(job))).next_poll_at
    # As after a crash between the outcome and the acknowledgement: the job comes again.
    await transport.defer(job.job_id, clock.now(), "lost")
    clock.advance("59s")
    again = await take_job(kernel)
    result = await kernel.dispatch(command(again))
    assert (result.outcome, result.next_poll_at, result.ghost) == ("suspended", due, False)
    assert calls == [1]
    (record,) = await transport.get_jobs_by_run(run_id)
    assert (record.status, record.due_at) == (Status.SUSPENDED, due)


async def test_a_job_that_is_not_due_does_not_outlive_a_run_that_is_cancelled_meanwhile(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    transport: InMemoryJobTransport,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def wait(ctx: StageContext[Any]) -> Any:
        await ctx.step.sleep("pause", "1h")

    kernel = make_kernel(flow_of(wait))
    run_id = await start_run(kernel)
    job = await take_job(kernel)
    await kernel.dispatch(command(job))
    await transport.defer(job.job_id, clock.now(), "lost")
    again = await take_job(kernel)
    persistence: Any = kernel.ports.persistence
    load = persistence.load_runs

    async def load_and_lose(run_ids: Any, **options: Any) -> Any:
        loaded = await load(run_ids, **options)
        monkeypatch.undo()
        await kernel.dispatch(CancelRun(run_id))
        return loaded

    monkeypatch.setattr(persistence, "load_runs", load_and_lose)
    await kernel.dispatch(command(again))
    (record,) = await transport.get_jobs_by_run(run_id)
    # A queue elsewhere can't be asked under the run's lock; there the job waits until the run is purged.
    assert record.status is (Status.FAILED if kernel.ports.transport_enlists else Status.SUSPENDED)


@pytest.mark.guarantee("kernel.reused-versions-are-left-alone")
async def test_a_job_of_a_version_with_another_structure_is_delivered_once_at_most(
    make_kernel: MakeKernel, start_run: StartRun, finish: Finish
) -> None:
    def flow(*stage_ids: str) -> Workflow:
        builder = define_workflow("flow", input=Any)
        for stage_id in stage_ids:
            builder = builder.stage(stage_id, echo, input=Any, output=Any)
        return builder.version("1").build()

    old, new = make_kernel(flow("s1")), make_kernel(flow("s1", "s2"))
    run_id = await start_run(old)
    # Only where the transport takes part in the transaction can the claim be taken back.
    for job in (await new.dispatch(ClaimJobs("new"))).jobs:
        assert_ghost(await new.dispatch(command(job)), "version")
        await run_job(new, job)
    assert (await new.dispatch(ClaimJobs("new"))).jobs == ()
    (job_record,) = await old.ports.job_transport.get_jobs_by_run(run_id)
    assert (job_record.status, job_record.failures, job_record.worker_losses) == (Status.PENDING, 0, 0)
    assert (await finish(old, run_id)).status is Status.COMPLETED
