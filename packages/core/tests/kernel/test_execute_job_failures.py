"""What a failing body costs: its budget, the pauses, and the failures that no other attempt can help."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from stagewright import (
    Kernel,
    NonRetryableError,
    RetryPolicy,
    StageContext,
    Status,
    Workflow,
    define_stage,
    define_workflow,
)
from stagewright.commands import ClaimJobs, ExecuteJob, ExecuteJobResult
from stagewright.memory import InMemoryJobTransport
from stagewright.records import DequeuedJob, RunRecord
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
StartRun = Callable[..., Awaitable[str]]
TakeJob = Callable[[Kernel], Awaitable[DequeuedJob]]
Execute = Callable[..., Awaitable[ExecuteJobResult]]
Finish = Callable[[Kernel, str], Awaitable[RunRecord]]
Told = Callable[[Kernel, str], Awaitable[list[str]]]

pytestmark = pytest.mark.parametrize("transport", ["enlisting", "separate"], indirect=True)


async def fail(ctx: StageContext[Any]) -> Any:
    raise LookupError(f"attempt {ctx.attempt}")


async def echo(ctx: StageContext[Any]) -> Any:
    return ctx.input


@pytest.mark.guarantee("kernel.failures-have-a-budget")
@pytest.mark.parametrize(
    ("retry", "attempts"), [(None, 3), (RetryPolicy(max_attempts=1), 1), (RetryPolicy(5), 5)]
)
async def test_a_body_is_tried_as_often_as_its_budget_says(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    finish: Finish,
    told: Told,
    retry: RetryPolicy | None,
    attempts: int,
) -> None:
    kernel = make_kernel(flow_of(fail, echo, retry=retry))
    run = await finish(kernel, await start_run(kernel))
    assert run.status is Status.FAILED
    assert run.error is not None
    assert (run.error.code, run.error.type, run.error.message) == (
        "STAGE_FAILED",
        "LookupError",
        f"attempt {attempts}",
    )
    assert run.error.stage_id == "s1"
    assert "raise LookupError" in (run.error.traceback or "")
    (stage,) = await kernel.runs.stages(run.id)
    assert (stage.status, stage.attempt, stage.error) == (Status.FAILED, attempts, run.error)
    story = await told(kernel, run.id)
    assert story.count("stage:started") == attempts
    assert story.count("stage:retrying") == attempts - 1
    assert story[-2:] == ["stage:failed", "workflow:failed"]


async def test_a_failure_says_what_follows(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    transport: InMemoryJobTransport,
    clock: FakeClock,
) -> None:
    kernel = make_kernel(flow_of(fail, retry=RetryPolicy(2, delay="10s", jitter=False)))
    run_id = await start_run(kernel)
    first = await execute(kernel, await take_job(kernel))
    assert (first.outcome, first.will_retry, first.retryable, first.ghost) == ("failed", True, True, False)
    assert first.error is not None
    assert str(first.error) == "LookupError: attempt 1"
    (stage,) = await kernel.runs.stages(run_id)
    assert (stage.status, stage.attempt, stage.error, stage.completed_at) == (
        Status.PENDING,
        2,
        first.error,
        None,
    )
    (job,) = await transport.get_jobs_by_run(run_id)
    assert (job.status, job.failures, job.due_at) == (Status.PENDING, 1, clock.now() + timedelta(seconds=10))
    assert job.last_error == "LookupError: attempt 1"
    (retrying,) = [event for event in await kernel.runs.events(run_id) if event.type == "stage:retrying"]
    assert retrying.payload == {
        "stage_id": "s1",
        "stage_name": "s1",
        "attempt": 1,
        "max_attempts": 2,
        "error": "LookupError: attempt 1",
    }
    clock.advance("10s")
    second = await execute(kernel, await take_job(kernel))
    assert (second.outcome, second.will_retry, second.retryable) == ("failed", False, True)
    (job,) = await transport.get_jobs_by_run(run_id)
    assert (job.status, job.failures, job.worker_losses) == (Status.FAILED, 2, 0)
    levels = [(line.level, line.stage_id) for line in (await kernel.runs.logs(run_id)).items]
    assert levels == [("WARN", "s1"), ("ERROR", "s1")]


@pytest.mark.guarantee("kernel.retries-wait")
async def test_the_pauses_between_attempts_grow(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    clock: FakeClock,
) -> None:
    kernel = make_kernel(flow_of(fail, retry=RetryPolicy(4, delay="2s", factor=3, max_delay="10s")))
    await start_run(kernel)
    for pause in (2, 6, 10):
        assert (await execute(kernel, await take_job(kernel))).will_retry
        clock.advance(pause - 0.001)
        assert (await kernel.dispatch(ClaimJobs("w"))).jobs == ()
        clock.advance(0.001)
    assert not (await execute(kernel, await take_job(kernel))).will_retry


@pytest.mark.parametrize("days", [400, 1_000_000, 3_600_000])
async def test_a_pause_of_any_length_neither_overflows_nor_fires_at_once(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    clock: FakeClock,
    days: int,
) -> None:
    pause = timedelta(days=days)
    kernel = make_kernel(flow_of(fail, echo, retry=RetryPolicy(5_000, delay=pause, max_delay=pause)))
    await start_run(kernel)
    assert (await execute(kernel, await take_job(kernel))).will_retry
    clock.advance("399d")
    assert (await kernel.dispatch(ClaimJobs("w"))).jobs == ()
    other = await start_run(kernel)
    assert (await take_job(kernel)).run_id == other


@pytest.mark.parametrize(
    "error", [NonRetryableError("give up"), type("Final", (NonRetryableError,), {})("x")]
)
async def test_a_non_retryable_error_fails_at_once(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    error: Exception,
) -> None:
    async def give_up(ctx: StageContext[Any]) -> Any:
        raise error

    kernel = make_kernel(flow_of(give_up))
    run_id = await start_run(kernel)
    result = await execute(kernel, await take_job(kernel))
    assert (result.outcome, result.will_retry, result.retryable) == ("failed", False, False)
    run = await kernel.runs.get(run_id)
    assert run is not None
    assert (run.status, run.error) == (Status.FAILED, result.error)


@pytest.mark.parametrize(
    ("retry_on", "retried"),
    [
        (LookupError, True),
        (KeyError, False),
        ((OSError, LookupError), True),
        ((), False),
        (lambda error: "attempt" in str(error), True),
        (lambda error: False, False),
        (lambda error: 1 // 0, True),
    ],
)
async def test_retry_on_decides_which_errors_are_worth_it(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    retry_on: Any,
    retried: bool,
) -> None:
    kernel = make_kernel(flow_of(fail, retry=RetryPolicy(retry_on=retry_on)))
    await start_run(kernel)
    result = await execute(kernel, await take_job(kernel))
    assert (result.will_retry, result.retryable) == (retried, retried)


async def test_a_stage_that_no_job_delivered_gets_no_second_attempt(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, told: Told
) -> None:
    kernel = make_kernel(flow_of(fail))
    run_id = await start_run(kernel)
    result = await kernel.dispatch(ExecuteJob(run_id, "flow", "s1"))
    assert (result.outcome, result.will_retry) == ("failed", False)
    assert (await told(kernel, run_id))[-1] == "stage:failed"


async def test_lost_workers_and_hand_backs_cost_no_failure(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    transport: InMemoryJobTransport,
    clock: FakeClock,
) -> None:
    kernel = make_kernel(flow_of(fail, retry=RetryPolicy(2, max_worker_losses=9)))
    run_id = await start_run(kernel)
    for _ in range(3):
        job = await take_job(kernel)
        clock.advance("1m")
        await transport.release_stale(timedelta(seconds=45))
        job = await take_job(kernel)
        await transport.defer(job.job_id, clock.now(), "draining", job.fence)
    assert (await execute(kernel, await take_job(kernel))).will_retry
    (record,) = await transport.get_jobs_by_run(run_id)
    assert (record.failures, record.worker_losses, record.interruptions) == (1, 3, 3)


@pytest.mark.guarantee("kernel.a-failed-stage-lets-its-siblings-end")
async def test_a_failed_stage_fails_the_run_once_its_siblings_have_ended(
    make_kernel: MakeKernel, start_run: StartRun, take_job: TakeJob, execute: Execute, told: Told
) -> None:
    async def refuse(ctx: StageContext[Any]) -> Any:
        raise NonRetryableError("no")

    failing = define_stage("a", refuse, input=Any, output=Any)
    slow = define_stage("b", echo, input=Any, output=Any)
    kernel = make_kernel(define_workflow("flow", input=Any).parallel(failing, slow).build())
    run_id = await start_run(kernel)
    assert (await execute(kernel, await take_job(kernel))).outcome == "failed"
    run = await kernel.runs.get(run_id)
    assert run is not None
    assert run.status is Status.RUNNING
    assert (await execute(kernel, await take_job(kernel))).outcome == "completed"
    run = await kernel.runs.get(run_id)
    assert run is not None
    assert run.error is not None
    assert (run.status, run.error.stage_id) == (Status.FAILED, "a")
    assert (await told(kernel, run_id))[-3:] == ["stage:failed", "stage:completed", "workflow:failed"] or (
        (await told(kernel, run_id))[-1] == "workflow:failed"
    )


async def test_a_sibling_with_an_attempt_left_keeps_the_run_going(
    make_kernel: MakeKernel, start_run: StartRun, finish: Finish
) -> None:
    async def second_time(ctx: StageContext[Any]) -> int:
        if ctx.attempt == 1:
            raise ValueError("once")
        return ctx.attempt

    flaky = define_stage("a", second_time, input=Any, output=int)
    steady = define_stage("b", echo, input=Any, output=Any)
    kernel = make_kernel(define_workflow("flow", input=Any).parallel(flaky, steady).build())
    run = await finish(kernel, await start_run(kernel, "x"))
    assert run.output == {"a": 2, "b": "x"}
