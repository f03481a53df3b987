"""Signals that come at the worst moment: at a deadline, between a look and a suspension, during a check, in a crash."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from typing import Any

import pytest

from stagewright import (
    Kernel,
    Ready,
    StageContext,
    Status,
    Suspend,
    Workflow,
)
from stagewright.commands import ClaimJobs, ExecuteJobResult, PollSuspendedStages, SignalStepResult
from stagewright.memory import InMemoryStepLedger
from stagewright.records import DequeuedJob, RunRecord
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
StartRun = Callable[..., Awaitable[str]]
TakeJob = Callable[..., Awaitable[DequeuedJob]]
Execute = Callable[..., Coroutine[Any, Any, ExecuteJobResult]]
Resume = Callable[[Kernel, str], Awaitable[None]]
Finish = Callable[[Kernel, str], Awaitable[RunRecord]]
Signal = Callable[..., Coroutine[Any, Any, SignalStepResult]]
Told = Callable[[Kernel, str], Awaitable[list[str]]]
Once = Callable[..., Coroutine[Any, Any, ExecuteJobResult]]
HoldAt = Callable[..., tuple[asyncio.Event, asyncio.Event]]
Hours = Callable[[float], datetime]

Ctx = StageContext[Any]


async def waits(ctx: Ctx) -> Any:
    return await ctx.step.wait_for_signal("go", timeout="3h", keepalive="1h")


@pytest.mark.parametrize("signalled_first", [True, False])
async def test_at_the_deadline_whoever_is_recorded_first_wins(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    resume: Resume,
    signal: Signal,
    signalled_first: bool,
) -> None:
    async def body(ctx: Ctx) -> Any:
        return await ctx.step.wait_for_signal("go", timeout="1h", keepalive="9h")

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    await execute(kernel, await take_job(kernel))
    await resume(kernel, run_id)
    job = await take_job(kernel)
    if signalled_first:
        assert (await signal(kernel, run_id, "just in time")).delivered
        assert (await execute(kernel, job)).output == "just in time"
    else:
        assert (await execute(kernel, job)).outcome == "failed"


@pytest.mark.parametrize("moment", ["get_signal", "step_ledger.compare_and_set", "commit"])
@pytest.mark.guarantee("steps.signals-tell-the-truth")
async def test_a_signal_that_races_the_deadline_is_delivered_or_refused(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    resume: Resume,
    signal: Signal,
    hold_at: HoldAt,
    moment: str,
) -> None:
    async def body(ctx: Ctx) -> Any:
        return await ctx.step.wait_for_signal("go", timeout="1h", keepalive="9h")

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    await execute(kernel, await take_job(kernel))
    await resume(kernel, run_id)
    job = await take_job(kernel)
    reached, go = hold_at(moment)
    executing = asyncio.create_task(execute(kernel, job))
    await reached.wait()
    sending = asyncio.create_task(signal(kernel, run_id, "late"))
    for _ in range(50):
        await asyncio.sleep(0)
    go.set()
    result, answer = await asyncio.gather(executing, sending, return_exceptions=True)
    assert isinstance(result, ExecuteJobResult)
    if result.outcome == "completed":
        assert (result.output, answer) == ("late", SignalStepResult(True, False))
    else:
        assert result.error is not None
        assert result.error.type == "StepTimeoutError"
        assert isinstance(answer, Exception)


@pytest.mark.parametrize(
    "moment", ["step_ledger.list", "step_ledger.claim", "get_signal", "load_runs", "begin"]
)
@pytest.mark.guarantee("steps.a-signal-resumes-its-stage-at-once")
async def test_a_signal_between_the_look_and_the_suspension_is_not_overlooked(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    signal: Signal,
    hold_at: HoldAt,
    hours: Hours,
    moment: str,
) -> None:
    """Wherever the body is when the signal comes, it goes on at once."""
    kernel = make_kernel(flow_of(waits))
    run_id = await start_run(kernel)
    job = await take_job(kernel)
    # The loading of the run comes first; the outcome's transaction is the second time.
    reached, go = hold_at(moment, nth=2 if moment == "load_runs" else 1)
    executing = asyncio.create_task(execute(kernel, job))
    await reached.wait()
    sending = asyncio.create_task(signal(kernel, run_id, "now"))
    for _ in range(100):
        await asyncio.sleep(0)
    go.set()
    result = await executing
    assert (await sending).delivered
    if result.outcome == "suspended":
        await kernel.dispatch(PollSuspendedStages())
        result = await execute(kernel, await take_job(kernel))
    assert result.output == "now"
    assert await kernel.runs.signals(run_id) == []


async def test_a_re_suspension_keeps_the_earlier_time(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    signal: Signal,
    hours: Hours,
) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def body(ctx: Ctx) -> Any:
        begun.set()
        await go.wait()
        await ctx.step.sleep("pause", "2h")

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    running = asyncio.create_task(execute(kernel, await take_job(kernel)))
    await begun.wait()
    (before,) = await kernel.ports.persistence.get_stages_by_run(run_id)
    await signal(kernel, run_id, step_id="later")
    (stage,) = await kernel.ports.persistence.get_stages_by_run(run_id)
    assert (stage.nudged_at, stage.version) == (hours(0), before.version)
    go.set()
    assert (await running).next_poll_at == hours(0), "the body may have overlooked the signal"
    await kernel.dispatch(PollSuspendedStages())
    assert (await execute(kernel, await take_job(kernel))).next_poll_at == hours(2)
    (stage,) = await kernel.ports.persistence.get_stages_by_run(run_id)
    assert stage.nudged_at is None


async def test_a_signal_for_another_step_disturbs_no_wait(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    signal: Signal,
    hours: Hours,
) -> None:
    async def body(ctx: Ctx) -> Any:
        await ctx.step.sleep("pause", "2h")

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    await execute(kernel, await take_job(kernel))
    await signal(kernel, run_id, step_id="later")
    (stage,) = await kernel.runs.stages(run_id)
    assert stage.next_poll_at == hours(2)
    assert (await kernel.dispatch(ClaimJobs("worker"))).jobs == ()


@pytest.mark.guarantee("steps.signals-commit-whole")
async def test_a_keepalive_finds_a_signal_whose_nudge_was_lost(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    resume: Resume,
    signal: Signal,
    fail_at: Callable[..., None],
    forget_cues: Callable[[], None],
    ledger_elsewhere: InMemoryStepLedger,
    hours: Hours,
    clock: FakeClock,
) -> None:
    """A ledger in another database keeps the signal, and the crash comes before the rest commits."""
    kernel = make_kernel(flow_of(waits), step_ledger=ledger_elsewhere)
    run_id = await start_run(kernel)
    await execute(kernel, await take_job(kernel))
    fail_at("commit", error=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        await signal(kernel, run_id, "kept")
    forget_cues()
    assert (await kernel.dispatch(ClaimJobs("worker"))).jobs == ()
    assert (await signal(kernel, run_id, "again")).already_completed
    await resume(kernel, run_id)
    assert clock.now() == hours(1)
    assert (await execute(kernel, await take_job(kernel))).output == "kept"


async def test_a_batch_that_waits_for_a_signal_is_asked_again_at_once(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    signal: Signal,
    clock: FakeClock,
) -> None:
    async def body(ctx: Ctx) -> Any:
        return Suspend(state=None, poll_interval="1s")

    async def check(state: Any, ctx: Ctx) -> Any:
        return Ready(await ctx.step.wait_for_signal("go", timeout="9h", keepalive="2h"))

    kernel = make_kernel(flow_of(body, mode="async-batch", check_completion=check))
    run_id = await start_run(kernel)
    await execute(kernel, await take_job(kernel))
    clock.advance("1s")
    assert (await kernel.dispatch(PollSuspendedStages())).checked == 1
    assert (await kernel.dispatch(PollSuspendedStages())).checked == 0
    await signal(kernel, run_id, "done")
    assert (await kernel.dispatch(PollSuspendedStages())).resumed == 1
    run = await kernel.runs.get(run_id)
    assert run is not None
    assert run.output == "done"


async def test_a_signal_during_a_check_is_seen_by_the_next_one_at_once(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    signal: Signal,
    clock: FakeClock,
    hold_at: HoldAt,
) -> None:
    async def body(ctx: Ctx) -> Any:
        return Suspend(state=None, poll_interval="1s")

    async def check(state: Any, ctx: Ctx) -> Any:
        return Ready(await ctx.step.wait_for_signal("go", timeout="9h", keepalive="2h"))

    kernel = make_kernel(flow_of(body, mode="async-batch", check_completion=check))
    run_id = await start_run(kernel)
    await execute(kernel, await take_job(kernel))
    clock.advance("1s")
    reached, go = hold_at("get_signal")
    polling = asyncio.create_task(kernel.dispatch(PollSuspendedStages()))
    await reached.wait()
    # The check has found no row of a signal yet; the signal comes now.
    sending = asyncio.create_task(signal(kernel, run_id, "done"))
    for _ in range(100):
        await asyncio.sleep(0)
    go.set()
    await polling
    assert (await sending).delivered
    for _ in range(2):
        await kernel.dispatch(PollSuspendedStages())
    run = await kernel.runs.get(run_id)
    assert run is not None
    assert (run.status, run.output) == (Status.COMPLETED, "done")
