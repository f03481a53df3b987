"""One tick of the upkeep."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Status, Workflow, define_workflow, open_kernel, stage
from stagewright.commands import CancelRun, ClaimJobs, ClaimPendingRuns, CreateRun
from stagewright.hosting import HOST_DEFAULTS, TickReport, run_job, run_maintenance_tick
from stagewright.hosting.maintenance import ALL_STEPS, UpkeepStep
from stagewright.kernel.command import Command
from stagewright.testing import CollectingEventSink, FakeClock


@stage("double")
async def double(ctx: StageContext[int]) -> int:
    return ctx.input * 2


@stage("nap")
async def nap(ctx: StageContext[int]) -> int:
    await ctx.step.sleep("a while", "1h")
    return ctx.input


def flow(*stages: Any) -> Workflow:
    builder = define_workflow("w", input=int)
    for one in stages:
        builder = builder.pipe(one)
    return builder.build()


async def opened(stack: Any, *stages: Any, **options: Any) -> Kernel:
    kernel: Kernel = await stack.enter_async_context(open_kernel(flow(*stages), "memory://", **options))
    return kernel


async def test_a_tick_claims_runs_and_delivers_events(stack: Any) -> None:
    sink = CollectingEventSink()
    kernel = await opened(stack, double, event_sink=sink)
    for number in range(3):
        await kernel.dispatch(CreateRun("w", number))
    report = await run_maintenance_tick(kernel, HOST_DEFAULTS.having({"max_claims_per_tick": 2}))
    assert report == TickReport(claimed=2, events_published=5)
    assert report.made_work
    assert [event.type for event in sink.events].count("workflow:started") == 2
    assert (await run_maintenance_tick(kernel)).claimed == 1
    idle = await run_maintenance_tick(kernel)
    assert idle == TickReport()
    assert not idle.made_work


async def test_a_lost_worker_is_noticed(stack: Any) -> None:
    clock = FakeClock()
    kernel = await opened(stack, double, clock=clock)
    created = await kernel.dispatch(CreateRun("w", 1))
    await kernel.dispatch(ClaimPendingRuns("w"))
    await kernel.dispatch(ClaimJobs("w"))
    clock.advance("44s")
    assert (await run_maintenance_tick(kernel)).leases_released == 0
    clock.advance("2s")
    report = await run_maintenance_tick(kernel)
    assert report.leases_released == 1
    assert report.made_work
    [job] = (await kernel.dispatch(ClaimJobs("other"))).jobs
    await run_job(kernel, job)
    assert await kernel.ports.persistence.get_run_status(created.run_id) is Status.COMPLETED


async def test_a_step_that_raises_keeps_no_other_from_its_work(
    stack: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def failing(command: Command[Any], call_next: Callable[[Command[Any]], Awaitable[Any]]) -> Any:
        if command.type in ("run.claimPending", "outbox.flush"):
            raise ConnectionError("nobody there")
        return await call_next(command)

    clock = FakeClock()
    kernel = await opened(stack, double, clock=clock, middleware=[failing])
    report = await run_maintenance_tick(kernel)
    assert report.failed_steps == (UpkeepStep.CLAIM_RUNS, UpkeepStep.FLUSH_OUTBOX)
    assert (report.event_sink_status, "nobody there" in str(report.event_sink_error)) == ("degraded", True)
    assert len(caplog.messages) == 2


async def test_only_the_wanted_steps_are_taken(stack: Any) -> None:
    seen: list[str] = []

    async def watching(command: Command[Any], call_next: Callable[[Command[Any]], Awaitable[Any]]) -> Any:
        seen.append(command.type)
        return await call_next(command)

    kernel = await opened(stack, double, middleware=[watching])
    await run_maintenance_tick(kernel, steps={UpkeepStep.REAP_LEASES})
    assert seen == ["lease.reapStale"]
    seen.clear()
    await run_maintenance_tick(kernel)
    assert len(seen) == len(ALL_STEPS) - 1, "old runs are kept unless a retention says otherwise"
    seen.clear()
    await run_maintenance_tick(kernel, HOST_DEFAULTS.having({"retention": "30d"}))
    assert len(seen) == len(ALL_STEPS)
    assert seen[-2:] == ["run.purge", "run.listVersions"]


@pytest.mark.guarantee("hosts.retention-is-off-unless-given")
async def test_runs_are_deleted_when_their_retention_is_over(stack: Any) -> None:
    clock = FakeClock()
    kernel = await opened(stack, double, clock=clock)
    runs = []
    for number in range(3):
        runs.append((await kernel.dispatch(CreateRun("w", number))).run_id)
        await kernel.dispatch(ClaimPendingRuns("w"))
        [job] = (await kernel.dispatch(ClaimJobs("w"))).jobs
        await run_job(kernel, job)
        clock.advance("1d")
    await kernel.dispatch(CancelRun((await kernel.dispatch(CreateRun("w", 4))).run_id))
    clock.advance("29d")
    kept = await run_maintenance_tick(kernel)
    assert (kept.purged, kept.failed_steps) == (0, ())
    options = HOST_DEFAULTS.having(
        {"retention": {"older_than": "31d", "statuses": [Status.COMPLETED], "limit": 1}}
    )
    assert (await run_maintenance_tick(kernel, options)).purged == 1
    assert await kernel.runs.get(runs[0]) is None
    assert (await run_maintenance_tick(kernel, options)).purged == 1
    assert (await run_maintenance_tick(kernel, options)).purged == 0
    assert await kernel.runs.get(runs[2]) is not None
    ages = HOST_DEFAULTS.having({"retention": timedelta(days=999_999)})
    assert (await run_maintenance_tick(kernel, ages)).failed_steps == ()
    assert (await run_maintenance_tick(kernel, HOST_DEFAULTS.having({"retention": "0s"}))).purged == 2


async def test_a_stuck_threshold_follows_the_lease(stack: Any) -> None:
    assert HOST_DEFAULTS.having({"stale_lease_threshold": "10m"}).stuck_threshold == timedelta(minutes=30)
