"""`run.reapStuck`: a run that stands still is helped on, and ended only when nothing could move it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Status, Workflow
from stagewright.commands import (
    CancelRun,
    ClaimJobs,
    CreateRun,
    ExecuteJob,
    ExecuteJobResult,
    ReapStaleLeases,
    ReapStuckRuns,
    ReapStuckRunsResult,
)
from stagewright.memory import InMemoryDatabase, InMemoryJobTransport, InMemoryPersistence
from stagewright.records import DequeuedJob, JobRecord, RunPatch, RunRecord, StagePatch, StoredStage
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
StartRun = Callable[..., Awaitable[str]]
TakeJob = Callable[..., Awaitable[DequeuedJob]]
Execute = Callable[..., Awaitable[ExecuteJobResult]]
Finish = Callable[[Kernel, str], Awaitable[RunRecord]]
Told = Callable[[Kernel, str], Awaitable[list[str]]]
Statuses = Callable[[Kernel, str], Awaitable[dict[str, Status]]]

on_both = pytest.mark.parametrize("transport", ["enlisting", "separate"], indirect=True)
NOTHING = ReapStuckRunsResult(0, 0, 0, 0)


async def echo(ctx: StageContext[Any]) -> Any:
    return ctx.input


@pytest.fixture
def kernel(make_kernel: MakeKernel, flow_of: FlowOf) -> Kernel:
    return make_kernel(flow_of(echo, echo))


async def reap(kernel: Kernel) -> ReapStuckRunsResult:
    return await kernel.dispatch(ReapStuckRuns("15m"))


async def run_of(kernel: Kernel, run_id: str) -> RunRecord:
    run = await kernel.runs.get(run_id)
    assert run is not None
    return run


async def first_stage(kernel: Kernel, run_id: str) -> StoredStage:
    stage = await kernel.ports.persistence.get_stage(run_id, "s1")
    assert stage is not None
    return stage


async def only_job(kernel: Kernel, run_id: str) -> JobRecord:
    (job,) = await kernel.ports.job_transport.get_jobs_by_run(run_id)
    return job


@on_both
@pytest.mark.guarantee("kernel.only-what-nothing-can-move-is-reaped")
@pytest.mark.tampers
async def test_a_run_that_can_still_move_is_left_alone_however_long_it_takes(
    kernel: Kernel,
    start_run: StartRun,
    take_job: TakeJob,
    transport: InMemoryJobTransport,
    persistence: InMemoryPersistence,
    clock: FakeClock,
    statuses: Statuses,
) -> None:
    waiting = await start_run(kernel)
    clock.advance("1d")
    assert await reap(kernel) == NOTHING, "its job can be claimed"
    working = await take_job(kernel)
    clock.advance("16m")
    assert await transport.touch(working.job_id, working.fence)
    clock.advance("14m")
    assert await reap(kernel) == NOTHING, "its worker is alive"
    stage = await first_stage(kernel, waiting)
    for due in (clock.now() + timedelta(days=30), clock.now()):
        patch = StagePatch(updated_at=clock.now(), status=Status.SUSPENDED, next_poll_at=due)
        await persistence.update_stage(stage.id, patch)
        await transport.suspend(working.job_id, due)
        clock.advance("1d")
        assert await reap(kernel) == NOTHING, "it waits for its time, which has come or will come"
    assert await statuses(kernel, waiting) == {"s1": Status.SUSPENDED}
    assert (await run_of(kernel, waiting)).status is Status.RUNNING


@on_both
@pytest.mark.guarantee("kernel.only-what-nothing-can-move-is-reaped")
async def test_a_reaper_whose_clock_is_ahead_leaves_runs_with_living_workers_alone(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    transport: InMemoryJobTransport,
    clock: FakeClock,
) -> None:
    """Leases are stamped by the transport's clock, and only that can say how old they are."""
    kernel = make_kernel(flow_of(echo))
    run_id = await start_run(kernel, 7)
    job = await take_job(kernel)
    ahead = make_kernel(flow_of(echo), clock=FakeClock(clock.now() + timedelta(hours=1)))
    assert await reap(ahead) == NOTHING
    assert (await execute(kernel, job)).outcome == "completed"
    assert (await run_of(kernel, run_id)).output == 7


@on_both
@pytest.mark.tampers
async def test_only_running_runs_that_are_served_and_unchanged_are_looked_at(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    transport: InMemoryJobTransport,
    clock: FakeClock,
) -> None:
    old = make_kernel(flow_of(echo))
    new = make_kernel(flow_of(echo, echo))
    older, newer = await start_run(old), await start_run(new)
    cancelled = await start_run(new)
    await new.dispatch(CancelRun(cancelled))
    await new.dispatch(CreateRun("flow"))
    for run_id in (older, newer):
        await transport.delete_by_run_and_stages(run_id, ["s1"])
    clock.advance("14m")
    assert await reap(new) == NOTHING
    clock.advance("2m")
    assert await reap(new) == ReapStuckRunsResult(0, 0, 0, 1)
    assert [job.run_id for job in (await new.dispatch(ClaimJobs("w", limit=9, serves="all"))).jobs] == [newer]


@on_both
async def test_a_lost_job_is_enqueued_again_and_the_run_ends_well(
    kernel: Kernel, start_run: StartRun, transport: InMemoryJobTransport, finish: Finish, clock: FakeClock
) -> None:
    run_id = await start_run(kernel, "in")
    await transport.delete_by_run_and_stages(run_id, ["s1"])
    clock.advance("16m")
    assert await reap(kernel) == ReapStuckRunsResult(0, 0, 0, 1)
    assert await reap(kernel) == NOTHING
    job = await only_job(kernel, run_id)
    assert (job.status, job.payload, job.deliveries) == (Status.PENDING, {"config": {}}, 0)
    run = await finish(kernel, run_id)
    assert (run.status, run.output) == (Status.COMPLETED, "in")


@on_both
async def test_a_resumed_stage_whose_job_is_lost_gets_one_and_keeps_its_start(
    kernel: Kernel,
    start_run: StartRun,
    take_job: TakeJob,
    transport: InMemoryJobTransport,
    persistence: InMemoryPersistence,
    finish: Finish,
    clock: FakeClock,
) -> None:
    run_id = await start_run(kernel)
    await take_job(kernel)
    stage = await first_stage(kernel, run_id)
    now = clock.now()
    handed_over = StagePatch(
        updated_at=now, status=Status.SUSPENDED, next_poll_at=None, job_enqueued_at=now, started_at=now
    )
    await persistence.update_stage(stage.id, handed_over)
    await transport.delete_by_run_and_stages(run_id, ["s1"])
    clock.advance("16m")
    assert await reap(kernel) == ReapStuckRunsResult(0, 0, 0, 1)
    assert (await finish(kernel, run_id)).status is Status.COMPLETED
    assert (await first_stage(kernel, run_id)).started_at == now


@pytest.mark.parametrize("transport", ["separate"], indirect=True)
async def test_a_transition_that_was_never_made_is_made(
    kernel: Kernel, start_run: StartRun, finish: Finish, clock: FakeClock, told: Told
) -> None:
    run_id = await start_run(kernel)
    # No job is answered by it, so whoever executes it has to move the run on.
    await kernel.dispatch(ExecuteJob(run_id, "flow", "s1"))
    clock.advance("16m")
    assert await reap(kernel) == ReapStuckRunsResult(0, 0, 1, 0)
    assert {stage.stage_id for stage in await kernel.runs.stages(run_id)} == {"s1", "s2"}
    assert (await finish(kernel, run_id)).status is Status.COMPLETED
    assert (await told(kernel, run_id)).count("workflow:completed") == 1


@on_both
async def test_what_nothing_can_move_any_more_fails_and_says_where_it_stood(
    kernel: Kernel,
    start_run: StartRun,
    transport: InMemoryJobTransport,
    persistence: InMemoryPersistence,
    clock: FakeClock,
    told: Told,
    statuses: Statuses,
) -> None:
    run_id = await start_run(kernel)
    stage = await first_stage(kernel, run_id)
    await persistence.update_stage(stage.id, StagePatch(updated_at=clock.now(), status=Status.RUNNING))
    await transport.delete_by_run_and_stages(run_id, ["s1"])
    clock.advance("16m")
    assert await reap(kernel) == ReapStuckRunsResult(1, 1, 0, 0)
    run = await run_of(kernel, run_id)
    assert (run.status, run.completed_at) == (Status.FAILED, clock.now())
    assert run.error is not None
    assert run.error.code == "STUCK_RUN_REAPED"
    assert "900 s" in run.error.message
    assert "s1 RUNNING" in run.error.message
    assert await statuses(kernel, run_id) == {"s1": Status.CANCELLED}
    assert (await told(kernel, run_id))[-1] == "workflow:failed"
    assert await reap(kernel) == NOTHING


@on_both
async def test_of_several_reapers_one_ends_a_run(
    kernel: Kernel,
    start_run: StartRun,
    transport: InMemoryJobTransport,
    persistence: InMemoryPersistence,
    clock: FakeClock,
    told: Told,
) -> None:
    runs = []
    for number in range(4):
        run_id = await start_run(kernel)
        runs.append(run_id)
        await transport.delete_by_run_and_stages(run_id, ["s1"])
        if number % 2:
            stage = await first_stage(kernel, run_id)
            await persistence.update_stage(
                stage.id, StagePatch(updated_at=clock.now(), status=Status.RUNNING)
            )
    clock.advance("16m")
    reaped = await asyncio.gather(*(reap(kernel) for _ in range(5)))
    assert sum(one.failed for one in reaped) == 2
    assert sum(one.requeued for one in reaped) == 2
    for run_id in runs[1::2]:
        assert (await told(kernel, run_id)).count("workflow:failed") == 1
    assert await transport.depth() == 2


@on_both
@pytest.mark.tampers
async def test_a_run_that_moves_while_it_is_looked_at_is_left_alone(
    kernel: Kernel,
    start_run: StartRun,
    transport: InMemoryJobTransport,
    persistence: InMemoryPersistence,
    clock: FakeClock,
    hold_at: Callable[..., tuple[asyncio.Event, asyncio.Event]],
) -> None:
    run_id = await start_run(kernel)
    stage = await first_stage(kernel, run_id)
    await persistence.update_stage(stage.id, StagePatch(updated_at=clock.now(), status=Status.RUNNING))
    await transport.delete_by_run_and_stages(run_id, ["s1"])
    clock.advance("16m")
    reached, go = hold_at("begin")
    reaping = asyncio.create_task(reap(kernel))
    await reached.wait()
    await persistence.update_run(run_id, RunPatch(updated_at=clock.now()))
    go.set()
    assert await reaping == NOTHING
    assert (await run_of(kernel, run_id)).status is Status.RUNNING


@on_both
async def test_after_a_long_standstill_of_everything_the_runs_go_on(
    kernel: Kernel, start_run: StartRun, take_job: TakeJob, finish: Finish, clock: FakeClock
) -> None:
    runs = [await start_run(kernel) for _ in range(3)]
    await take_job(kernel, "lost")
    clock.advance("3d")
    assert (await kernel.dispatch(ReapStaleLeases("45s", absolute_timeout="7d"))).released == 1
    assert await reap(kernel) == NOTHING
    for run_id in runs:
        assert (await finish(kernel, run_id)).status is Status.COMPLETED


@pytest.mark.tampers
async def test_many_runs_are_looked_at_page_by_page(
    kernel: Kernel, start_run: StartRun, database: InMemoryDatabase, clock: FakeClock
) -> None:
    run_id = await start_run(kernel)
    run, stage = await run_of(kernel, run_id), await first_stage(kernel, run_id)
    for number in range(250):
        copy = f"zz-{number:04}"
        database.runs.write(copy, replace(run, id=copy))
        database.stages.write(f"stage {copy}", replace(stage, id=f"stage {copy}", run_id=copy))
    clock.advance("16m")
    assert (await reap(kernel)).requeued == 250
