"""A reaper that was held up between its look and its deed changes nothing that has moved on meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from stagewright import Kernel, RetryPolicy, StageContext, Status, define_stage, define_workflow
from stagewright.commands import (
    CancelRun,
    ClaimJobs,
    ClaimPendingRuns,
    CreateRun,
    ReapStaleLeases,
    ReapStaleLeasesResult,
    ReapStuckRuns,
)
from stagewright.hosting import run_job
from stagewright.records import DequeuedJob, RunRecord

OpenStore = Callable[..., Awaitable[Kernel]]
Ended = Callable[[Kernel, str], Awaitable[RunRecord]]

# Each takes seconds that pass on the clock of a database.
pytestmark = pytest.mark.parametrize(
    "url",
    ["memory", "postgres", *(pytest.param(kind, marks=pytest.mark.wide) for kind in ("sqlite", "mariadb"))],
    indirect=True,
)

STANDSTILL = 2.0
"""Seconds; what happens while the reaper is held up takes less."""


class Gate:
    """A body that waits until it is let go."""

    def __init__(self) -> None:
        self.inside, self.go = asyncio.Event(), asyncio.Event()

    async def body(self, ctx: StageContext[Any]) -> Any:
        self.inside.set()
        await self.go.wait()
        return ctx.attempt


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
async def kernel(open_store: OpenStore, gate: Gate) -> Kernel:
    stage = define_stage("s", gate.body, input=Any, output=Any, retry=RetryPolicy(max_worker_losses=99))
    return await open_store(define_workflow("flow", input=Any).pipe(stage).build())


async def taken(kernel: Kernel) -> DequeuedJob:
    await kernel.dispatch(CreateRun("flow"))
    await kernel.dispatch(ClaimPendingRuns("w"))
    (job,) = (await kernel.dispatch(ClaimJobs("owner"))).jobs
    return job


@pytest.fixture
def held_up(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> tuple[asyncio.Event, asyncio.Event]:
    """`looked, go = held_up`: the reaper has read which runs stand still, and goes on when it is told."""
    looked, go = asyncio.Event(), asyncio.Event()
    persistence = kernel.ports.persistence
    look = persistence.get_stuck_runs

    async def look_and_wait(*given: Any, **more: Any) -> list[RunRecord]:
        found = await look(*given, **more)
        looked.set()
        await go.wait()
        return found

    monkeypatch.setattr(persistence, "get_stuck_runs", look_and_wait)
    return looked, go


async def lease_is_lost(kernel: Kernel) -> None:
    await asyncio.sleep(0.02)
    await kernel.ports.job_transport.release_stale(timedelta(milliseconds=10))


@pytest.mark.parametrize("meanwhile", ["ended well", "lease renewed", "claimed anew", "cancelled"])
async def test_a_late_reaper_of_stuck_runs_changes_nothing(
    kernel: Kernel,
    gate: Gate,
    held_up: tuple[asyncio.Event, asyncio.Event],
    ended: Ended,
    meanwhile: str,
) -> None:
    job = await taken(kernel)
    owner = asyncio.create_task(run_job(kernel, job))
    await gate.inside.wait()
    await asyncio.sleep(STANDSTILL + 0.1)
    looked, go = held_up
    reaper = asyncio.create_task(kernel.dispatch(ReapStuckRuns(STANDSTILL)))
    await looked.wait()
    if meanwhile == "ended well":
        gate.go.set()
        await owner
    elif meanwhile == "lease renewed":
        assert await kernel.ports.job_transport.touch(job.job_id, job.fence)
    elif meanwhile == "claimed anew":
        await lease_is_lost(kernel)
        (again,) = (await kernel.dispatch(ClaimJobs("second"))).jobs
        assert again.fence.deliveries == 2
    else:
        assert (await kernel.dispatch(CancelRun(job.run_id))).cancelled
    before = (
        await kernel.runs.get(job.run_id),
        await kernel.runs.stages(job.run_id),
        await kernel.ports.job_transport.get_jobs_by_run(job.run_id),
        await kernel.runs.events(job.run_id),
    )
    go.set()
    result = await reaper
    assert (result.failed, result.healed, result.requeued, result.transitioned) == (0, 0, 0, 0)
    assert before == (
        await kernel.runs.get(job.run_id),
        await kernel.runs.stages(job.run_id),
        await kernel.ports.job_transport.get_jobs_by_run(job.run_id),
        await kernel.runs.events(job.run_id),
    )
    assert (await kernel.dispatch(ClaimJobs("w", limit=9))).jobs == ()
    gate.go.set()
    await owner
    if meanwhile in ("ended well", "lease renewed"):
        run = await ended(kernel, job.run_id)
        assert (run.status, run.output) == (Status.COMPLETED, 1)


async def test_an_owner_that_ends_beside_a_reaper_of_leases_ends_once(
    kernel: Kernel, gate: Gate, ended: Ended
) -> None:
    runs: list[str] = []
    for _ in range(20):
        gate.inside.clear()
        gate.go.clear()
        job = await taken(kernel)
        runs.append(job.run_id)
        owner = asyncio.create_task(run_job(kernel, job))
        await gate.inside.wait()
        await asyncio.sleep(0.02)
        gate.go.set()
        reaped, _ = await asyncio.gather(kernel.dispatch(ReapStaleLeases("10ms")), owner)
        run = await kernel.runs.get(job.run_id)
        assert run is not None
        if run.status is Status.COMPLETED:
            assert reaped == ReapStaleLeasesResult(0, 0), "it found nothing to do"
        else:
            assert reaped == ReapStaleLeasesResult(1, 0)
            (again,) = (await kernel.dispatch(ClaimJobs("second"))).jobs
            await run_job(kernel, again)
    for run_id in runs:
        run = await ended(kernel, run_id)
        assert run.status is Status.COMPLETED
        assert [event.type for event in await kernel.runs.events(run_id)].count("stage:completed") == 1
