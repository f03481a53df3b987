"""Runs whose jobs are handed over, on every database and driver: what is handed on is what a claim would have read."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Status, Workflow, define_stage, define_workflow
from stagewright.commands import (
    ClaimJobs,
    ClaimPendingRuns,
    CreateRun,
    ExecuteJobResult,
    ReapStaleLeases,
)
from stagewright.hosting.job_runner import run_job
from stagewright.records import DequeuedJob
from stagewright.testing import assert_consistent
from stagewright_conformance.samples import ODD_JSON
from stagewright_persistence_sqlalchemy import Database

pytestmark = pytest.mark.parametrize("way", ["sqlite", "asyncpg", "psycopg", "mariadb"], indirect=True)

Ctx = StageContext[Any, Any]


async def body(ctx: Ctx) -> Any:
    return {"stage": ctx.stage_id, "odd": ODD_JSON, "large": "x" * ctx.config.get("size", 0)}


def diamond(of: Callable[..., Any] = body) -> Workflow:
    a, b, c, d = (define_stage(id, of, input=Any, output=Any, config=Any) for id in "abcd")
    return define_workflow("flow", input=Any).pipe(a).parallel(b, c).pipe(d).build()


async def work(kernel: Kernel, job: DequeuedJob, to: str = "worker") -> ExecuteJobResult:
    return await run_job(kernel, job, successor=lambda: to)


async def is_as_stored(kernel: Kernel, job: DequeuedJob) -> bool:
    (read,) = await kernel.ports.persistence.load_runs([job.run_id])
    (record,) = [
        each for each in await kernel.ports.job_transport.get_jobs_by_run(job.run_id) if each.id == job.job_id
    ]
    assert (record.status, record.started_at) == (Status.RUNNING, job.fence.started_at)
    return job.loaded == read


@pytest.mark.guarantee("kernel.next-job-is-handed-over-with-the-outcome")
@pytest.mark.parametrize("size", [0, 400_000])
async def test_what_is_handed_over_is_what_is_stored(
    database: Database, make_kernel: Callable[..., Kernel], size: int
) -> None:
    kernel = make_kernel(database, diamond())
    config = {id: {"size": size, "padding": "y" * size, "odd": ODD_JSON} for id in "abcd"}
    run_id = (await kernel.dispatch(CreateRun("flow", {"odd": ODD_JSON}, config=config))).run_id
    (first,) = (await kernel.dispatch(ClaimPendingRuns("worker", max_jobs=1))).jobs
    assert await is_as_stored(kernel, first)
    assert first.payload == {"config": config["a"]}
    second = (await work(kernel, first)).next_job
    assert second is not None
    assert await is_as_stored(kernel, second)
    assert second.payload == {"config": config["b"]}
    (third,) = (await kernel.dispatch(ClaimJobs("other", limit=9))).jobs
    assert third.stage_id == "c"
    results = [await work(kernel, job) for job in (second, third)]
    last = results[1].next_job
    assert last is not None
    assert await is_as_stored(kernel, last)
    assert (await work(kernel, last)).next_job is None
    run = await kernel.runs.get(run_id)
    assert run is not None
    assert (run.status, run.error) == (Status.COMPLETED, None)
    sequences = [event.sequence for event in await kernel.runs.events(run_id)]
    assert sequences == list(range(1, len(sequences) + 1))
    await assert_consistent(kernel)


async def test_siblings_that_end_at_once_hand_over_one_job(
    database: Database, make_kernel: Callable[..., Kernel]
) -> None:
    together = asyncio.Barrier(2)

    async def meet(ctx: Ctx) -> None:
        if ctx.stage_id in "bc":
            await together.wait()

    kernel = make_kernel(database, diamond(meet))
    for _ in range(5):
        await kernel.dispatch(CreateRun("flow"))
        (first,) = (await kernel.dispatch(ClaimPendingRuns("one", max_jobs=1))).jobs
        second = (await work(kernel, first)).next_job
        assert second is not None
        (third,) = (await kernel.dispatch(ClaimJobs("two"))).jobs
        results = await asyncio.gather(work(kernel, second, "one"), work(kernel, third, "two"))
        (last,) = [result.next_job for result in results if result.next_job is not None]
        assert last.stage_id == "d"
        assert (await work(kernel, last)).outcome == "completed"
    await assert_consistent(kernel)


async def test_a_worker_that_is_lost_with_it_is_replaced(
    database: Database, make_kernel: Callable[..., Kernel]
) -> None:
    kernel = make_kernel(database, diamond())
    await kernel.dispatch(CreateRun("flow", config={id: {} for id in "abcd"}))
    (first,) = (await kernel.dispatch(ClaimPendingRuns("lost", max_jobs=1))).jobs
    lost = (await work(kernel, first, "lost")).next_job
    assert lost is not None
    (other,) = (await kernel.dispatch(ClaimJobs("other"))).jobs
    await kernel.dispatch(ReapStaleLeases(stale_threshold="1h"))
    assert (await kernel.dispatch(ClaimJobs("other"))).jobs == ()
    await kernel.ports.job_transport.touch(other.job_id, other.fence)
    await kernel.dispatch(ReapStaleLeases(stale_threshold=0))
    again = {job.stage_id: job for job in (await kernel.dispatch(ClaimJobs("other", limit=9))).jobs}
    assert (again["b"].job_id, again["b"].worker_losses, again["b"].fence.deliveries) == (lost.job_id, 1, 2)
    late = await work(kernel, lost, "lost")
    assert (late.ghost, late.next_job) == (True, None)
    assert (await work(kernel, again["b"])).outcome == "completed"
