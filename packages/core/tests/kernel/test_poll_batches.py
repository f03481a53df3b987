"""`stage.pollSuspended` on `mode="async-batch"`: asked by one poller at a time, recorded only while it is wanted."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from stagewright import (
    BlockingStageContext,
    Kernel,
    NonRetryableError,
    NotReady,
    Ready,
    RetryPolicy,
    StageContext,
    StageResult,
    Status,
    Suspend,
    Workflow,
    define_workflow,
)
from stagewright.commands import (
    CancelRun,
    ClaimJobs,
    ExecuteJobResult,
    PollSuspendedStages,
    PollSuspendedStagesResult,
    TransitionRun,
)
from stagewright.errors import StageOutputMissingError, TransientError
from stagewright.memory import InMemoryDatabase, InMemoryJobTransport, InMemoryStepLedger
from stagewright.records import AnnotationQuery, DequeuedJob, RunRecord, StageRecord
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
StartRun = Callable[..., Awaitable[str]]
TakeJob = Callable[..., Awaitable[DequeuedJob]]
Execute = Callable[..., Coroutine[Any, Any, ExecuteJobResult]]
Told = Callable[[Kernel, str], Awaitable[list[str]]]
FailAt = Callable[..., None]
Submit = Callable[..., Awaitable[str]]

pytestmark = pytest.mark.parametrize("transport", ["enlisting", "separate"], indirect=True)

NOTHING = PollSuspendedStagesResult(0, 0, 0, ())
WAITING = PollSuspendedStagesResult(1, 0, 0, ())


class Total(BaseModel):
    total: int


async def submits(ctx: StageContext[Any]) -> Any:
    return Suspend({"batch": 7}, poll_interval="2m", max_wait="1h")


async def echo(ctx: StageContext[Any]) -> Any:
    return ctx.input


def batch(check: Callable[..., Any], *, output: Any = Any, **options: Any) -> Workflow:
    return (
        define_workflow("flow", input=Any)
        .stage("s1", submits, input=Any, output=output, mode="async-batch", check_completion=check, **options)
        .stage("s2", echo, input=Any, output=Any)
        .build()
    )


@pytest.fixture
def submit(start_run: StartRun, take_job: TakeJob, execute: Execute) -> Submit:
    """`await submit(kernel)`: a run whose batch is at work, due in two minutes."""

    async def begin(kernel: Kernel) -> str:
        run_id = await start_run(kernel, "in")
        assert (await execute(kernel, await take_job(kernel))).outcome == "suspended"
        return run_id

    return begin


async def poll(kernel: Kernel) -> PollSuspendedStagesResult:
    return await kernel.dispatch(PollSuspendedStages())


async def stage_of(kernel: Kernel, run_id: str) -> StageRecord:
    return (await kernel.runs.stages(run_id))[0]


async def run_of(kernel: Kernel, run_id: str) -> RunRecord:
    run = await kernel.runs.get(run_id)
    assert run is not None
    return run


async def test_a_ready_batch_completes_its_stage_and_the_next_group_is_open(
    make_kernel: MakeKernel,
    submit: Submit,
    take_job: TakeJob,
    execute: Execute,
    transport: InMemoryJobTransport,
    clock: FakeClock,
    told: Told,
) -> None:
    seen: list[object] = []

    async def check(state: Any, ctx: StageContext[Any]) -> Any:
        seen.append((state, ctx.input, ctx.resume_state, ctx.attempt, ctx.stage_record_id))
        ctx.log("INFO", "asked")
        ctx.annotate("batch.state", "done", emit_event=True)
        return Ready(StageResult(output=state["batch"], metrics={"rows": 3}, artifacts={"report": [1]}))

    kernel = make_kernel(batch(check))
    run_id = await submit(kernel)
    assert await poll(kernel) == NOTHING
    clock.advance("2m")
    assert await poll(kernel) == PollSuspendedStagesResult(1, 1, 0, (run_id,))
    stage = await stage_of(kernel, run_id)
    assert seen == [({"batch": 7}, "in", {"batch": 7}, 1, stage.id)]
    assert (stage.status, stage.next_poll_at, stage.error) == (Status.COMPLETED, None, None)
    assert (stage.completed_at, stage.duration) == (clock.now(), timedelta(minutes=2))
    assert stage.metrics == {"rows": 3}
    assert await kernel.runs.output_of(run_id, "s1") == 7
    assert [line.message for line in (await kernel.runs.logs(run_id)).items] == ["asked"]
    jobs = {job.stage_id: job.status for job in await transport.get_jobs_by_run(run_id)}
    assert jobs == {"s1": Status.COMPLETED, "s2": Status.PENDING}
    assert (await kernel.dispatch(TransitionRun(run_id))).action == "noop"
    assert (await execute(kernel, await take_job(kernel))).output == 7
    events = await told(kernel, run_id)
    assert events.index("annotation:created") < events.index("workflow:completed")
    assert events.count("stage:completed") == 2
    assert events.count("stage:suspended") == 1
    assert await poll(kernel) == NOTHING


@pytest.mark.parametrize(("next_check_in", "minutes"), [(None, 2), ("5m", 5), ("2h", 58)])
async def test_a_batch_that_is_not_ready_is_asked_again_when_it_says(
    make_kernel: MakeKernel,
    submit: Submit,
    clock: FakeClock,
    told: Told,
    next_check_in: str | None,
    minutes: int,
) -> None:
    async def check(state: Any, ctx: StageContext[Any]) -> Any:
        ctx.annotate("progress", 1)
        return NotReady(next_check_in)

    kernel = make_kernel(batch(check))
    run_id = await submit(kernel)
    before = await told(kernel, run_id)
    clock.advance("2m")
    assert await poll(kernel) == WAITING
    stage = await stage_of(kernel, run_id)
    assert (stage.status, stage.next_poll_at) == (
        Status.SUSPENDED,
        clock.now() + timedelta(minutes=minutes),
    )
    assert await told(kernel, run_id) == before, "a look is no suspension"
    assert len(await kernel.ports.persistence.list_annotations(run_id, AnnotationQuery())) == 1
    assert await poll(kernel) == NOTHING


async def test_ready_wins_over_the_end_of_its_wait_and_not_ready_does_not(
    make_kernel: MakeKernel, submit: Submit, clock: FakeClock, transport: InMemoryJobTransport, told: Told
) -> None:
    answers: list[Any] = [Ready("late"), NotReady()]

    async def check(state: Any, ctx: StageContext[Any]) -> Any:
        return answers.pop(0)

    kernel = make_kernel(batch(check))
    lucky, late = await submit(kernel), await submit(kernel)
    clock.advance("61m")
    first = await kernel.dispatch(PollSuspendedStages(max_checks=1))
    assert first.resumed_run_ids == (lucky,)
    assert await poll(kernel) == PollSuspendedStagesResult(1, 0, 1, ())
    stage, run = await stage_of(kernel, late), await run_of(kernel, late)
    assert (stage.status, run.status, run.error) == (Status.FAILED, Status.FAILED, stage.error)
    assert run.error is not None
    assert run.error.code == "MAX_WAIT_EXCEEDED"
    assert "max_wait" in run.error.message
    assert "'s1'" in run.error.message
    assert (await told(kernel, late))[-2:] == ["stage:failed", "workflow:failed"]
    (job,) = await transport.get_jobs_by_run(late)
    assert job.status is Status.FAILED


@pytest.mark.guarantee("kernel.a-failed-check-spends-an-attempt-and-no-second-batch")
async def test_a_check_that_raises_spends_an_attempt_and_submits_nothing_anew(
    make_kernel: MakeKernel, submit: Submit, clock: FakeClock, transport: InMemoryJobTransport, told: Told
) -> None:
    async def check(state: Any, ctx: StageContext[Any]) -> Any:
        ctx.annotate("asked", True)
        raise OSError("the service is away")

    kernel = make_kernel(batch(check, retry=RetryPolicy(max_attempts=2)))
    run_id = await submit(kernel)
    clock.advance("2m")
    assert await poll(kernel) == WAITING
    stage = await stage_of(kernel, run_id)
    assert (stage.status, stage.attempt) == (Status.SUSPENDED, 1)
    assert stage.next_poll_at == clock.now() + timedelta(minutes=2)
    assert stage.error is not None
    assert "away" in stage.error.message
    (job,) = await transport.get_jobs_by_run(run_id)
    assert (job.status, job.failures) == (Status.SUSPENDED, 1)
    assert (await kernel.dispatch(ClaimJobs("w"))).jobs == ()
    clock.advance("2m")
    assert await poll(kernel) == PollSuspendedStagesResult(1, 0, 1, ())
    (job,) = await transport.get_jobs_by_run(run_id)
    assert (job.status, job.failures) == (Status.FAILED, 2)
    assert (await run_of(kernel, run_id)).status is Status.FAILED
    assert (await told(kernel, run_id))[-3:] == ["stage:retrying", "stage:failed", "workflow:failed"]
    assert len(await kernel.ports.persistence.list_annotations(run_id, AnnotationQuery())) == 2


async def refuses(state: Any, ctx: StageContext[Any]) -> Any:
    raise NonRetryableError("no such batch")


async def answers_oddly(state: Any, ctx: StageContext[Any]) -> Any:
    return "done"


async def suspends_again(state: Any, ctx: StageContext[Any]) -> Any:
    return Ready(Suspend("again"))


async def gives_nonsense(state: Any, ctx: StageContext[Any]) -> Any:
    return Ready({"total": "many"})


@pytest.mark.parametrize("check", [refuses, answers_oddly, suspends_again, gives_nonsense])
async def test_what_asking_again_can_not_mend_fails_at_once(
    make_kernel: MakeKernel, submit: Submit, clock: FakeClock, check: Callable[..., Any]
) -> None:
    kernel = make_kernel(batch(check, output=Total))
    run_id = await submit(kernel)
    clock.advance("2m")
    assert await poll(kernel) == PollSuspendedStagesResult(1, 0, 1, ())
    assert (await run_of(kernel, run_id)).status is Status.FAILED
    with pytest.raises(StageOutputMissingError):
        await kernel.runs.output_of(run_id, "s1")


@pytest.mark.tampers
async def test_a_plain_check_runs_in_a_thread_and_within_the_stages_timeout(
    make_kernel: MakeKernel, submit: Submit, clock: FakeClock
) -> None:
    def check(state: Any, ctx: BlockingStageContext[Any]) -> Any:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        return Ready(state["batch"])

    async def hangs(state: Any, ctx: StageContext[Any]) -> Any:
        await asyncio.Event().wait()

    kernel = make_kernel(batch(check))
    run_id = await submit(kernel)
    clock.advance("2m")
    assert (await poll(kernel)).resumed == 1
    assert await kernel.runs.output_of(run_id, "s1") == 7
    slow = make_kernel(batch(hangs, timeout="10ms", retry=RetryPolicy(max_attempts=1)))
    run_id = await submit_in(slow, submit)
    clock.advance("2m")
    assert (await poll(slow)).failed == 1
    run = await run_of(slow, run_id)
    assert run.error is not None
    assert run.error.code == "STAGE_TIMEOUT"


async def submit_in(kernel: Kernel, submit: Submit) -> str:
    # What another build has left is executed first, so that the batch is this kernel's own.
    for job in (await kernel.dispatch(ClaimJobs("w", limit=9, serves="all"))).jobs:
        await kernel.ports.job_transport.complete(job.job_id, job.fence)
    return await submit(kernel)


@pytest.mark.guarantee("kernel.a-batch-is-asked-by-one-poller-at-a-time")
async def test_of_several_pollers_one_asks_and_a_dead_one_is_waited_for_no_longer_than_its_claim(
    make_kernel: MakeKernel, submit: Submit, clock: FakeClock
) -> None:
    asked, answer = 0, asyncio.Event()

    async def check(state: Any, ctx: StageContext[Any]) -> Any:
        nonlocal asked
        asked += 1
        await answer.wait()
        return Ready(asked)

    kernel = make_kernel(batch(check))
    run_id = await submit(kernel)
    clock.advance("2m")
    polls = [asyncio.create_task(poll(kernel)) for _ in range(4)]
    await asyncio.sleep(0.05)
    assert asked == 1
    clock.advance("119s")
    assert await poll(kernel) == NOTHING, "the claim lasts as long as the poll interval"
    clock.advance("1s")
    later = asyncio.create_task(poll(kernel))
    await asyncio.sleep(0.05)
    assert asked == 2, "whoever claimed it before counts as dead"
    answer.set()
    results = [*await asyncio.gather(*polls), await later]
    assert sum(result.resumed for result in results) == 1
    stage = await stage_of(kernel, run_id)
    assert stage.status is Status.COMPLETED
    assert (await kernel.runs.output_of(run_id, "s1")) == 2, "the first one's claim was over"


async def test_a_claim_is_cut_at_the_end_of_the_wait(
    make_kernel: MakeKernel, submit: Submit, clock: FakeClock
) -> None:
    held = asyncio.Event()

    async def check(state: Any, ctx: StageContext[Any]) -> Any:
        await held.wait()
        return NotReady()

    kernel = make_kernel(batch(check))
    run_id = await submit(kernel)
    clock.advance("59m")
    polling = asyncio.create_task(poll(kernel))
    await asyncio.sleep(0.05)
    stage = await stage_of(kernel, run_id)
    assert stage.next_poll_at == clock.now() + timedelta(minutes=1)
    held.set()
    assert await polling == WAITING


async def test_a_cancel_during_a_check_has_the_last_word(
    make_kernel: MakeKernel, submit: Submit, clock: FakeClock, told: Told
) -> None:
    begun, answer = asyncio.Event(), asyncio.Event()

    async def check(state: Any, ctx: StageContext[Any]) -> Any:
        begun.set()
        await answer.wait()
        return Ready("x" * 100)

    kernel = make_kernel(batch(check), spill_threshold_bytes=10)
    run_id = await submit(kernel)
    clock.advance("2m")
    polling = asyncio.create_task(poll(kernel))
    await begun.wait()
    await kernel.dispatch(CancelRun(run_id))
    answer.set()
    assert await polling == WAITING
    stage = await stage_of(kernel, run_id)
    assert (stage.status, stage.next_poll_at) == (Status.CANCELLED, None)
    assert (await told(kernel, run_id))[-1] == "workflow:cancelled"
    assert [key async for key in kernel.ports.blob_store.list("")] == []


async def test_one_batch_that_fails_stops_no_other(
    make_kernel: MakeKernel, submit: Submit, clock: FakeClock
) -> None:
    async def check(state: Any, ctx: StageContext[Any]) -> Any:
        if ctx.run_id == broken:
            raise NonRetryableError("no")
        return Ready("fine")

    kernel = make_kernel(batch(check))
    first, broken, last = await submit(kernel), await submit(kernel), await submit(kernel)
    clock.advance("2m")
    assert await poll(kernel) == PollSuspendedStagesResult(3, 2, 1, (first, last))


async def test_a_check_whose_outcome_could_not_be_recorded_is_repeated(
    make_kernel: MakeKernel, submit: Submit, clock: FakeClock, fail_at: FailAt
) -> None:
    asked = 0

    async def check(state: Any, ctx: StageContext[Any]) -> Any:
        nonlocal asked
        asked += 1
        return Ready("fine")

    kernel = make_kernel(batch(check))
    run_id = await submit(kernel)
    clock.advance("2m")
    fail_at("begin", nth=2, times=3, error=TransientError("the database is restarting"))
    with pytest.raises(TransientError):
        await poll(kernel)
    assert (await stage_of(kernel, run_id)).status is Status.SUSPENDED
    clock.advance("2m")
    assert (await poll(kernel)).resumed_run_ids == (run_id,)
    assert asked == 2


async def test_a_check_may_have_steps_and_is_asked_again_when_they_are_through(
    make_kernel: MakeKernel, submit: Submit, clock: FakeClock, database: InMemoryDatabase
) -> None:
    fetched = 0

    async def check(state: Any, ctx: StageContext[Any]) -> Any:
        async def fetch() -> int:
            nonlocal fetched
            fetched += 1
            return fetched

        number = await ctx.step.run("fetch", fetch)
        await ctx.step.sleep("settle", "10m")
        return Ready(number)

    kernel = make_kernel(batch(check), step_ledger=InMemoryStepLedger(database))
    run_id = await submit(kernel)
    clock.advance("2m")
    assert await poll(kernel) == WAITING
    assert (await stage_of(kernel, run_id)).next_poll_at == clock.now() + timedelta(minutes=10)
    clock.advance("10m")
    assert (await poll(kernel)).resumed_run_ids == (run_id,)
    assert (await kernel.runs.output_of(run_id, "s1"), fetched) == (1, 1)
