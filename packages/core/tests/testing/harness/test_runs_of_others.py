"""What a harness is given, and runs in it that the test didn't create by it."""

import pytest

from stagewright import StageContext, define_workflow, stage
from stagewright.commands import CreateRun
from stagewright.errors import InvalidSettingError
from stagewright.events import Event
from stagewright.testing import Harness


@stage("add")
async def add(ctx: StageContext[int]) -> int:
    return ctx.input + 1


@stage("approve")
async def approve(ctx: StageContext[int]) -> str:
    answer: dict[str, str] = await ctx.step.wait_for_signal("approval", timeout="7d", returns=dict[str, str])
    return answer["by"]


sums = define_workflow("sums", input=int).pipe(add).build()
approvals = define_workflow("approvals", input=int).pipe(approve).build()


async def test_a_sink_that_is_empty_is_the_sink() -> None:
    class Kept(list[Event]):
        max_retries = 3

        async def emit(self, event: Event) -> None:
            self.append(event)

    sink = Kept()
    harness = Harness(sums, event_sink=sink)
    await harness.run("sums", 1)
    assert harness.event_sink is sink
    assert [event.type for event in sink][-1] == "workflow:completed"


async def test_runs_that_others_create_are_seen_like_the_tests_own() -> None:
    @stage("parent")
    async def parent(ctx: StageContext[int]) -> str:
        async def begin() -> str:
            return (await harness.kernel.dispatch(CreateRun("approvals", 1))).run_id

        return await ctx.step.run("begin", begin)

    harness = Harness([define_workflow("w", input=int).pipe(parent).build(), approvals])
    result = await harness.run("w", 1)

    async def is_over() -> bool:
        return await harness.steps.status("approval") == "failed"

    await harness.tick_until(is_over)
    records = await harness.steps.records()
    assert [record.step_id for record in records] == ["begin", "approval"]
    timeline = await harness.timeline()
    assert timeline.index(f"run {result.run_id} of w") < timeline.index(f"run {result.output} of approvals")


def test_what_is_false_is_not_left_out() -> None:
    with pytest.raises(InvalidSettingError, match="clock=0 must be a FakeClock"):
        Harness(sums, clock=0)  # type: ignore[arg-type]  # what an untyped caller may give
    with pytest.raises(InvalidSettingError, match="services={} must be KernelServices"):
        Harness(sums, services={})  # type: ignore[arg-type]  # what an untyped caller may give
