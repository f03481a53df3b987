"""What a redrive makes of signals and batches, with a ledger that shares its transaction and one that does not."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from stagewright import (
    Kernel,
    NonRetryableError,
    StageContext,
    Status,
    Suspend,
    Workflow,
    define_stage,
    define_workflow,
)
from stagewright.commands import (
    ExecuteJobResult,
    FromStage,
    LastFailure,
    PollSuspendedStages,
    RedriveRun,
    SignalStep,
    Start,
)
from stagewright.definitions import Ready
from stagewright.errors import StepResultNotSerializableError
from stagewright.memory import InMemoryDatabase, InMemoryStepLedger
from stagewright.records import DequeuedJob, RunRecord
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
Finish = Callable[[Kernel, str], Awaitable[RunRecord]]
StartRun = Callable[..., Awaitable[str]]
TakeJob = Callable[..., Awaitable[DequeuedJob]]
Execute = Callable[..., Coroutine[Any, Any, ExecuteJobResult]]

Ctx = StageContext[Any]


@pytest.fixture(params=["enlisting", "separate"], autouse=True)
def ledger(
    request: pytest.FixtureRequest, clock: FakeClock, database: InMemoryDatabase
) -> InMemoryStepLedger:
    """In the persistence's database, and in one of its own."""
    return InMemoryStepLedger(database if request.param == "enlisting" else InMemoryDatabase(clock))


async def test_a_signal_that_no_step_has_taken_waits_for_the_run_to_go_on(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, finish: Finish
) -> None:
    async def body(ctx: Ctx) -> Any:
        if ctx.attempt == 1:
            raise NonRetryableError("not yet")
        return len(await ctx.step.wait_for_signal("go", timeout="1h", returns=str))

    kernel = make_kernel(flow_of(body), spill_threshold_bytes=100)
    run_id = await start_run(kernel)
    await kernel.dispatch(SignalStep(run_id, "s1", "go", payload="x" * 500))
    assert (await finish(kernel, run_id)).status is Status.FAILED
    await kernel.dispatch(RedriveRun(run_id, from_=Start()))
    assert len(await kernel.runs.signals(run_id)) == 1
    assert (await finish(kernel, run_id)).output == 500
    assert await kernel.runs.signals(run_id) == []


@pytest.mark.guarantee("redrives.refused-signals-are-replaced")
@pytest.mark.parametrize(
    "origin", [LastFailure(), FromStage("s1"), Start()], ids=["failure", "stage", "start"]
)
@pytest.mark.parametrize("size", [1, 500], ids=["inline", "spilled"])
async def test_a_signal_that_did_not_fit_is_replaced_after_a_redrive(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    finish: Finish,
    ledger: InMemoryStepLedger,
    origin: LastFailure | FromStage | Start,
    size: int,
) -> None:
    async def body(ctx: Ctx) -> Any:
        return await ctx.step.wait_for_signal("go", timeout="1h", returns=int)

    kernel = make_kernel(flow_of(body), spill_threshold_bytes=100)
    run_id = await start_run(kernel)
    wrong = SignalStep(run_id, "s1", "go", payload="x" * size)
    right = SignalStep(run_id, "s1", "go", payload=7)
    assert (await kernel.dispatch(wrong)).delivered
    run = await finish(kernel, run_id)
    assert run.error is not None
    assert run.error.type == "StepResultNotSerializableError"
    (stage,) = await kernel.runs.stages(run_id)
    (step,) = await ledger.list(stage.id)
    assert (step.status, step.result, step.result_claim) == ("failed", None, None)
    assert (await kernel.dispatch(right)).already_completed
    await kernel.dispatch(RedriveRun(run_id, from_=origin))
    assert (await kernel.dispatch(right)).delivered
    assert (await kernel.dispatch(wrong)).already_completed
    assert (await finish(kernel, run_id)).output == 7


async def test_a_body_that_catches_a_signal_that_did_not_fit_is_told_the_same_again(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    finish: Finish,
    clock: FakeClock,
) -> None:
    told: list[str] = []

    async def body(ctx: Ctx) -> Any:
        try:
            await ctx.step.wait_for_signal("go", timeout="1h", returns=int)
        except StepResultNotSerializableError as error:
            told.append(str(error))
        await ctx.step.sleep("later", "1h")
        return "handled"

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    await kernel.dispatch(SignalStep(run_id, "s1", "go", payload="x"))
    assert (await execute(kernel, await take_job(kernel))).outcome == "suspended"
    clock.advance("2h")
    await kernel.dispatch(PollSuspendedStages())
    assert (await finish(kernel, run_id)).output == "handled"
    assert len(told) == 2
    assert told[0] == told[1]


@pytest.mark.parametrize("in_a_step", [False, True], ids=["bare", "step"])
async def test_a_batch_is_submitted_again_unless_a_step_keeps_what_was_submitted(
    make_kernel: MakeKernel,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    clock: FakeClock,
    in_a_step: bool,
) -> None:
    submitted: list[str] = []

    def submit_now() -> str:
        submitted.append("batch")
        return f"batch-{len(submitted)}"

    async def submit(ctx: Ctx) -> Suspend:
        state = await ctx.step.run("submit", submit_now) if in_a_step else submit_now()
        return Suspend(state=state, poll_interval="1m")

    async def check(state: Any, ctx: Ctx) -> Any:
        if len(checked) == 0:
            checked.append(state)
            raise NonRetryableError("the batch is gone")
        return Ready(state)

    checked: list[str] = []
    stage = define_stage("s1", submit, mode="async-batch", check_completion=check, input=Any, output=Any)
    kernel = make_kernel(define_workflow("flow", input=Any).pipe(stage).build())
    run_id = await start_run(kernel)
    await execute(kernel, await take_job(kernel))
    clock.advance("2m")
    assert (await kernel.dispatch(PollSuspendedStages())).failed == 1
    await kernel.dispatch(RedriveRun(run_id))
    await execute(kernel, await take_job(kernel))
    clock.advance("2m")
    assert (await kernel.dispatch(PollSuspendedStages())).resumed == 1
    run = await kernel.runs.get(run_id)
    assert run is not None
    assert (run.status, run.output) == (Status.COMPLETED, "batch-1" if in_a_step else "batch-2")
    assert len(submitted) == (1 if in_a_step else 2)
