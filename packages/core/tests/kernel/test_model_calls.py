"""What bodies spend on model calls is in the log, and in the run's totals, whatever becomes of their attempts."""

from collections.abc import Awaitable, Callable, Sequence
from decimal import Decimal
from typing import Any

import pytest

from stagewright import (
    BlockingStageContext,
    Kernel,
    KernelServices,
    RetryPolicy,
    StageContext,
    Status,
    Workflow,
    define_workflow,
)
from stagewright.ai_call_writing import NewAICall
from stagewright.commands import CreateRun, PurgeRuns
from stagewright.hosting import drive_run, open_kernel
from stagewright.memory import InMemoryAICallLogger, InMemoryDatabase
from stagewright.records import AICall, RunRecord

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
StartRun = Callable[..., Awaitable[str]]
Finish = Callable[[Kernel, str], Awaitable[RunRecord]]


def spent(ctx: Any, cents: int) -> AICall:  # Any: contexts of both kinds
    return AICall(
        topic=f"workflow.{ctx.run_id}.stage.{ctx.stage_id}",
        call_type="text",
        model_key="small",
        model_id="small-1",
        input_tokens=10,
        output_tokens=2,
        cost=Decimal(cents) / 100,
    )


async def asks(ctx: StageContext[Any]) -> int:
    ctx.ai_logger.log_call(spent(ctx, 1))
    return 1


def asks_blocking(ctx: BlockingStageContext[Any]) -> int:
    ctx.ai_logger.log_call(spent(ctx, 20))
    return 2


@pytest.mark.guarantee("ai-calls.in-the-totals")
@pytest.mark.parametrize("transport", ["enlisting", "separate"], indirect=True)
async def test_a_runs_totals_hold_the_calls_of_its_last_stage_too(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, finish: Finish
) -> None:
    kernel = make_kernel(
        flow_of(asks, asks_blocking), services=KernelServices(ai_logger=InMemoryAICallLogger())
    )
    run = await finish(kernel, await start_run(kernel))
    assert (run.status, run.total_cost, run.total_tokens) == (Status.COMPLETED, Decimal("0.21"), 24)


async def test_an_attempt_that_failed_has_cost_what_it_cost(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, finish: Finish
) -> None:
    async def fails_once(ctx: StageContext[Any]) -> int:
        ctx.ai_logger.log_call(spent(ctx, 5))
        if ctx.attempt == 1:
            raise OSError("busy")
        return 3

    flow = flow_of(fails_once, retry=RetryPolicy(max_attempts=2))
    kernel = make_kernel(flow, services=KernelServices(ai_logger=InMemoryAICallLogger()))
    run = await finish(kernel, await start_run(kernel))
    assert (run.status, run.total_cost) == (Status.COMPLETED, Decimal("0.10"))


class FullDisk(InMemoryAICallLogger):
    """No call can be written."""

    async def _insert(self, calls: Sequence[NewAICall], batch_id: str | None = None) -> int:
        raise OSError("disk full")


class Undrained(InMemoryAICallLogger):
    """It breaks its promise."""

    async def drain(self) -> None:
        raise OSError("down")


@pytest.mark.parametrize("log", [FullDisk, Undrained])
async def test_a_log_that_fails_fails_no_stage(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    finish: Finish,
    log: type[InMemoryAICallLogger],
) -> None:
    kernel = make_kernel(flow_of(asks), services=KernelServices(ai_logger=log()))
    run = await finish(kernel, await start_run(kernel))
    assert (run.status, run.output) == (Status.COMPLETED, 1)


async def test_the_database_brings_its_log_to_whoever_has_services() -> None:
    flow = define_workflow("flow", input=Any).stage("s", asks, input=Any, output=int).build()
    async with open_kernel([flow], "memory://", services=KernelServices()) as kernel:
        run_id = (await kernel.dispatch(CreateRun("flow"))).run_id
        run = await drive_run(kernel, run_id)
        assert run.total_cost == Decimal("0.01")
        logger = kernel.ports.services.ai_logger
        assert logger is not None
        assert (await logger.get_stats(f"workflow.{run_id}")).calls == 1
        while not (await kernel.dispatch(PurgeRuns(kernel.ports.clock.now()))).purged:
            await kernel.dispatch({"type": "outbox.flush"})
        assert (await logger.get_stats(f"workflow.{run_id}")).calls == 0


async def test_without_services_a_body_is_told_how_to_have_a_log() -> None:
    flow = (
        define_workflow("flow", input=Any)
        .stage("s", asks, input=Any, output=int, retry=RetryPolicy(max_attempts=1))
        .build()
    )
    async with open_kernel([flow], "memory://") as kernel:
        run = await drive_run(kernel, (await kernel.dispatch(CreateRun("flow"))).run_id)
        assert run.error is not None
        assert "open_kernel(services=KernelServices())" in run.error.message


async def test_two_loggers_over_one_database_are_one_log() -> None:
    database = InMemoryDatabase()
    first, second = InMemoryAICallLogger(database), InMemoryAICallLogger(database)
    first.log_call(AICall(topic="t", call_type="text", model_key="m", model_id="i"))
    await first.drain()
    assert (await second.get_stats("t")).calls == 1
