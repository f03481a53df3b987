"""Bodies that take too long, and executors that can't run them at all."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from stagewright import (
    BlockingStageContext,
    Kernel,
    RetryPolicy,
    StageContext,
    Status,
    Workflow,
)
from stagewright.commands import ExecuteJob, ExecuteJobResult, JobRef
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


async def echo(ctx: StageContext[Any]) -> Any:
    return ctx.input


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


async def test_an_async_body_that_blocks_beyond_its_timeout_is_late_all_the_same(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, take_job: TakeJob, execute: Execute
) -> None:
    async def blocks(ctx: StageContext[Any]) -> str:
        # Nothing awaits, so no cancellation can come through before it returns.
        until = time.monotonic() + 0.02
        while time.monotonic() < until:
            pass
        return "late"

    kernel = make_kernel(flow_of(blocks, timeout="5ms"))
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
