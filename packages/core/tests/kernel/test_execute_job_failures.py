"""What a failing body costs: its budget, the pauses, and the failures that no other attempt can help."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from stagewright import (
    BlockingStageContext,
    Kernel,
    NonRetryableError,
    RetryPolicy,
    StageContext,
    Status,
    Workflow,
    define_stage,
    define_workflow,
)
from stagewright.commands import ClaimJobs, ExecuteJob, ExecuteJobResult, JobRef
from stagewright.errors import StageTimeoutError
from stagewright.memory import InMemoryJobTransport
from stagewright.ports import ActivityOutcome, ActivityRun
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


# Time-outs


@pytest.mark.guarantee("kernel.timeouts-bound-one-invocation")
async def test_an_async_body_is_cancelled_at_its_timeout_and_tried_again(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, finish: Finish
) -> None:
    ended: list[str] = []

    async def hang(ctx: StageContext[Any]) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    kernel = make_kernel(flow_of(hang, timeout="5ms", retry=RetryPolicy(2)))
    run = await finish(kernel, await start_run(kernel))
    assert ended == ["cancelled", "cancelled"]
    assert run.error is not None
    assert (run.error.code, run.error.type, run.error.stage_id) == (
        "STAGE_TIMEOUT",
        "StageTimeoutError",
        "s1",
    )


async def test_a_body_that_ignores_its_timeout_does_not_count_as_done(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, take_job: TakeJob, execute: Execute
) -> None:
    async def stubborn(ctx: StageContext[Any]) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "late"
        return "never"

    kernel = make_kernel(flow_of(stubborn, timeout="5ms"))
    await start_run(kernel)
    result = await execute(kernel, await take_job(kernel))
    assert result.error is not None
    assert (result.outcome, result.error.code) == ("failed", "STAGE_TIMEOUT")


async def test_the_late_result_of_a_timed_out_sync_body_is_refused(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    told: Told,
) -> None:
    let_go, ended = threading.Event(), threading.Event()

    def hang(ctx: BlockingStageContext[Any]) -> str:
        let_go.wait(30)
        ctx.log("info", "late")
        ended.set()
        return "late"

    kernel = make_kernel(flow_of(hang, timeout="5ms", retry=RetryPolicy(1)))
    run_id = await start_run(kernel)
    result = await execute(kernel, await take_job(kernel))
    assert result.error is not None
    assert (result.outcome, result.error.code) == ("failed", "STAGE_TIMEOUT")
    let_go.set()
    await asyncio.to_thread(ended.wait, 30)
    assert (await told(kernel, run_id))[-2:] == ["stage:failed", "workflow:failed"]
    assert "late" not in [line.message for line in (await kernel.runs.logs(run_id)).items]


@pytest.mark.parametrize(("retry_on", "retried"), [(StageTimeoutError, True), (ValueError, False)])
async def test_a_policy_may_treat_timeouts_apart(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    retry_on: type[Exception],
    retried: bool,
) -> None:
    async def hang(ctx: StageContext[Any]) -> Any:
        await asyncio.Event().wait()

    kernel = make_kernel(flow_of(hang, timeout="5ms", retry=RetryPolicy(retry_on=retry_on)))
    await start_run(kernel)
    assert (await execute(kernel, await take_job(kernel))).will_retry is retried


async def test_a_timeout_error_of_the_bodys_own_is_an_ordinary_failure(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, take_job: TakeJob, execute: Execute
) -> None:
    async def give_up(ctx: StageContext[Any]) -> Any:
        raise TimeoutError("the server didn't answer")

    kernel = make_kernel(flow_of(give_up, timeout="1h"))
    await start_run(kernel)
    result = await execute(kernel, await take_job(kernel))
    assert result.error is not None
    assert (result.error.code, result.error.type) == ("STAGE_FAILED", "TimeoutError")


# Failures of the executor itself


class BrokenExecutor:
    async def run(self, activity: ActivityRun) -> ActivityOutcome:
        raise ConnectionError("the remote worker is gone")


@pytest.mark.guarantee("kernel.infrastructure-errors-record-nothing")
async def test_an_error_of_the_executor_is_nobodys_failure(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    transport: InMemoryJobTransport,
    clock: FakeClock,
    finish: Finish,
) -> None:
    kernel = make_kernel(flow_of(echo), executor=BrokenExecutor())
    run_id = await start_run(kernel, 1)
    job = await take_job(kernel)
    command = ExecuteJob(run_id, "flow", "s1", job=JobRef(job.job_id, job.fence), idempotency_key="k")
    for _ in range(2):
        with pytest.raises(ConnectionError):
            await kernel.dispatch(command)
    (stage,) = await kernel.runs.stages(run_id)
    assert (stage.status, stage.error) == (Status.RUNNING, None)
    (record,) = await transport.get_jobs_by_run(run_id)
    assert (record.status, record.failures) == (Status.RUNNING, 0)
    clock.advance("1m")
    await transport.release_stale(timedelta(seconds=45))
    assert (await finish(make_kernel(flow_of(echo)), run_id)).output == 1
