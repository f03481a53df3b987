"""Driving runs in a harness: to the end, tick by tick, from outside, and from one event loop after the other."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest
from pydantic import BaseModel

from stagewright import (
    BlockingStageContext,
    KernelServices,
    RetryPolicy,
    StageContext,
    Status,
    Workflow,
    WorkflowRegistry,
    define_workflow,
    stage,
)
from stagewright.commands import FromStage, Start
from stagewright.errors import (
    DefinitionError,
    HarnessStalledError,
    InvalidCommandError,
    InvalidInputError,
    InvalidSettingError,
    RunNotFoundError,
    UnexpectedStatusError,
)
from stagewright.system import SystemClock
from stagewright.testing import CollectingEventSink, FakeClock, Harness, assert_consistent


class Rate(BaseModel):
    factor: int = 2


@stage("multiply")
async def multiply(ctx: StageContext[int, Rate]) -> int:
    return ctx.input * ctx.config.factor


@stage("halve")
def halve(ctx: BlockingStageContext[int]) -> float:
    return ctx.input / 2


@stage("join")
async def join(ctx: StageContext[dict[str, float]]) -> str:
    return f"{ctx.input['halve']} of {ctx.require('multiply')}"


@stage("name")
async def name(ctx: StageContext[int]) -> float:
    return 0.5


sums = define_workflow("sums", input=int).pipe(multiply).parallel(halve, name).pipe(join).build()


@stage("approve")
async def approve(ctx: StageContext[int]) -> str:
    answer: dict[str, str] = await ctx.step.wait_for_signal("approval", timeout="7d", returns=dict[str, str])
    return answer["by"]


approvals = define_workflow("approvals", input=int).pipe(approve).build()


class BareRegistry:
    """A registry of a user's own, which doesn't list its workflows."""

    def __init__(self, known: dict[str, Workflow]) -> None:
        self._known = known

    def get(self, id: str) -> Workflow | None:
        return self._known.get(id)


class ChangingRegistry(BareRegistry):
    """One that does."""

    def list(self) -> Sequence[Workflow]:
        return [*self._known.values()]


@pytest.mark.guarantee("testing.a-run-goes-to-its-end")
async def test_a_run_goes_to_its_end_through_groups_and_both_kinds_of_bodies() -> None:
    harness = Harness(sums)
    result = await harness.run("sums", 3, {"multiply": {"factor": 5}})
    assert (result.status, result.output, result.error) == (Status.COMPLETED, "7.5 of 15", None)
    assert [stage.stage_id for stage in result.stages] == ["multiply", "halve", "name", "join"]
    assert [event.type for event in result.events][-1] == "workflow:completed"
    assert [event.sequence for event in result.events] == list(range(1, len(result.events) + 1))
    executed = [[outcome.stage_id for outcome in report.outcomes] for report in result.reports]
    assert executed == [["multiply"], ["halve", "name"], ["join"]]
    await assert_consistent(harness.kernel)


async def test_events_are_delivered_before_the_result_is_there() -> None:
    sink = CollectingEventSink()
    harness = Harness(sums, event_sink=sink)
    result = await harness.run("sums", 1)
    assert [event.event_id for event in sink.events] == [event.event_id for event in result.events]
    assert sum(report.events_flushed for report in result.reports) == len(sink.events)


async def test_a_failed_run_says_why_and_how_often_it_was_tried() -> None:
    @stage("fragile", retry=RetryPolicy(max_attempts=4, delay="1h", factor=1, jitter=False))
    async def fragile(ctx: StageContext[int]) -> int:
        raise ConnectionError("the bank is away")

    harness = Harness(define_workflow("w", input=int).pipe(fragile).build())
    result = await harness.run("w", 1)
    assert result.status is Status.FAILED
    assert result.error is not None
    assert (result.error.type, result.error.stage_id) == ("ConnectionError", "fragile")
    assert result.stage("fragile").attempt == 4
    assert [report.outcomes[0].will_retry for report in result.reports if report.outcomes] == [True] * 3 + [
        False
    ]
    assert sum((report.advanced for report in result.reports), timedelta(0)) == timedelta(hours=3)


@pytest.mark.guarantee("testing.a-tick-is-one-round")
async def test_a_tick_takes_a_run_one_group_further() -> None:
    harness = Harness(sums)
    run_id = await harness.start("sums", 3)
    assert await harness.status(run_id) == "PENDING"
    first = await harness.tick()
    assert (first.claimed, first.executed, first.idle) == (1, 1, False)
    assert [stage.stage_id for stage in (await harness.result(run_id)).stages] == [
        "multiply",
        "halve",
        "name",
    ]
    second = await harness.tick()
    assert {(one.stage_id, one.outcome) for one in second.outcomes} == {
        ("halve", "completed"),
        ("name", "completed"),
    }
    await harness.tick()
    assert await harness.status(run_id) == "COMPLETED"
    last = await harness.tick()
    assert last.idle
    assert last.advanced == timedelta(0)


async def test_it_ticks_until_a_plain_or_async_condition_holds() -> None:
    harness = Harness(approvals)
    run_id = await harness.start("approvals", 1)

    async def is_asked() -> bool:
        return await harness.steps.status("approval") == "pending"

    assert len(await harness.tick_until(is_asked)) == 1
    assert await harness.tick_until(is_asked) == ()
    later = harness.clock.now() + timedelta(days=7)
    await harness.tick_until(lambda: harness.clock.now() >= later)
    assert await harness.status(run_id) == "RUNNING"
    assert (await harness.finish(run_id)).status == "FAILED"


async def test_a_signal_is_sent_while_the_run_waits_or_before() -> None:
    harness = Harness(approvals)
    early, late = await harness.start("approvals", 1), await harness.start("approvals", 2)
    assert (await harness.signal(early, "approve", "approval", {"by": "Ada"})).delivered
    await harness.tick()
    assert (await harness.signal(late, "approve", "approval", payload={"by": "Bob"})).delivered
    assert (await harness.finish(late)).output == "Bob"
    assert (await harness.result(early)).output == "Ada"
    assert harness.clock.now() == FakeClock().now()


async def test_a_waiting_run_is_cancelled_and_a_running_body_is_told() -> None:
    inside, told = asyncio.Event(), asyncio.Event()

    @stage("work")
    async def work(ctx: StageContext[int]) -> int:
        inside.set()
        await ctx.abort.wait()
        told.set()
        return 1

    flow = define_workflow("w", input=int).pipe(work).build()
    harness = Harness([flow, approvals])
    waiting = await harness.start("approvals", 1)
    await harness.tick()
    assert (await harness.cancel(waiting, "not needed")).cancelled
    result = await harness.finish(waiting)
    assert result.status == "CANCELLED"
    assert "not needed" in result.timeline
    async with asyncio.timeout(60):
        running = asyncio.create_task(harness.run("w", 1))
        await inside.wait()
        (run,) = (await harness.kernel.runs.list(workflow_id="w")).items
        assert (await harness.cancel(run.id)).cancelled
        assert (await running).status == "CANCELLED"
    assert told.is_set()


async def test_an_ended_run_is_redriven_and_finished() -> None:
    refusals = ["no", "no", "no"]

    @stage("check")
    async def check(ctx: StageContext[float]) -> str:
        if refusals:
            raise ValueError(refusals.pop())
        return "fine"

    flow = define_workflow("w", input=int).pipe(multiply).pipe(halve).pipe(check).build()
    harness = Harness(flow)
    failed = await harness.run("w", 1)
    assert failed.status == "FAILED"
    assert (await harness.redrive(failed.run_id)).from_stage_id == "check"
    assert (await harness.finish(failed.run_id)).output == "fine"
    assert (await harness.redrive(failed.run_id, FromStage("halve"))).superseded_stages == ("halve", "check")
    assert (await harness.finish(failed.run_id)).stage("multiply").attempt == 1
    await harness.redrive(failed.run_id, Start())
    assert (await harness.finish(failed.run_id)).stage("multiply").attempt == 2


async def test_runs_side_by_side_wait_for_each_other() -> None:
    @stage("nap")
    async def nap(ctx: StageContext[int]) -> int:
        await asyncio.sleep(0)
        await ctx.step.sleep("nap", ctx.input)
        return ctx.input

    harness = Harness(define_workflow("w", input=int).pipe(nap).build())
    results = await asyncio.gather(*(harness.run("w", seconds) for seconds in range(1, 30)))
    assert [result.output for result in results] == list(range(1, 30))
    began = FakeClock().now()
    assert [result.stages[0].completed_at for result in results] == [
        began + timedelta(seconds=seconds) for seconds in range(1, 30)
    ]


def test_it_outlives_its_event_loop() -> None:
    harness = Harness(sums)

    async def run_two() -> list[object]:
        return [one.output for one in await asyncio.gather(harness.run("sums", 1), harness.run("sums", 2))]

    assert asyncio.run(run_two()) == asyncio.run(run_two()) == ["1.0 of 2", "2.0 of 4"]


async def test_ctx_ai_is_what_the_test_gives() -> None:
    @stage("ask")
    async def ask(ctx: StageContext[int]) -> str:
        return str(ctx.ai.answer)

    class Canned:
        answer = "mocked"

    class Live:
        answer = "from the services"

    harness = Harness(
        define_workflow("w", input=int).pipe(ask).build(),
        services=KernelServices(ai=lambda _topic, _logger: Live()),
    )
    harness.mock_ai(Canned())
    assert (await harness.run("w", 1)).output == "mocked"
    harness.mock_ai(None)
    assert (await harness.run("w", 1)).output == "from the services"
    without = Harness(define_workflow("w", input=int).pipe(ask).build())
    told = (await without.run("w", 1)).error
    assert told is not None
    assert told.type == "AIServicesNotConfiguredError"


async def test_a_registry_may_change_while_it_is_used() -> None:
    known = {"sums": sums}

    harness = Harness(BareRegistry(known))
    assert (await harness.run("sums", 1)).status == "COMPLETED"
    known["approvals"] = approvals
    assert (await harness.run("approvals", 1)).status == "FAILED"
    assert harness.kernel.served_definitions() is None
    listing = Harness(WorkflowRegistry([sums, approvals]))
    assert [one.version for one in listing.kernel.served_definitions() or ()] == [
        sums.definition_version,
        approvals.definition_version,
    ]


@pytest.mark.guarantee("testing.stalls-are-told")
async def test_a_run_that_does_not_end_is_told_with_its_timeline() -> None:
    @stage("poll")
    async def poll(ctx: StageContext[int]) -> int:
        return await ctx.step.wait_for(
            "ready", poll=lambda: 0, ready=lambda answer: answer == 1, every="1s", timeout="1h", returns=int
        )

    harness = Harness(define_workflow("w", input=int).pipe(poll).build(), max_ticks=7)
    with pytest.raises(HarnessStalledError, match="was to end, and after 7 ticks it is not so") as stalled:
        await harness.run("w", 1)
    assert "stage poll: SUSPENDED" in str(stalled.value)
    assert "step 'ready' (wait) pending until +1h" in str(stalled.value)


async def test_a_timeline_ends_with_the_last_lines_of_a_long_log() -> None:
    @stage("talk")
    async def talk(ctx: StageContext[int]) -> None:
        for number in range(ctx.input):
            ctx.log("info", f"line {number}")

    result = await Harness(define_workflow("w", input=int).pipe(talk).build()).run("w", 1_203)
    assert "    … 1183 before\n" in result.timeline
    assert "INFO: line 1182\n" not in result.timeline
    assert "INFO: line 1183\n" in result.timeline
    assert result.timeline.endswith("INFO: line 1202")


@pytest.mark.guarantee("testing.stalls-are-told")
async def test_a_standstill_is_told_at_once() -> None:
    harness = Harness(approvals)
    with pytest.raises(HarnessStalledError, match="after 1 ticks there is nothing left to do") as stalled:
        await harness.tick_until(lambda: False)
    assert stalled.value.ticks == 1


async def test_a_run_of_another_version_than_is_served_is_told_as_that() -> None:
    known = {"w": define_workflow("w", input=int).pipe(multiply).version("1").build()}
    harness = Harness(ChangingRegistry(known))
    run_id = await harness.start("w", 1)
    known["w"] = define_workflow("w", input=int).pipe(multiply).version("2").build()
    with pytest.raises(HarnessStalledError, match="pinned to version 1, which isn't what is served here"):
        await harness.finish(run_id)
    known["w"] = define_workflow("w", input=int).pipe(multiply).version("1").build()
    assert (await harness.finish(run_id)).status == "COMPLETED"


async def test_a_result_of_another_status_than_expected_shows_the_run() -> None:
    result = await Harness(approvals).run("approvals", 1)
    result.assert_status("FAILED")
    with pytest.raises(UnexpectedStatusError, match="is FAILED, and COMPLETED is expected") as unexpected:
        result.assert_status(Status.COMPLETED)
    assert isinstance(unexpected.value, AssertionError)
    assert result.timeline in str(unexpected.value)
    assert "FAILED: approve: StepTimeoutError" in repr(result)
    with pytest.raises(LookupError, match="has no stage 'ship'; it has come to approve"):
        result.stage("ship")


async def test_what_is_wrong_with_a_call_is_said_by_the_call() -> None:
    with pytest.raises(DefinitionError, match="Harness: a int is no workflow"):
        Harness(3)  # type: ignore[arg-type]  # what an untyped caller may give
    with pytest.raises(DefinitionError, match=r"becomes a workflow with \.build\(\)"):
        Harness(define_workflow("w", input=int))  # type: ignore[arg-type]  # what an untyped caller may give
    with pytest.raises(InvalidSettingError, match="max_ticks"):
        Harness(sums, max_ticks=0)
    with pytest.raises(InvalidSettingError, match="clock"):
        Harness(sums, clock=SystemClock())  # type: ignore[arg-type]  # what an untyped caller may give
    with pytest.raises(InvalidSettingError, match="services=3 must be KernelServices"):
        Harness(sums, services=3)  # type: ignore[arg-type]  # what an untyped caller may give
    harness = Harness(sums)
    with pytest.raises(InvalidCommandError, match="config"):
        await harness.run("sums", 1, "factor")  # type: ignore[arg-type]  # what an untyped caller may give
    with pytest.raises(InvalidInputError):
        await harness.run("sums", "three")
    for call in (harness.finish, harness.result, harness.status, harness.redrive):
        with pytest.raises(RunNotFoundError):
            await call("gone")
        with pytest.raises(InvalidCommandError, match="run_id"):
            await call(None)  # type: ignore[arg-type]  # what an untyped caller may give
    assert await harness.timeline() == ""
