"""Time in a harness: it passes at once, and nothing comes early or late."""

from datetime import UTC, datetime, timedelta

import pytest

from stagewright import NotReady, Ready, StageContext, Suspend, define_workflow, stage
from stagewright.testing import FakeClock, Harness

START = datetime(2025, 1, 1, tzinfo=UTC)


@pytest.mark.guarantee("testing.waits-cost-no-time")
async def test_a_week_passes_in_four_ticks() -> None:
    @stage("wait")
    async def wait(ctx: StageContext[None]) -> str:
        await ctx.step.sleep("week", "7d")
        return "awake"

    harness = Harness(define_workflow("w", input=None).pipe(wait).build())
    result = await harness.run("w")
    assert result.output == "awake"
    assert harness.clock.now() == START + timedelta(days=7)
    assert result.stage("wait").completed_at == START + timedelta(days=7)
    assert len(result.reports) == 4


@pytest.mark.guarantee("testing.waits-cost-no-time")
async def test_a_signal_that_does_not_come_is_waited_for_without_looking_in_vain() -> None:
    invocations: list[datetime] = []
    harness: Harness

    @stage("wait")
    async def wait(ctx: StageContext[None]) -> None:
        invocations.append(harness.clock.now())
        await ctx.step.wait_for_signal("approval", timeout="7d", keepalive="1s")

    harness = Harness(define_workflow("w", input=None).pipe(wait).build())
    result = await harness.run("w")
    assert result.error is not None
    assert result.error.type == "StepTimeoutError"
    assert invocations == [START, START + timedelta(days=7)]


async def test_of_several_waits_each_ends_at_its_time() -> None:
    ended: list[tuple[str, datetime]] = []
    harness: Harness

    @stage("nap")
    async def nap(ctx: StageContext[None]) -> None:
        await ctx.step.sleep("nap", "3h")
        ended.append(("nap", harness.clock.now()))

    @stage("sign")
    async def sign(ctx: StageContext[None]) -> None:
        try:
            await ctx.step.wait_for_signal("approval", timeout="2h", keepalive="5m")
        finally:
            ended.append(("sign", harness.clock.now()))

    @stage("poll")
    async def poll(ctx: StageContext[None]) -> None:
        await ctx.step.wait_for(
            "ready",
            poll=lambda: harness.clock.now() >= START + timedelta(minutes=95),
            ready=bool,
            every="10m",
            timeout="1d",
            returns=bool,
        )
        ended.append(("poll", harness.clock.now()))

    flow = define_workflow("w", input=None).parallel(nap, sign, poll).build()
    harness = Harness(flow)
    assert (await harness.run("w")).status == "FAILED"
    by_name = {name: moment - START for name, moment in ended}
    assert by_name == {"nap": timedelta(hours=3), "sign": timedelta(hours=2), "poll": timedelta(minutes=100)}


async def test_a_batch_is_asked_at_its_interval() -> None:
    asked: list[datetime] = []
    harness: Harness

    async def is_done(state: int, ctx: StageContext[None]) -> Ready[str] | NotReady:
        asked.append(harness.clock.now())
        return Ready("done") if len(asked) == state else NotReady()

    @stage("batch", mode="async-batch", check_completion=is_done)
    async def batch(ctx: StageContext[None]) -> str | Suspend:
        return Suspend(state=3, poll_interval="6h", max_wait="5d")

    harness = Harness(define_workflow("w", input=None).pipe(batch).build())
    assert (await harness.run("w")).output == "done"
    assert [moment - START for moment in asked] == [timedelta(hours=hours) for hours in (6, 12, 18)]


async def test_a_test_moves_the_clock_by_itself() -> None:
    noon = datetime(2030, 5, 17, 12, tzinfo=UTC)
    clock = FakeClock(noon)

    @stage("wait")
    async def wait(ctx: StageContext[None]) -> None:
        await ctx.step.sleep("day", "1d")

    harness = Harness(define_workflow("w", input=None).pipe(wait).build(), clock=clock)
    run_id = await harness.start("w")
    await harness.tick()
    assert harness.clock is clock
    harness.clock.advance("2d")
    report = await harness.tick()
    assert (report.resumed, report.advanced) == (1, timedelta(0))
    result = await harness.finish(run_id)
    assert result.stage("wait").completed_at == noon + timedelta(days=2)


async def test_pauses_between_attempts_are_the_same_each_time() -> None:
    @stage("fragile")
    async def fragile(ctx: StageContext[None]) -> None:
        raise ValueError

    flow = define_workflow("w", input=None).pipe(fragile).build()
    ends = []
    for _ in range(2):
        harness = Harness(flow)
        await harness.run("w")
        ends.append(harness.clock.now())
    assert ends[0] == ends[1] > START
