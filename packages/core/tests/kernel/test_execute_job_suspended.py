"""Stages that wait for work elsewhere: what they leave, when they are due, and with what they resume."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from stagewright import (
    Kernel,
    StageContext,
    Status,
    Suspend,
    Workflow,
    define_workflow,
)
from stagewright.annotations import TypedKey, typed_key
from stagewright.commands import ExecuteJobResult
from stagewright.definitions import NotReady
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

CONFIDENCE: TypedKey[float] = typed_key("decision.confidence")


async def suspends(ctx: StageContext[Any]) -> Any:
    return Suspend({"batch": 7}, poll_interval="2m", max_wait="1h")


async def not_ready(state: Any, ctx: StageContext[Any]) -> NotReady:
    return NotReady()


def batch(body: Callable[..., Any]) -> Workflow:
    return (
        define_workflow("flow", input=Any)
        .stage("s1", body, input=Any, output=Any, mode="async-batch", check_completion=not_ready)
        .build()
    )


@pytest.mark.guarantee("kernel.suspended-stages-keep-their-state")
async def test_a_suspended_stage_keeps_its_state_and_says_when_it_is_due(
    make_kernel: MakeKernel,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    clock: FakeClock,
    transport: InMemoryJobTransport,
) -> None:
    kernel = make_kernel(batch(suspends))
    run_id = await start_run(kernel)
    result = await execute(kernel, await take_job(kernel))
    due = clock.now() + timedelta(minutes=2)
    assert result == ExecuteJobResult(outcome="suspended", next_poll_at=due)
    (stage,) = await kernel.runs.stages(run_id)
    assert (stage.status, stage.suspended_state, stage.next_poll_at) == (Status.SUSPENDED, {"batch": 7}, due)
    assert (stage.poll_interval, stage.max_wait_until) == (
        timedelta(minutes=2),
        clock.now() + timedelta(hours=1),
    )
    assert (stage.completed_at, stage.error) == (None, None)
    run = await kernel.runs.get(run_id)
    assert run is not None
    assert run.status is Status.RUNNING, "a run whose stage waits goes on"
    (job,) = await transport.get_jobs_by_run(run_id)
    assert (job.status, job.due_at, job.failures) == (Status.SUSPENDED, due, 0)


async def test_without_times_of_its_own_a_suspension_has_the_defaults(
    make_kernel: MakeKernel, start_run: StartRun, take_job: TakeJob, execute: Execute, clock: FakeClock
) -> None:
    async def plainly(ctx: StageContext[Any]) -> Any:
        return Suspend("state")

    kernel = make_kernel(batch(plainly))
    run_id = await start_run(kernel)
    assert (await execute(kernel, await take_job(kernel))).next_poll_at == clock.now() + timedelta(seconds=30)
    (stage,) = await kernel.runs.stages(run_id)
    assert stage.max_wait_until == clock.now() + timedelta(hours=24)


async def test_a_suspension_beyond_the_calendar_fails_the_stage_and_not_the_worker(
    make_kernel: MakeKernel, start_run: StartRun, take_job: TakeJob, execute: Execute
) -> None:
    async def forever(ctx: StageContext[Any]) -> Any:
        return Suspend("state", poll_interval=timedelta(days=3_650_000 - 5), max_wait="7d")

    kernel = make_kernel(batch(forever))
    run_id = await start_run(kernel)
    result = await execute(kernel, await take_job(kernel))
    assert (result.outcome, result.will_retry) == ("failed", False)
    run = await kernel.runs.get(run_id)
    assert run is not None
    assert run.status is Status.FAILED


@pytest.mark.parametrize("state", [float("nan"), {"a": object()}, "nul\x00"])
async def test_a_state_that_can_not_be_stored_fails_the_stage_at_once(
    make_kernel: MakeKernel, start_run: StartRun, take_job: TakeJob, execute: Execute, state: Any
) -> None:
    async def odd(ctx: StageContext[Any]) -> Any:
        return Suspend(state)

    kernel = make_kernel(batch(odd))
    await start_run(kernel)
    result = await execute(kernel, await take_job(kernel))
    assert (result.outcome, result.will_retry) == ("failed", False)


async def test_a_due_stage_resumes_with_the_state_it_left(
    make_kernel: MakeKernel,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    transport: InMemoryJobTransport,
    clock: FakeClock,
    told: Told,
) -> None:
    seen: list[object] = []

    async def twice(ctx: StageContext[Any]) -> Any:
        seen.append(ctx.resume_state)
        return Suspend({"n": 1}) if ctx.resume_state is None else "resumed"

    kernel = make_kernel(batch(twice))
    run_id = await start_run(kernel)
    job = await take_job(kernel)
    await execute(kernel, job)
    clock.advance("30s")
    await transport.defer(job.job_id, clock.now(), "due")
    assert (await execute(kernel, await take_job(kernel))).output == "resumed"
    assert seen == [None, {"n": 1}]
    run = await kernel.runs.get(run_id)
    assert run is not None
    assert (run.status, run.output) == (Status.COMPLETED, "resumed")
    assert (await told(kernel, run_id)).count("stage:started") == 1
