"""Steps side by side, in every way that Python has: what is cut off, what is kept, and when the stage goes on."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from typing import Any

import pytest

from stagewright import Kernel, RetryPolicy, StageContext, Status, StepRun, Workflow
from stagewright.commands import ExecuteJobResult, SignalStepResult
from stagewright.errors import StepTimeoutError
from stagewright.records import DequeuedJob, RunRecord

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
StartRun = Callable[..., Awaitable[str]]
TakeJob = Callable[..., Awaitable[DequeuedJob]]
Execute = Callable[..., Coroutine[Any, Any, ExecuteJobResult]]
Resume = Callable[[Kernel, str], Awaitable[None]]
RunSteps = Callable[..., Coroutine[Any, Any, tuple[RunRecord, list[ExecuteJobResult]]]]
Once = Callable[..., Coroutine[Any, Any, ExecuteJobResult]]
Signal = Callable[..., Coroutine[Any, Any, SignalStepResult]]
Hours = Callable[[float], datetime]

Ctx = StageContext[Any]


class _Counted:
    """A step function that takes a few rounds of the loop, and how often it was called by step."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()

    async def __call__(self, run: StepRun) -> str:
        self.calls[run.step_id] += 1
        for _ in range(10):
            await asyncio.sleep(0)
        self.ended[run.step_id] += 1
        return run.step_id


@pytest.fixture
def counted() -> _Counted:
    return _Counted()


WAYS = ["gather", "task group", "as completed", "nested groups", "create_task"]


async def _all(way: str, ctx: Ctx, counted: _Counted) -> list[Any]:
    """A sleep, a wait, a signal and three functions, begun at once."""
    calls: list[Coroutine[Any, Any, Any]] = [ctx.step.run(f"r{n}", counted.__call__) for n in range(3)]
    calls[1:1] = [
        ctx.step.sleep("sleep", "2h"),
        ctx.step.wait_for(
            "wait", poll=lambda: ctx.step is not None, ready=bool, every="1h", timeout="9h", returns=bool
        ),
        ctx.step.wait_for_signal("go", timeout="9h", keepalive="3h"),
    ]
    if way == "gather":
        return list(await asyncio.gather(*calls))
    if way == "as completed":
        results = [await done for done in asyncio.as_completed(calls)]
        return sorted(results, key=str)
    if way == "create_task":
        tasks = [asyncio.create_task(call) for call in calls]
        return [await task for task in tasks]
    rest: list[asyncio.Task[list[Any]]] = []
    async with asyncio.TaskGroup() as outer:
        if way == "task group":
            tasks = [outer.create_task(call) for call in calls]
        else:

            async def inner() -> list[Any]:
                async with asyncio.TaskGroup() as group:
                    started = [group.create_task(call) for call in calls[3:]]
                return [task.result() for task in started]

            tasks = [outer.create_task(call) for call in calls[:3]]
            rest.append(outer.create_task(inner()))
    return [task.result() for task in tasks] + [result for one in rest for result in one.result()]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.guarantee("steps.a-suspension-cuts-no-step-off")
async def test_steps_of_every_kind_side_by_side(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    resume: Resume,
    signal: Signal,
    counted: _Counted,
    hours: Hours,
    way: str,
) -> None:
    async def body(ctx: Ctx) -> Any:
        return await _all(way, ctx, counted)

    kernel = make_kernel(flow_of(body, retry=RetryPolicy(1)))
    run_id = await start_run(kernel)
    assert (await execute(kernel, await take_job(kernel))).next_poll_at == hours(0), "steps have recorded"
    assert counted.ended == counted.calls == {"r0": 1, "r1": 1, "r2": 1}
    await resume(kernel, run_id)
    assert (await execute(kernel, await take_job(kernel))).next_poll_at == hours(2), "the earliest wait"
    await signal(kernel, run_id, "payload")
    assert (await execute(kernel, await take_job(kernel))).next_poll_at in (hours(0), hours(2))
    await resume(kernel, run_id)
    result = await execute(kernel, await take_job(kernel))
    while result.outcome == "suspended":
        await resume(kernel, run_id)
        result = await execute(kernel, await take_job(kernel))
    assert isinstance(result.output, list)
    assert sorted(result.output, key=str) == sorted(["r0", None, True, "payload", "r1", "r2"], key=str)
    assert counted.calls == {"r0": 1, "r1": 1, "r2": 1}


async def test_a_time_limit_around_a_wait_counts_while_others_are_at_work(run_steps: RunSteps) -> None:
    """The limit ends the wait, not the step beside it, and the wait can be asked for in the next invocation."""
    go = asyncio.Event()
    calls: list[str] = []
    caught: list[str] = []

    async def slow() -> str:
        calls.append("slow")
        await go.wait()
        return "slow"

    async def impatient(ctx: Ctx) -> str:
        try:
            async with asyncio.timeout(0.05):
                await ctx.step.wait_for_signal("go", timeout="9h")
        except TimeoutError:
            caught.append("timeout")
            go.set()
            return "went on"
        return "signalled"

    async def body(ctx: Ctx) -> Any:
        return list(await asyncio.gather(ctx.step.run("slow", slow), impatient(ctx)))

    run, results = await run_steps(body)
    assert [result.outcome for result in results] == ["completed"]
    assert run.output == ["slow", "went on"]
    assert (calls, caught) == (["slow"], ["timeout"])


async def test_a_time_limit_around_a_wait_alone_suspends_first(once: Once, hours: Hours) -> None:
    async def body(ctx: Ctx) -> Any:
        async with asyncio.timeout(5):
            await ctx.step.wait_for_signal("go", timeout="1h", keepalive="9h")

    result = await once(body)
    assert (result.outcome, result.next_poll_at) == ("suspended", hours(1))


@pytest.mark.guarantee("steps.a-swallowed-suspension-suspends")
@pytest.mark.parametrize("kind", ["wait", "signal", "sleep"])
@pytest.mark.parametrize("way", ["except Exception", "except BaseException", "finally with awaits"])
async def test_what_a_body_does_with_its_suspension_changes_nothing(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    hours: Hours,
    kind: str,
    way: str,
) -> None:
    done: list[str] = []

    async def wait(ctx: Ctx) -> None:
        if kind == "wait":
            await ctx.step.wait_for("x", poll=lambda: 0, ready=bool, every="1h", timeout="9h", returns=int)
        elif kind == "signal":
            await ctx.step.wait_for_signal("x", timeout="9h", keepalive="1h")
        else:
            await ctx.step.sleep("x", "1h")

    async def body(ctx: Ctx) -> Any:
        if way == "except Exception":
            try:
                await wait(ctx)
            except Exception:
                done.append("caught")
        elif way == "except BaseException":
            try:
                await wait(ctx)
            except BaseException:
                done.append("swallowed")
                for number in range(3):
                    try:
                        await ctx.step.run(f"after-{number}", lambda: done.append("ran"))
                    except BaseException:
                        done.append("again")
        else:
            try:
                await wait(ctx)
            finally:
                await asyncio.sleep(0)
                done.append("cleaned up")
        return "not this"

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    result = await execute(kernel, await take_job(kernel))
    assert (result.outcome, result.next_poll_at) == ("suspended", hours(1))
    expected = {
        "except Exception": [],
        "except BaseException": ["swallowed", "again", "again", "again"],
        "finally with awaits": ["cleaned up"],
    }
    assert done == expected[way]
    assert [step.step_id for step in await kernel.runs.steps(run_id)] == ["x"]


async def test_a_timeout_beside_other_waits_is_raised_where_it_belongs(
    run_steps: RunSteps, hours: Hours
) -> None:
    async def patient(ctx: Ctx) -> str:
        try:
            await ctx.step.wait_for_signal("never", timeout="1h")
        except StepTimeoutError:
            return "without"
        return "with"

    async def body(ctx: Ctx) -> Any:
        return list(await asyncio.gather(patient(ctx), ctx.step.sleep("pause", "2h")))

    run, results = await run_steps(body)
    assert run.status is Status.COMPLETED
    assert run.output == ["without", None]
    assert results[-1].outcome == "completed"
