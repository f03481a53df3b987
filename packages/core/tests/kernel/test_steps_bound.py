"""A suspension waits for steps in flight, and no longer than their leases last."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Workflow
from stagewright.commands import ExecuteJobResult
from stagewright.errors import TransientError
from stagewright.memory import InMemoryStepLedger
from stagewright.records import DequeuedJob, StepExpectation, StepPatch
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
StartRun = Callable[..., Awaitable[str]]
TakeJob = Callable[..., Awaitable[DequeuedJob]]
Execute = Callable[..., Coroutine[Any, Any, ExecuteJobResult]]
Hours = Callable[[float], datetime]

Ctx = StageContext[Any]


async def _grouped(calls: Sequence[Coroutine[Any, Any, Any]]) -> None:
    async with asyncio.TaskGroup() as tasks:
        for call in calls:
            tasks.create_task(call)


@pytest.mark.parametrize("way", ["gather", "task group", "after the loss"])
@pytest.mark.parametrize("loss", ["taken over", "not renewed"])
@pytest.mark.guarantee("steps.a-suspension-waits-no-longer-than-leases")
async def test_a_suspension_waits_no_longer_than_the_lease_of_what_is_in_flight(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    ledger: InMemoryStepLedger,
    clock: FakeClock,
    fail_at: Callable[..., None],
    hours: Hours,
    way: str,
    loss: str,
) -> None:
    begun, lost, cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def stuck() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def lose(stage_record_id: str) -> None:
        await begun.wait()
        if loss == "taken over":
            (row,) = [row for row in await ledger.list(stage_record_id) if row.step_id == "stuck"]
            patch = StepPatch(updated_at=clock.now(), attempt=row.attempt + 1)
            await ledger.compare_and_set(row.id, StepExpectation(status="running"), patch)
        else:
            fail_at("step_ledger.compare_and_set", times=10_000, error=TransientError("down"))
            clock.advance("1h")
        lost.set()

    async def waits(ctx: Ctx) -> None:
        if way == "after the loss":
            await lost.wait()
            await asyncio.sleep(0.2)
        await ctx.step.sleep("pause", "9h")

    async def body(ctx: Ctx) -> Any:
        step = ctx.step.run("stuck", stuck, lease="10m", heartbeat="20ms")
        calls = [step, waits(ctx), lose(ctx.stage_record_id)]
        await (_grouped(calls) if way == "task group" else asyncio.gather(*calls))

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    async with asyncio.timeout(10):
        result = await execute(kernel, await take_job(kernel))
    assert result.outcome == "suspended"
    assert result.next_poll_at in (hours(9), hours(10))
    assert cancelled.is_set()
    (line,) = (await kernel.runs.logs(run_id, level="WARN")).items
    assert "'stuck' lost its lease" in line.message


async def test_a_step_that_lost_its_lease_goes_on_while_nothing_waits(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    ledger: InMemoryStepLedger,
    clock: FakeClock,
) -> None:
    """What was done was done: its result is recorded if it is the first."""

    async def body(ctx: Ctx) -> Any:
        async def slow() -> str:
            (row,) = await ledger.list(ctx.stage_record_id)
            patch = StepPatch(updated_at=clock.now(), attempt=row.attempt + 1)
            await ledger.compare_and_set(row.id, StepExpectation(status="running"), patch)
            await asyncio.sleep(0.2)
            return "done"

        return await ctx.step.run("slow", slow, lease="10m", heartbeat="20ms")

    kernel = make_kernel(flow_of(body))
    await start_run(kernel)
    assert (await execute(kernel, await take_job(kernel))).output == "done"
