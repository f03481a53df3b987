"""`ctx.step.wait_for_signal`: kept signals, deadlines that stay, and signals that come at the worst moment."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

from stagewright import (
    BlockingStageContext,
    Kernel,
    RetryPolicy,
    StageContext,
    Status,
    Workflow,
)
from stagewright.commands import CreateRun, ExecuteJobResult, PollSuspendedStages, SignalStepResult
from stagewright.errors import DefinitionError, InvalidDurationError, StepTimeoutError
from stagewright.memory import InMemoryDatabase, InMemoryJobTransport
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


class Approval(BaseModel):
    by: str
    amount: Decimal


async def waits(ctx: Ctx) -> Any:
    return await ctx.step.wait_for_signal("go", timeout="3h", keepalive="1h")


@pytest.mark.guarantee("steps.early-signals-are-kept")
async def test_a_signal_that_came_while_an_earlier_step_ran_answers_at_once(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    signal: Signal,
) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def body(ctx: Ctx) -> Any:
        async def a() -> None:
            begun.set()
            await go.wait()

        await ctx.step.run("A", a)
        return await ctx.step.wait_for_signal("go", timeout="60s")

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    running = asyncio.create_task(execute(kernel, await take_job(kernel)))
    await begun.wait()
    await signal(kernel, run_id, "payload")
    assert [one.payload for one in await kernel.runs.signals(run_id)] == ["payload"]
    go.set()
    assert (await running).output == "payload"
    assert await kernel.runs.signals(run_id) == []


@pytest.mark.parametrize("when", ["before the claim", "before they wait", "while they wait"])
async def test_five_signals_find_their_five_waits_in_any_order(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    finish: Finish,
    take_job: TakeJob,
    execute: Execute,
    start_run: StartRun,
    signal: Signal,
    when: str,
) -> None:
    async def body(ctx: Ctx) -> Any:
        return list(
            await asyncio.gather(*(ctx.step.wait_for_signal(f"n{n}", timeout="1h") for n in range(5)))
        )

    kernel = make_kernel(flow_of(body))
    if when == "before the claim":
        run_id = (await kernel.dispatch(CreateRun("flow"))).run_id
    else:
        run_id = await start_run(kernel)
    if when == "while they wait":
        await execute(kernel, await take_job(kernel))
    for number in (3, 0, 4, 1, 2):
        await signal(kernel, run_id, number * 10, step_id=f"n{number}")
    assert (await finish(kernel, run_id)).output == [0, 10, 20, 30, 40]


@pytest.mark.parametrize("transport", ["enlisting", "separate"], indirect=True)
@pytest.mark.guarantee("steps.a-signal-resumes-its-stage-at-once")
async def test_a_signal_makes_the_job_of_its_stage_claimable_at_once(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    signal: Signal,
    hours: Hours,
    transport: InMemoryJobTransport,
    told: Told,
    clock: FakeClock,
) -> None:
    kernel = make_kernel(flow_of(waits))
    run_id = await start_run(kernel)
    assert await execute(kernel, await take_job(kernel)) == ExecuteJobResult(
        outcome="suspended", next_poll_at=hours(1)
    )
    (stage,) = await kernel.ports.persistence.get_stages_by_run(run_id)
    assert (stage.waiting_step_id, stage.nudged_at) == ("go", None)
    await signal(kernel, run_id, {"ok": True})
    assert clock.now() == hours(0)
    assert (await execute(kernel, await take_job(kernel))).output == {"ok": True}
    events = await told(kernel, run_id)
    assert events.index("step:signalled") < events.index("stage:completed")
    assert [events.count(name) for name in ("stage:started", "stage:suspended")] == [1, 1]


@pytest.mark.parametrize("transport", ["enlisting", "separate"], indirect=True)
@pytest.mark.guarantee("steps.a-signal-resumes-its-stage-at-once")
async def test_who_does_not_serve_the_run_may_signal_it_all_the_same(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    signal: Signal,
    transport: InMemoryJobTransport,
) -> None:
    kernel = make_kernel(flow_of(waits))
    run_id = await start_run(kernel)
    await execute(kernel, await take_job(kernel))
    (before,) = await transport.get_jobs_by_run(run_id)
    await signal(make_kernel(), run_id, 1)
    (after,) = await transport.get_jobs_by_run(run_id)
    assert (after.id, after.status, after.deliveries) == (before.id, Status.PENDING, 1)
    assert (await execute(kernel, await take_job(kernel))).output == 1


async def test_a_stage_whose_job_is_gone_becomes_due(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    signal: Signal,
    hours: Hours,
    transport: InMemoryJobTransport,
) -> None:
    kernel = make_kernel(flow_of(waits))
    run_id = await start_run(kernel)
    await execute(kernel, await take_job(kernel))
    await transport.delete_by_run_and_stages(run_id, ["s1"])
    (before,) = await kernel.ports.persistence.get_stages_by_run(run_id)
    await signal(make_kernel(), run_id, 1)
    (stage,) = await kernel.ports.persistence.get_stages_by_run(run_id)
    assert (stage.status, stage.next_poll_at, stage.version) == (Status.SUSPENDED, hours(0), before.version)
    assert (await kernel.dispatch(PollSuspendedStages())).resumed == 1
    assert (await execute(kernel, await take_job(kernel))).output == 1


@pytest.mark.guarantee("steps.deadlines-never-slide")
async def test_its_deadline_is_stored_once_and_no_keepalive_goes_beyond_it(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    resume: Resume,
    hours: Hours,
) -> None:
    options = iter([("3h", "2h"), ("9h", "2h"), ("1m", "1m")])

    async def body(ctx: Ctx) -> Any:
        timeout, keepalive = next(options)
        await ctx.step.wait_for_signal("go", timeout=timeout, keepalive=keepalive)

    kernel = make_kernel(flow_of(body, retry=RetryPolicy(3, delay=0)))
    run_id = await start_run(kernel)
    assert (await execute(kernel, await take_job(kernel))).next_poll_at == hours(2)
    await resume(kernel, run_id)
    assert (await execute(kernel, await take_job(kernel))).next_poll_at == hours(3)
    (step,) = await kernel.runs.steps(run_id)
    assert (step.status, step.deadline_at) == ("pending", hours(3))
    await resume(kernel, run_id)
    result = await execute(kernel, await take_job(kernel))
    assert (result.outcome, result.will_retry) == ("failed", False), "no attempt is spent on it"
    assert result.error is not None
    assert result.error.type == "StepTimeoutError"
    (step,) = await kernel.runs.steps(run_id)
    assert step.status == "failed"


@pytest.mark.guarantee("steps.timeouts-keep-their-class")
async def test_a_timeout_is_the_same_error_on_every_replay(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    resume: Resume,
    hours: Hours,
) -> None:
    errors: list[StepTimeoutError] = []

    async def body(ctx: Ctx) -> Any:
        try:
            await ctx.step.wait_for_signal("go", timeout="1h")
        except StepTimeoutError as error:
            errors.append(error)
        await ctx.step.sleep("pause", "1h")
        return "without it"

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    results: list[ExecuteJobResult] = []
    while len(results) < 20 and (not results or results[-1].outcome != "completed"):
        results.append(await execute(kernel, await take_job(kernel)))
        if results[-1].outcome == "suspended":
            await resume(kernel, run_id)
    assert results[-1].output == "without it"
    assert len(errors) == 2
    assert {(error.step_id, error.kind, error.deadline_at) for error in errors} == {
        ("go", "signal", hours(1))
    }
    assert str(errors[0]) == str(errors[1])


@pytest.mark.parametrize("typed", [True, False])
async def test_a_payload_comes_as_its_type_first_and_later(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    resume: Resume,
    signal: Signal,
    typed: bool,
) -> None:
    seen: list[Any] = []

    async def body(ctx: Ctx) -> Any:
        returns = Approval if typed else None
        seen.append(await ctx.step.wait_for_signal("go", timeout="1h", returns=returns))
        await ctx.step.sleep("pause", "1h")

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    payload = {"by": "Ada", "amount": "1.10"}
    await signal(kernel, run_id, payload)
    for _ in range(2):
        await execute(kernel, await take_job(kernel))
        await resume(kernel, run_id)
    expected = Approval(by="Ada", amount=Decimal("1.10")) if typed else payload
    assert seen == [expected, expected]
    assert all(type(one) is type(expected) for one in seen)


async def test_a_payload_that_does_not_fit_fails_the_stage_at_once(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, finish: Finish, signal: Signal
) -> None:
    async def body(ctx: Ctx) -> Any:
        return await ctx.step.wait_for_signal("go", timeout="1h", returns=Approval)

    kernel = make_kernel(flow_of(body, retry=RetryPolicy(5, delay=0)))
    run_id = await start_run(kernel)
    await signal(kernel, run_id, {"by": "Ada", "amount": "much"})
    run = await finish(kernel, run_id)
    assert run.error is not None
    assert run.error.type == "StepResultNotSerializableError"
    assert "$.amount" in run.error.message
    assert "doesn't fit" in run.error.message
    (stage,) = await kernel.runs.stages(run_id)
    assert stage.attempt == 1


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"timeout": 0}, DefinitionError),
        ({"timeout": "-1s"}, DefinitionError),
        ({"timeout": "1h", "keepalive": 0}, DefinitionError),
        ({"timeout": "1h", "keepalive": "1h30m"}, DefinitionError),
        ({"timeout": "2920000d"}, InvalidDurationError),
        ({"timeout": "1h", "returns": open}, DefinitionError),
    ],
)
@pytest.mark.guarantee("steps.wrong-arguments-do-nothing")
async def test_options_that_make_no_sense_are_refused(
    once: Once, options: Any, error: type[Exception], database: InMemoryDatabase
) -> None:
    async def body(ctx: Ctx) -> Any:
        with pytest.raises(error):
            await ctx.step.wait_for_signal("go", **options)
        return "refused"

    assert (await once(body)).output == "refused"
    assert database.steps.all() == {}


async def test_a_plain_body_waits_for_signals_too(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    signal: Signal,
) -> None:
    def body(ctx: BlockingStageContext[Any]) -> Any:
        return ctx.step.wait_for_signal("go", timeout="1h", returns=Approval).model_dump(mode="json")

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    assert (await execute(kernel, await take_job(kernel))).outcome == "suspended"
    await signal(kernel, run_id, {"by": "Ada", "amount": "1.10"})
    assert (await execute(kernel, await take_job(kernel))).output == {"by": "Ada", "amount": "1.10"}


async def test_another_attempt_of_the_stage_gets_the_same_payload(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, finish: Finish, signal: Signal
) -> None:
    async def body(ctx: Ctx) -> Any:
        payload = await ctx.step.wait_for_signal("go", timeout="1h")
        if ctx.attempt == 1:
            raise ValueError
        return payload

    kernel = make_kernel(flow_of(body, retry=RetryPolicy(3, delay=0)))
    run_id = await start_run(kernel)
    await signal(kernel, run_id, 1)
    assert (await finish(kernel, run_id)).output == 1
