"""Replays: in whatever order, and what they cost."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from stagewright import BlockingStageContext, Kernel, StageContext, Workflow
from stagewright.commands import ExecuteJobResult
from stagewright.records import DequeuedJob
from stagewright.runtime.blocking_portal import LoopPortal

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
StartRun = Callable[..., Awaitable[str]]
TakeJob = Callable[..., Awaitable[DequeuedJob]]
Execute = Callable[..., Coroutine[Any, Any, ExecuteJobResult]]
Resume = Callable[[Kernel, str], Awaitable[None]]


class _Counted:
    """Functions by name that count their calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def of(self, name: str, value: Any = None) -> Callable[[], Awaitable[Any]]:
        async def fn() -> Any:
            self.calls.append(name)
            return value

        return fn


@pytest.fixture
def counted() -> _Counted:
    return _Counted()


@pytest.mark.guarantee("steps.another-order-is-said-once")
async def test_another_order_is_answered_and_said_once_for_a_stage(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    resume: Resume,
    counted: _Counted,
) -> None:
    orders = iter([["a", "b", "c"], ["c", "b", "a"], ["b", "a", "c"]])
    pauses = ["p1", "p2"]

    async def body(ctx: StageContext[Any]) -> Any:
        kept = [await ctx.step.run(name, counted.of(name, name)) for name in next(orders)]
        for pause in pauses:
            await ctx.step.sleep(pause, "1s")
        return kept

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    for _ in range(2):
        await execute(kernel, await take_job(kernel))
        await resume(kernel, run_id)
    assert (await execute(kernel, await take_job(kernel))).output == ["b", "a", "c"]
    assert counted.calls == ["a", "b", "c"]
    (warning,) = (await kernel.runs.logs(run_id, level="WARN")).items
    assert "step 'b' is asked for after step 'c'" in warning.message
    assert "as request 2 and not 3" in warning.message


async def test_steps_side_by_side_that_are_answered_in_any_order_are_no_other_order(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    resume: Resume,
    counted: _Counted,
) -> None:
    """One that still waits is looked up anew, and so answered later than one asked for after it."""

    async def body(ctx: StageContext[Any]) -> Any:
        await asyncio.gather(
            ctx.step.sleep("long", "3s"),
            ctx.step.run("done", counted.of("done")),
            ctx.step.sleep("short", "1s"),
            ctx.step.run("done too", counted.of("done too")),
        )
        await ctx.step.run("last", counted.of("last"))

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    outcomes = []
    while "completed" not in outcomes:
        outcomes.append((await execute(kernel, await take_job(kernel))).outcome)
        if outcomes[-1] == "suspended":
            await resume(kernel, run_id)
    assert len(outcomes) > 2
    assert (await kernel.runs.logs(run_id, level="WARN")).items == ()


async def test_another_order_side_by_side_is_said(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    resume: Resume,
    counted: _Counted,
) -> None:
    orders = iter([["a", "b"], ["b", "a"]])

    async def body(ctx: StageContext[Any]) -> Any:
        await asyncio.gather(*(ctx.step.run(name, counted.of(name)) for name in next(orders)))
        await ctx.step.sleep("pause", "1s")

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    await execute(kernel, await take_job(kernel))
    await resume(kernel, run_id)
    await execute(kernel, await take_job(kernel))
    (warning,) = (await kernel.runs.logs(run_id, level="WARN")).items
    assert "step 'a' is asked for after step 'b'" in warning.message


async def test_a_step_added_or_left_out_is_no_other_order(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    resume: Resume,
    counted: _Counted,
) -> None:
    names = iter([["a", "b", "c"], ["new", "a", "c"]])

    async def body(ctx: StageContext[Any]) -> Any:
        for name in next(names):
            await ctx.step.run(name, counted.of(name))
        await ctx.step.sleep("pause", "1s")

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    await execute(kernel, await take_job(kernel))
    await resume(kernel, run_id)
    assert (await execute(kernel, await take_job(kernel))).outcome == "completed"
    assert (await kernel.runs.logs(run_id, level="WARN")).items == ()


@pytest.mark.guarantee("steps.two-writes-and-one-read")
async def test_a_step_costs_two_writes_and_a_replay_one_read(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    resume: Resume,
    counted: _Counted,
    moments: list[str],
) -> None:
    async def body(ctx: StageContext[Any]) -> Any:
        kept = [await ctx.step.run(f"n{number}", counted.of("n", number)) for number in range(200)]
        await ctx.step.sleep("pause", "1s")
        return sum(kept)

    def calls() -> list[str]:
        made = [
            moment.removeprefix("step_ledger.") for moment in moments if moment.startswith("step_ledger.")
        ]
        moments.clear()
        return made

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    job = await take_job(kernel)
    calls()
    await execute(kernel, job)
    assert calls() == ["list", *["claim", "compare_and_set"] * 200, "claim"]
    await resume(kernel, run_id)
    job = await take_job(kernel)
    calls()
    assert (await execute(kernel, job)).output == sum(range(200))
    assert calls() == ["list", "get", "compare_and_set"], "all steps at once, and the sleep that was open"
    assert len(counted.calls) == 200


async def test_steps_that_are_answered_again_take_no_tasks_and_let_others_go_on(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    resume: Resume,
    counted: _Counted,
) -> None:
    turns: list[int] = []

    async def turn() -> None:
        turns.append(0)
        while True:
            turns[-1] += 1
            await asyncio.sleep(0)

    async def body(ctx: StageContext[Any]) -> Any:
        await ctx.step.run("first", counted.of("first", 0))
        others = asyncio.create_task(turn())
        before = len(made)
        kept = [await ctx.step.run(f"n{number}", counted.of("n", number)) for number in range(200)]
        tasks.append(len(made) - before)
        others.cancel()
        await ctx.step.sleep("pause", "1s")
        return sum(kept)

    def make(loop: asyncio.AbstractEventLoop, work: Any, **named: Any) -> asyncio.Task[Any]:
        made.append(None)
        return asyncio.Task(work, loop=loop, **named)

    made: list[None] = []
    tasks: list[int] = []
    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    asyncio.get_running_loop().set_task_factory(make)
    await execute(kernel, await take_job(kernel))
    await resume(kernel, run_id)
    assert (await execute(kernel, await take_job(kernel))).output == sum(range(200))
    assert tasks[0] >= 200
    assert tasks[1] == 0
    assert turns[1] > 2, "the loop is held by no more than some of the answers"


async def test_a_step_of_a_plain_body_is_answered_again_by_one_change_of_threads(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    resume: Resume,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changes: list[int] = []
    call = LoopPortal.call

    def calling(self: LoopPortal, work: Coroutine[Any, Any, Any]) -> Any:
        changes[-1] += 1
        return call(self, work)

    def one() -> int:
        return 1

    def body(ctx: BlockingStageContext[Any]) -> Any:
        kept = [ctx.step.run("first", one)]
        changes.append(0)
        kept += [ctx.step.run(f"n{number}", one) for number in range(20)]
        changes.append(0)
        ctx.step.sleep("pause", "1s")
        return sum(kept)

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    changes.append(0)
    monkeypatch.setattr(LoopPortal, "call", calling)
    await execute(kernel, await take_job(kernel))
    await resume(kernel, run_id)
    changes.clear()
    changes.append(0)
    assert (await execute(kernel, await take_job(kernel))).output == 21
    assert changes[1] == 20
