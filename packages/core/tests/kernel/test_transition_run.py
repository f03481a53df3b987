"""`run.transition` and `run.cancel`: a run moves on or ends once, and then stays as it is."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from stagewright import (
    Kernel,
    KernelServices,
    NonRetryableError,
    StageContext,
    StageResult,
    Status,
    Workflow,
    define_stage,
    define_workflow,
)
from stagewright.commands import CancelRun, CreateRun, ExecuteJob, TransitionRun, TransitionRunResult
from stagewright.errors import RunNotFoundError
from stagewright.memory import InMemoryAICallLogger, InMemoryJobTransport, InMemoryPersistence
from stagewright.ports import AICallTotals
from stagewright.records import RunRecord, StagePatch
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
StartRun = Callable[..., Awaitable[str]]
Told = Callable[[Kernel, str], Awaitable[list[str]]]
Statuses = Callable[[Kernel, str], Awaitable[dict[str, Status]]]
Finish = Callable[[Kernel, str], Awaitable[RunRecord]]
Contents = Callable[[], dict[str, object]]

pytestmark = pytest.mark.parametrize("transport", ["enlisting", "separate"], indirect=True)


async def echo(ctx: StageContext[Any]) -> Any:
    return ctx.input


async def refuse(ctx: StageContext[Any]) -> Any:
    raise NonRetryableError("no")


async def measured(ctx: StageContext[Any]) -> StageResult[int]:
    return StageResult(output=1, metrics={"total_cost": "0.10", "total_tokens": 7})


async def run_of(kernel: Kernel, run_id: str) -> RunRecord:
    run = await kernel.runs.get(run_id)
    assert run is not None
    return run


async def transition(kernel: Kernel, run_id: str) -> TransitionRunResult:
    return await kernel.dispatch(TransitionRun(run_id))


async def test_an_unknown_run_is_an_error(make_kernel: MakeKernel, flow_of: FlowOf) -> None:
    with pytest.raises(RunNotFoundError):
        await transition(make_kernel(flow_of(echo)), "unknown")


async def test_a_run_goes_from_group_to_group_and_completes(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    transport: InMemoryJobTransport,
    clock: FakeClock,
) -> None:
    kernel = make_kernel(flow_of(echo, echo))
    run_id = await start_run(kernel, 5)
    clock.advance("3s")
    assert await transition(kernel, run_id) == TransitionRunResult("noop")
    await kernel.dispatch(ExecuteJob(run_id, "flow", "s1"))
    assert await transition(kernel, run_id) == TransitionRunResult("advanced", 2)
    assert await transition(kernel, run_id) == TransitionRunResult("noop")
    assert len(await transport.get_jobs_by_run(run_id)) == 2
    await kernel.dispatch(ExecuteJob(run_id, "flow", "s2"))
    assert await transition(kernel, run_id) == TransitionRunResult("completed")
    assert await transition(kernel, run_id) == TransitionRunResult("noop")
    run = await run_of(kernel, run_id)
    assert (run.status, run.output, run.duration) == (Status.COMPLETED, 5, timedelta(seconds=3))


@pytest.mark.guarantee("kernel.duration-starts-with-the-claim")
async def test_the_duration_counts_from_the_claim_not_from_the_creation(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, clock: FakeClock
) -> None:
    kernel = make_kernel(flow_of(echo))
    created = await kernel.dispatch(CreateRun("flow"))
    clock.advance("1h")
    await start_run(kernel)
    clock.advance("2s")
    await kernel.dispatch(ExecuteJob(created.run_id, "flow", "s1"))
    await transition(kernel, created.run_id)
    assert (await run_of(kernel, created.run_id)).duration == timedelta(seconds=2)
    (event,) = [one for one in await kernel.runs.events(created.run_id) if one.type == "workflow:completed"]
    assert event.payload["duration"] == "PT2S"


async def test_a_pending_run_without_stages_is_set_going(
    make_kernel: MakeKernel, flow_of: FlowOf, told: Told, transport: InMemoryJobTransport, statuses: Statuses
) -> None:
    kernel = make_kernel(flow_of(echo))
    run_id = (await kernel.dispatch(CreateRun("flow"))).run_id
    assert await transition(kernel, run_id) == TransitionRunResult("advanced", 1)
    assert (await run_of(kernel, run_id)).status is Status.RUNNING
    assert await told(kernel, run_id) == ["workflow:created", "workflow:started"]
    assert await statuses(kernel, run_id) == {"s1": Status.PENDING}
    assert len(await transport.get_jobs_by_run(run_id)) == 1


async def test_a_failed_stage_fails_the_run_with_its_error_and_totals(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, finish: Finish, told: Told
) -> None:
    kernel = make_kernel(flow_of(measured, refuse))
    run = await finish(kernel, await start_run(kernel))
    assert run.error is not None
    assert (run.status, run.output, run.error.message) == (Status.FAILED, None, "no")
    assert (run.total_cost, run.total_tokens) == (Decimal("0.10"), 7)
    (event,) = [one for one in await kernel.runs.events(run.id) if one.type == "workflow:failed"]
    assert event.payload == {"error": "NonRetryableError: no"}


@pytest.mark.parametrize("how", ["ended", "unserved", "unregistered"])
async def test_what_can_not_be_moved_here_is_left_alone(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    finish: Finish,
    contents: Contents,
    how: str,
) -> None:
    kernel = make_kernel(flow_of(echo))
    run_id = await start_run(kernel)
    if how == "ended":
        await finish(kernel, run_id)
    other = {"ended": kernel, "unserved": make_kernel(flow_of(echo, echo)), "unregistered": make_kernel()}[
        how
    ]
    before = contents()
    assert await transition(other, run_id) == TransitionRunResult("noop")
    assert contents() == before


@pytest.mark.guarantee("kernel.one-transition-wins")
@pytest.mark.parametrize("last", [False, True])
async def test_of_concurrent_transitions_one_moves_the_run_on(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    told: Told,
    transport: InMemoryJobTransport,
    last: bool,
) -> None:
    kernel = make_kernel(flow_of(echo) if last else flow_of(echo, echo))
    run_id = await start_run(kernel)
    await kernel.dispatch(ExecuteJob(run_id, "flow", "s1"))
    results = await asyncio.gather(*(transition(kernel, run_id) for _ in range(6)))
    actions = sorted(result.action for result in results)
    assert actions == (["completed"] if last else ["advanced"]) + ["noop"] * 5
    assert (await told(kernel, run_id)).count("workflow:completed") == int(last)
    assert len(await transport.get_jobs_by_run(run_id)) == (1 if last else 2)


async def test_a_group_that_is_only_half_there_is_completed(
    make_kernel: MakeKernel, start_run: StartRun, persistence: InMemoryPersistence, statuses: Statuses
) -> None:
    siblings = [define_stage(name, echo, input=Any, output=Any) for name in ("a", "b")]
    kernel = make_kernel(define_workflow("flow", input=Any).parallel(*siblings).build())
    run_id = await start_run(kernel)
    missing = next(stage for stage in await persistence.get_stages_by_run(run_id) if stage.stage_id == "b")
    persistence.database.stages.write(missing.id, None)
    await kernel.dispatch(ExecuteJob(run_id, "flow", "a"))
    assert await transition(kernel, run_id) == TransitionRunResult("advanced", 1)
    assert await statuses(kernel, run_id) == {"a": Status.COMPLETED, "b": Status.PENDING}


# Totals


class Log(InMemoryAICallLogger):
    def __init__(self, answer: AICallTotals | Exception) -> None:
        super().__init__()
        self.answer = answer
        self.topics: list[str] = []

    async def get_stats(self, topic: str) -> AICallTotals:
        self.topics.append(topic)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def delete_calls(self, topic: str) -> None:
        raise AssertionError(f"nobody asked for the calls of {topic} to be forgotten")


@pytest.mark.parametrize("failing", [False, True])
@pytest.mark.guarantee("kernel.totals-come-from-the-log-or-the-metrics")
async def test_the_log_of_model_calls_gives_the_totals(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, finish: Finish, failing: bool
) -> None:
    log = Log(AICallTotals(calls=2, input_tokens=30, output_tokens=12, cost=Decimal("1.5")))
    kernel = make_kernel(
        flow_of(measured, refuse if failing else echo), services=KernelServices(ai_logger=log)
    )
    run = await finish(kernel, await start_run(kernel))
    assert (run.total_cost, run.total_tokens) == (Decimal("1.5"), 42)
    assert set(log.topics) == {f"workflow.{run.id}"}


async def test_an_unknown_price_is_unknown_and_not_zero(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, finish: Finish
) -> None:
    services = KernelServices(ai_logger=Log(AICallTotals(calls=1, input_tokens=1, cost=None)))
    kernel = make_kernel(flow_of(measured), services=services)
    run = await finish(kernel, await start_run(kernel))
    assert (run.total_cost, run.total_tokens) == (None, 1)


async def test_a_log_that_can_not_be_read_holds_no_run_back(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, finish: Finish
) -> None:
    kernel = make_kernel(flow_of(measured), services=KernelServices(ai_logger=Log(OSError("down"))))
    run = await finish(kernel, await start_run(kernel))
    assert (run.status, run.total_cost, run.total_tokens) == (Status.COMPLETED, Decimal("0.10"), 7)


async def test_a_missing_workflow_fails_its_run_with_such_a_log_as_well(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun
) -> None:
    services = KernelServices(ai_logger=Log(AICallTotals()))
    runs = [(await make_kernel(flow_of(echo)).dispatch(CreateRun("flow"))).run_id for _ in range(3)]
    kernel = make_kernel(registry=SimpleNamespace(get=lambda id: None), services=services)
    await kernel.dispatch({"type": "run.claimPending", "worker_id": "w"})
    for run_id in runs:
        error = (await run_of(kernel, run_id)).error
        assert error is not None
        assert error.code == "WORKFLOW_NOT_FOUND"


# Cancelling


@pytest.mark.parametrize("claimed", [False, True])
async def test_a_cancel_ends_run_stages_and_waiting_jobs_together(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    told: Told,
    statuses: Statuses,
    transport: InMemoryJobTransport,
    clock: FakeClock,
    claimed: bool,
) -> None:
    kernel = make_kernel(flow_of(echo, echo))
    run_id = await start_run(kernel) if claimed else (await kernel.dispatch(CreateRun("flow"))).run_id
    clock.advance("5s")
    assert (await kernel.dispatch(CancelRun(run_id, reason="enough"))).cancelled
    run = await run_of(kernel, run_id)
    assert (run.status, run.completed_at, run.error) == (Status.CANCELLED, clock.now(), None)
    assert run.duration == (timedelta(seconds=5) if claimed else None)
    assert run.version == (3 if claimed else 2)
    assert await statuses(kernel, run_id) == ({"s1": Status.CANCELLED} if claimed else {})
    assert {job.status for job in await transport.get_jobs_by_run(run_id)} == (
        {Status.CANCELLED} if claimed else set()
    )
    events = await kernel.runs.events(run_id)
    assert (events[-1].type, events[-1].payload) == ("workflow:cancelled", {"reason": "enough"})


async def test_a_suspended_stage_is_cancelled_and_no_longer_due(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    persistence: InMemoryPersistence,
    clock: FakeClock,
) -> None:
    kernel = make_kernel(flow_of(echo))
    run_id = await start_run(kernel)
    (stage,) = await persistence.get_stages_by_run(run_id)
    patch = StagePatch(updated_at=clock.now(), status=Status.SUSPENDED, next_poll_at=clock.now())
    await persistence.update_stage(stage.id, patch)
    await kernel.dispatch(CancelRun(run_id))
    (cancelled,) = await kernel.runs.stages(run_id)
    assert (cancelled.status, cancelled.next_poll_at) == (Status.CANCELLED, None)


@pytest.mark.guarantee("kernel.cancel-answers-once")
async def test_a_second_cancel_and_a_cancel_of_nothing_change_nothing(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, contents: Contents, finish: Finish
) -> None:
    kernel = make_kernel(flow_of(echo))
    cancelled, done = await start_run(kernel), await start_run(kernel)
    await kernel.dispatch(CancelRun(cancelled))
    await finish(kernel, done)
    before = contents()
    for run_id in (cancelled, done, "unknown"):
        assert not (await kernel.dispatch(CancelRun(run_id))).cancelled
    assert contents() == before


async def test_of_concurrent_cancels_one_is_the_one(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, told: Told
) -> None:
    kernel = make_kernel(flow_of(echo))
    run_id = await start_run(kernel)
    results = await asyncio.gather(*(kernel.dispatch(CancelRun(run_id)) for _ in range(6)))
    assert sorted(result.cancelled for result in results) == [False] * 5 + [True]
    assert (await told(kernel, run_id)).count("workflow:cancelled") == 1


async def test_completed_stages_keep_their_outputs_when_the_run_is_cancelled(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, statuses: Statuses
) -> None:
    kernel = make_kernel(flow_of(echo, echo))
    run_id = await start_run(kernel, 9)
    await kernel.dispatch(ExecuteJob(run_id, "flow", "s1"))
    await transition(kernel, run_id)
    await kernel.dispatch(CancelRun(run_id))
    assert await statuses(kernel, run_id) == {"s1": Status.COMPLETED, "s2": Status.CANCELLED}
    assert await kernel.runs.output_of(run_id, "s1") == 9
