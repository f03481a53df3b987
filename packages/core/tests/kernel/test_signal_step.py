"""`step.signal`: who gets a payload, who is refused, and what commits together."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Status, Workflow
from stagewright.commands import CancelRun, CreateRun, ExecuteJobResult, SignalStep, SignalStepResult
from stagewright.errors import (
    InvalidCommandError,
    RunNotFoundError,
    RunStateError,
    StepKindMismatchError,
    StepLedgerNotConfiguredError,
    StepResultNotSerializableError,
    StepTimeoutError,
    UnknownStageError,
)
from stagewright.memory import InMemoryBlobStore, InMemoryDatabase, InMemoryStepLedger
from stagewright.records import DequeuedJob, RunRecord
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
StartRun = Callable[..., Awaitable[str]]
TakeJob = Callable[..., Awaitable[DequeuedJob]]
Execute = Callable[..., Coroutine[Any, Any, ExecuteJobResult]]
Finish = Callable[[Kernel, str], Awaitable[RunRecord]]
Signal = Callable[..., Coroutine[Any, Any, SignalStepResult]]
Told = Callable[[Kernel, str], Awaitable[list[str]]]
FailAt = Callable[..., None]
Contents = Callable[[], dict[str, object]]

Ctx = StageContext[Any]
DELIVERED = SignalStepResult(delivered=True, already_completed=False)
ALREADY = SignalStepResult(delivered=False, already_completed=True)


async def waits(ctx: Ctx) -> Any:
    return await ctx.step.wait_for_signal("go", timeout="1h")


@pytest.mark.guarantee("steps.early-signals-are-kept")
async def test_a_signal_before_the_runs_first_claim_is_kept_and_seen(
    make_kernel: MakeKernel, flow_of: FlowOf, finish: Finish, signal: Signal, told: Told, clock: FakeClock
) -> None:
    kernel = make_kernel(flow_of(waits))
    run_id = (await kernel.dispatch(CreateRun("flow"))).run_id
    assert await signal(kernel, run_id, {"by": "Ada"}) == DELIVERED
    (kept,) = await kernel.runs.signals(run_id)
    assert (kept.stage_id, kept.step_id, kept.payload) == ("s1", "go", {"by": "Ada"})
    before = clock.now()
    run = await finish(kernel, run_id)
    assert (run.output, clock.now()) == ({"by": "Ada"}, before), "it answered without waiting"
    assert await kernel.runs.signals(run_id) == []
    assert (await told(kernel, run_id)).count("step:signalled") == 1
    (step,) = await kernel.runs.steps(run_id)
    assert (step.kind, step.status, step.result) == ("signal", "completed", {"by": "Ada"})


@pytest.mark.guarantee("steps.signals-answer-once")
@pytest.mark.parametrize("moment", ["before", "waiting", "taken", "finished"])
async def test_a_second_signal_changes_nothing(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    finish: Finish,
    signal: Signal,
    told: Told,
    moment: str,
) -> None:
    async def after(ctx: Ctx) -> Any:
        return ctx.input

    kernel = make_kernel(flow_of(waits, after))
    run_id = await start_run(kernel)
    if moment == "waiting":
        await execute(kernel, await take_job(kernel))
    assert await signal(kernel, run_id, 1) == DELIVERED
    if moment == "taken":
        await execute(kernel, await take_job(kernel))
    if moment == "finished":
        assert (await finish(kernel, run_id)).status is Status.COMPLETED
    assert await signal(kernel, run_id, 2) == ALREADY
    assert (await finish(kernel, run_id)).output == 1
    assert (await told(kernel, run_id)).count("step:signalled") == 1


async def test_its_event_tells_stage_step_and_payload(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, signal: Signal
) -> None:
    kernel = make_kernel(flow_of(waits))
    run_id = await start_run(kernel)
    await signal(kernel, run_id, [1])
    (event,) = [one for one in await kernel.runs.events(run_id) if one.type == "step:signalled"]
    assert event.payload == {"stage_id": "s1", "step_id": "go", "payload": [1]}


@pytest.mark.guarantee("steps.signals-tell-the-truth")
async def test_what_can_not_be_signalled_is_refused_by_name(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    signal: Signal,
    contents: Contents,
) -> None:
    async def body(ctx: Ctx) -> Any:
        await ctx.step.run("paid", lambda: 1)
        await ctx.step.sleep("pause", "1h")

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    await execute(kernel, await take_job(kernel))
    before = contents()
    with pytest.raises(RunNotFoundError):
        await signal(kernel, "none")
    with pytest.raises(UnknownStageError) as unknown:
        await signal(kernel, run_id, stage_id="s9")
    assert unknown.value.known == ("s1",)
    for step_id, kind in [("paid", "run"), ("pause", "sleep")]:
        with pytest.raises(StepKindMismatchError) as mismatch:
            await signal(kernel, run_id, step_id=step_id)
        assert (mismatch.value.kind, mismatch.value.stored_kind) == ("signal", kind)
    with pytest.raises(StepLedgerNotConfiguredError):
        await signal(make_kernel(flow_of(body), step_ledger=None), run_id)
    with pytest.raises(InvalidCommandError):
        await signal(kernel, run_id, step_id="")
    assert contents() == before


@pytest.mark.parametrize("ending", [Status.COMPLETED, Status.FAILED, Status.CANCELLED])
@pytest.mark.guarantee("steps.signals-tell-the-truth")
async def test_a_finished_run_takes_no_signal_and_shows_what_nobody_took(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    finish: Finish,
    signal: Signal,
    ending: Status,
) -> None:
    async def body(ctx: Ctx) -> Any:
        if ending is Status.FAILED:
            raise ValueError

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    assert await signal(kernel, run_id, 1, step_id="never asked for") == DELIVERED
    if ending is Status.CANCELLED:
        await kernel.dispatch(CancelRun(run_id))
    assert (await finish(kernel, run_id)).status is ending
    with pytest.raises(RunStateError) as refused:
        await signal(kernel, run_id)
    assert refused.value.status == ending
    assert await signal(kernel, run_id, 2, step_id="never asked for") == ALREADY
    assert [one.payload for one in await kernel.runs.signals(run_id)] == [1]


async def test_a_stage_is_known_by_the_version_that_the_run_is_pinned_to(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, signal: Signal
) -> None:
    async def other(ctx: Ctx) -> Any:
        return 1

    run_id = await start_run(make_kernel(flow_of(waits, other)))
    for elsewhere in (make_kernel(flow_of(waits)), make_kernel()):
        assert await signal(elsewhere, run_id, stage_id="s2", step_id=f"go {id(elsewhere)}") == DELIVERED
        with pytest.raises(UnknownStageError):
            await signal(elsewhere, run_id, stage_id="s3")


@pytest.mark.guarantee("steps.signals-tell-the-truth")
async def test_a_wait_that_has_timed_out_refuses_its_signal(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    resume: Callable[[Kernel, str], Awaitable[None]],
    signal: Signal,
) -> None:
    async def body(ctx: Ctx) -> Any:
        try:
            await ctx.step.wait_for_signal("go", timeout="1m")
        except StepTimeoutError:
            await ctx.step.sleep("pause", "1h")

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    for _ in range(2):
        await execute(kernel, await take_job(kernel))
        await resume(kernel, run_id)
    with pytest.raises(StepTimeoutError) as refused:
        await signal(kernel, run_id)
    assert (refused.value.step_id, refused.value.kind) == ("go", "signal")
    assert await kernel.runs.signals(run_id) == []


@pytest.mark.guarantee("steps.payloads-that-can-not-be-kept-are-refused")
@pytest.mark.parametrize(
    ("payload", "path"),
    [
        ({"file": open}, "$.file"),
        ([1, lambda: 1], "$[1]"),
        ({"a": {"b": iter([1])}}, "$.a.b"),
        (float("nan"), "$"),
        ({1: "x"}, "$[1]"),
        ("\x00", "$"),
        ((1,), "$"),
    ],
)
async def test_a_payload_that_is_no_json_is_refused_with_its_path(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    signal: Signal,
    contents: Contents,
    payload: Any,
    path: str,
) -> None:
    kernel = make_kernel(flow_of(waits))
    run_id = await start_run(kernel)
    before = contents()
    with pytest.raises(StepResultNotSerializableError) as refused:
        await signal(kernel, run_id, payload)
    assert (refused.value.step_id, refused.value.path) == ("go", path)
    assert "signal" in str(refused.value)
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(StepResultNotSerializableError):
        await signal(kernel, run_id, circle)
    assert contents() == before


async def test_a_dict_is_a_command_and_no_payload_is_null(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, finish: Finish
) -> None:
    kernel = make_kernel(flow_of(waits))
    run_id = await start_run(kernel)
    given = {"type": "step.signal", "run_id": run_id, "stage_id": "s1", "step_id": "go"}
    assert await kernel.dispatch(given) == DELIVERED
    run = await finish(kernel, run_id)
    assert (run.status, run.output) == (Status.COMPLETED, None)


async def test_a_payload_is_the_callers_own(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, finish: Finish, signal: Signal
) -> None:
    kernel = make_kernel(flow_of(waits))
    run_id = await start_run(kernel)
    payload = {"list": [1]}
    await signal(kernel, run_id, payload)
    payload["list"].append(2)
    assert (await finish(kernel, run_id)).output == {"list": [1]}


@pytest.mark.parametrize("early", [True, False])
async def test_a_large_payload_is_spilled(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    finish: Finish,
    signal: Signal,
    early: bool,
    blob_store: InMemoryBlobStore,
) -> None:
    kernel = make_kernel(flow_of(waits), spill_threshold_bytes=10)
    run_id = await start_run(kernel)
    if not early:
        await execute(kernel, await take_job(kernel))
    assert await signal(kernel, run_id, "x" * 100) == DELIVERED
    assert await signal(kernel, run_id, "y" * 100) == ALREADY
    await finish(kernel, run_id)
    (step,) = await kernel.runs.steps(run_id)
    assert step.result is None
    assert step.result_claim is not None
    assert await kernel.runs.output_of(run_id, "s1") == "x" * 100
    keys = [key async for key in blob_store.list("") if "/steps/" in key]
    assert keys == [step.result_claim.key], "the second payload left nothing behind"


@pytest.mark.parametrize("state", ["early", "waiting"])
@pytest.mark.guarantee("steps.signals-commit-whole")
async def test_a_signal_its_event_and_its_nudge_commit_together(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    signal: Signal,
    contents: Contents,
    moments: list[str],
    fail_at: FailAt,
    forget_cues: Callable[[], None],
    state: str,
) -> None:
    class Crash(BaseException):
        pass

    kernel = make_kernel(flow_of(waits))
    run_id = await start_run(kernel)
    if state == "waiting":
        await execute(kernel, await take_job(kernel))
    before, crashes = contents(), 0
    for nth in range(1, 50):
        moments.clear()
        fail_at("*", nth=nth, error=Crash())
        try:
            await signal(kernel, run_id, nth)
        except Crash:
            crashes += 1
            if moments[-1] == "committed":
                break
            assert contents() == before, moments
        else:
            raise AssertionError("it should have crashed when it had committed")
        forget_cues()
    assert crashes > 5
    forget_cues()
    assert await signal(kernel, run_id, "again") == ALREADY
    assert (await kernel.runs.events(run_id))[-1].type == "step:signalled"
    if state == "waiting":
        await take_job(kernel)


async def test_of_many_signals_at_once_one_is_delivered(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    finish: Finish,
    signal: Signal,
    told: Told,
) -> None:
    kernel = make_kernel(flow_of(waits))
    for is_waiting in (False, True):
        run_id = await start_run(kernel)
        if is_waiting:
            await execute(kernel, await take_job(kernel))
        answers = await asyncio.gather(*(signal(kernel, run_id, number) for number in range(8)))
        assert sorted(answers, key=str) == sorted([DELIVERED] + [ALREADY] * 7, key=str)
        run = await finish(kernel, run_id)
        assert run.output == answers.index(DELIVERED)
        assert (await told(kernel, run_id)).count("step:signalled") == 1


async def test_a_signal_wakes_waiting_hosts(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    signal: Signal,
    database: InMemoryDatabase,
) -> None:
    kernel = make_kernel(flow_of(waits))
    run_id = await start_run(kernel)
    await execute(kernel, await take_job(kernel))
    sent = database.work.sent
    await signal(kernel, run_id)
    assert database.work.sent == sent + 1
    await take_job(kernel)


async def test_a_ledger_elsewhere_is_asked_with_no_transaction_open(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    finish: Finish,
    signal: Signal,
    ledger_elsewhere: InMemoryStepLedger,
    moments: list[str],
) -> None:
    kernel = make_kernel(flow_of(waits), step_ledger=ledger_elsewhere)
    for early in (True, False):
        run_id = await start_run(kernel)
        if not early:
            await execute(kernel, await take_job(kernel))
        moments.clear()
        assert await signal(kernel, run_id, 7) == DELIVERED
        end = moments.index("commit")
        begin = end - moments[end::-1].index("begin")
        assert "step_ledger.get" in moments[:begin]
        assert not any(moment.startswith("step_ledger") for moment in moments[begin:end])
        assert await signal(kernel, run_id, 8) == ALREADY
        assert (await finish(kernel, run_id)).output == 7
        assert await kernel.runs.signals(run_id) == []


async def test_a_command_is_a_value() -> None:
    assert SignalStep("r", "s", "x", payload=1) == SignalStep("r", "s", "x", payload=1)
