"""Steps that suspend their stage: sleeping, parking, and bodies that would rather go on."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from stagewright import (
    Kernel,
    RetryPolicy,
    StageContext,
    Status,
    Workflow,
    is_step_control_flow,
)
from stagewright.commands import ExecuteJobResult
from stagewright.errors import InvalidDurationError
from stagewright.memory import InMemoryJobTransport, InMemoryStepLedger
from stagewright.records import DequeuedJob, RunRecord
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
StartRun = Callable[..., Awaitable[str]]
TakeJob = Callable[..., Awaitable[DequeuedJob]]
Execute = Callable[..., Coroutine[Any, Any, ExecuteJobResult]]
Resume = Callable[[Kernel, str], Awaitable[None]]
RunSteps = Callable[..., Coroutine[Any, Any, tuple[RunRecord, list[ExecuteJobResult]]]]
Told = Callable[[Kernel, str], Awaitable[list[str]]]
Once = Callable[..., Coroutine[Any, Any, ExecuteJobResult]]

Ctx = StageContext[Any]


@pytest.mark.parametrize("transport", ["enlisting", "separate"], indirect=True)
@pytest.mark.guarantee("steps.sleeping-suspends-the-stage")
async def test_a_sleep_suspends_its_stage_until_it_is_over(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    resume: Resume,
    transport: InMemoryJobTransport,
    told: Told,
    hours: Callable[[float], Any],
    clock: FakeClock,
) -> None:
    durations = iter(["2h", "5s", "9d"])

    async def body(ctx: Ctx) -> Any:
        await ctx.step.sleep("pause", next(durations))
        return "awake"

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    job = await take_job(kernel)
    assert await execute(kernel, job) == ExecuteJobResult(outcome="suspended", next_poll_at=hours(2))
    (stage,) = await kernel.runs.stages(run_id)
    assert (stage.status, stage.next_poll_at, stage.attempt) == (Status.SUSPENDED, hours(2), 1)
    (stored,) = await transport.get_jobs_by_run(run_id)
    assert (stored.status, stored.due_at, stored.failures) == (Status.SUSPENDED, hours(2), 0)
    (step,) = await kernel.runs.steps(run_id)
    assert (step.kind, step.status, step.deadline_at) == ("sleep", "pending", hours(2))
    await resume(kernel, run_id)
    assert clock.now() == hours(2)
    assert (await execute(kernel, await take_job(kernel))).output == "awake", "its first duration counts"
    events = await told(kernel, run_id)
    assert [events.count(name) for name in ("stage:started", "stage:suspended", "workflow:suspended")] == [
        1,
        1,
        1,
    ]
    (step,) = await kernel.runs.steps(run_id)
    assert (step.status, step.attempt) == ("completed", 1)


async def test_a_sleep_of_nothing_returns_at_once(once: Once) -> None:
    async def body(ctx: Ctx) -> Any:
        await ctx.step.sleep("pause", 0)
        return "awake"

    assert (await once(body)).output == "awake"


@pytest.mark.parametrize("duration", ["-5s", "1h30m", float("nan"), "9999999d", None])
async def test_a_duration_that_makes_no_sense_is_refused(once: Once, duration: Any) -> None:
    async def body(ctx: Ctx) -> Any:
        with pytest.raises(InvalidDurationError):
            await ctx.step.sleep("pause", duration)
        return "refused"

    assert (await once(body)).output == "refused"


async def test_looking_again_at_the_same_step_is_no_event(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    resume: Resume,
    told: Told,
) -> None:
    tries = 0

    async def fn() -> str:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise ValueError
        return "done"

    async def body(ctx: Ctx) -> Any:
        kept = await ctx.step.run("a", fn, retries=5, retry_delay="1s")
        await ctx.step.sleep("b", "1s")
        return kept

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    for _ in range(5):
        await execute(kernel, await take_job(kernel))
        await resume(kernel, run_id)
    run = await kernel.runs.get(run_id)
    assert run is not None
    assert run.output == "done"
    events = await told(kernel, run_id)
    assert [events.count(name) for name in ("stage:suspended", "workflow:suspended", "stage:started")] == [
        2,
        2,
        1,
    ]


@pytest.mark.guarantee("steps.the-earliest-wait-decides")
@pytest.mark.parametrize("order", [("2d", "1h"), ("1h", "2d"), ("3d", "2d", "1h", "4d")])
async def test_of_several_waits_the_earliest_decides(
    once: Once, hours: Callable[[float], Any], order: tuple[str, ...]
) -> None:
    async def body(ctx: Ctx) -> Any:
        await asyncio.gather(*(ctx.step.sleep(length, length) for length in order))

    assert (await once(body)).next_poll_at == hours(1)


async def test_waits_in_a_task_group_or_several_levels_down_are_all_known(
    once: Once, hours: Callable[[float], Any]
) -> None:
    async def deep(ctx: Ctx, level: int) -> None:
        if level:
            await asyncio.sleep(0)
            await asyncio.gather(deep(ctx, level - 1))
        else:
            await ctx.step.sleep("short", "1h")

    async def body(ctx: Ctx) -> Any:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(ctx.step.sleep("long", "2d"))
            tasks.create_task(deep(ctx, 3))

    result = await once(body)
    assert (result.outcome, result.next_poll_at) == ("suspended", hours(1))


@pytest.mark.guarantee("steps.a-suspension-cuts-no-step-off")
@pytest.mark.parametrize("grouped", [False, True])
async def test_a_suspension_waits_for_steps_in_flight(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    resume: Resume,
    clock: FakeClock,
    hours: Callable[[float], Any],
    grouped: bool,
) -> None:
    calls: list[str] = []
    go = asyncio.Event()

    async def slow() -> str:
        calls.append("begun")
        await go.wait()
        calls.append("ended")
        return "slow"

    async def body(ctx: Ctx) -> Any:
        waits = (ctx.step.sleep("pause", "2h"), ctx.step.run("slow", slow))
        if grouped:
            async with asyncio.TaskGroup() as tasks:
                started = [tasks.create_task(wait) for wait in waits]
            return [task.result() for task in started]
        return list(await asyncio.gather(*waits))

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    running = asyncio.create_task(execute(kernel, await take_job(kernel)))
    for _ in range(50):
        await asyncio.sleep(0)
    assert calls == ["begun"]
    assert not running.done()
    go.set()
    result = await running
    # Something was recorded after the first wait began, so the body may have more to do at once.
    assert (result.outcome, result.next_poll_at) == ("suspended", clock.now())
    await resume(kernel, run_id)
    assert (await execute(kernel, await take_job(kernel))).next_poll_at == hours(2)
    await resume(kernel, run_id)
    assert (await execute(kernel, await take_job(kernel))).output == [None, "slow"]
    assert calls == ["begun", "ended"]


async def test_steps_may_begin_while_another_waits(run_steps: RunSteps, clock: FakeClock) -> None:
    calls: list[str] = []

    def step(name: str) -> Callable[[], Coroutine[Any, Any, None]]:
        async def fn() -> None:
            calls.append(name)
            await asyncio.sleep(0)

        return fn

    async def one_after_the_other(ctx: Ctx) -> None:
        for number in range(5):
            await ctx.step.run(f"n{number}", step(f"n{number}"))

    async def body(ctx: Ctx) -> Any:
        await asyncio.gather(ctx.step.sleep("pause", "1h"), one_after_the_other(ctx))

    run, results = await run_steps(body)
    assert run.status is Status.COMPLETED
    assert calls == [f"n{number}" for number in range(5)]
    assert len(results) == 3


@pytest.mark.guarantee("steps.a-swallowed-suspension-suspends")
@pytest.mark.parametrize("way", ["except Exception", "bare except", "gather", "loop", "raises", "finally"])
async def test_a_body_that_swallows_its_suspension_still_suspends(
    once: Once, hours: Callable[[float], Any], way: str
) -> None:
    after: list[object] = []

    async def body(ctx: Ctx) -> Any:
        if way == "except Exception":
            try:
                await ctx.step.sleep("pause", "1h")
            except Exception as error:
                after.append(error)
        elif way == "gather":
            after.extend(await asyncio.gather(ctx.step.sleep("pause", "1h"), return_exceptions=True))
        elif way == "loop":
            for number in range(3):
                try:
                    await ctx.step.sleep(f"pause-{number}", "1h")
                except BaseException as error:
                    after.append(error)
        elif way == "finally":
            try:
                await ctx.step.sleep("pause", "1h")
            finally:
                return "no"  # noqa: B012 - it is what this test is about
        else:
            try:
                await ctx.step.sleep("pause", "1h")
            except BaseException as error:
                after.append(error)
                if way == "raises":
                    raise ValueError("instead") from error
        return "no"

    result = await once(body)
    assert (result.outcome, result.next_poll_at, result.output) == ("suspended", hours(1), None)
    assert all(isinstance(error, BaseException) and is_step_control_flow(error) for error in after)


async def test_an_error_beside_a_suspension_is_dropped_with_a_warning(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, take_job: TakeJob, execute: Execute
) -> None:
    async def clumsy(ctx: Ctx) -> None:
        try:
            await ctx.step.sleep("short", "1h")
        finally:
            raise ValueError("while cleaning up")

    async def body(ctx: Ctx) -> Any:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(ctx.step.sleep("long", "2h"))
            tasks.create_task(clumsy(ctx))

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    assert (await execute(kernel, await take_job(kernel))).outcome == "suspended"
    (line,) = (await kernel.runs.logs(run_id, level="WARN")).items
    assert "what its body raised besides is dropped: BaseExceptionGroup" in line.message


async def test_after_a_suspension_no_step_begins(once: Once) -> None:
    calls: list[int] = []

    async def body(ctx: Ctx) -> Any:
        try:
            await ctx.step.sleep("pause", "1h")
        except BaseException:
            await ctx.step.run("late", lambda: calls.append(1))

    assert (await once(body)).outcome == "suspended"
    assert calls == []


async def test_an_error_before_the_suspension_is_the_outcome(run_steps: RunSteps) -> None:
    async def fails() -> None:
        raise ValueError("first")

    async def body(ctx: Ctx) -> Any:
        await asyncio.gather(ctx.step.sleep("pause", "1h"), ctx.step.run("fails", fails))

    run, results = await run_steps(body, retry=RetryPolicy(1))
    assert [result.outcome for result in results] == ["failed"]
    assert run.error is not None
    assert run.error.message == "first"


async def test_a_failing_sibling_leaves_no_step_in_the_middle(run_steps: RunSteps) -> None:
    calls: list[str] = []
    begun = asyncio.Event()

    async def slow() -> str:
        calls.append("slow")
        begun.set()
        for _ in range(20):
            await asyncio.sleep(0)
        return "kept"

    async def body(ctx: Ctx) -> Any:
        async def fails() -> None:
            await begun.wait()
            if ctx.attempt == 1:
                raise ValueError("sibling")

        return (await asyncio.gather(ctx.step.run("slow", slow), fails()))[0]

    run, results = await run_steps(body)
    assert [result.outcome for result in results] == ["failed", "completed"]
    assert run.output == "kept"
    assert calls == ["slow"], "what the first attempt left running was recorded before it ended"


@pytest.mark.parametrize("order", [("2d", "1h"), ("1h", "2d")])
async def test_a_store_that_never_waits_hides_no_wait(
    run_steps: RunSteps, hours: Callable[[float], Any], order: tuple[str, ...]
) -> None:
    async def body(ctx: Ctx) -> Any:
        await asyncio.gather(*(ctx.step.sleep(length, length) for length in order))

    run, results = await run_steps(body, ports={"step_ledger": InMemoryStepLedger()})
    assert run.status is Status.COMPLETED
    assert results[0].next_poll_at == hours(1)
    assert len(results) == 4, "to the first, on because it has ended, to the second, and to the end"
