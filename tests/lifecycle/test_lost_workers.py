"""Lost workers are counted to their limit, and workers that leave in order are not counted with them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stagewright import Kernel, RetryPolicy, StageContext, Status, define_stage, define_workflow
from stagewright.commands import ClaimJobs, ClaimPendingRuns, CreateRun, ReapStaleLeases, RedriveRun
from stagewright.records import JobRecord, RunRecord
from stagewright_host_node import NodeHost

OpenStore = Callable[..., Awaitable[Kernel]]
Eventually = Callable[..., Awaitable[None]]
Ended = Callable[[Kernel, str], Awaitable[RunRecord]]


class Endless:
    """A body that goes on until it is told to stop."""

    def __init__(self) -> None:
        self.begun = 0

    async def __call__(self, ctx: StageContext[Any]) -> Any:
        self.begun += 1
        await asyncio.Event().wait()


async def job_of(kernel: Kernel, run_id: str) -> JobRecord:
    (job,) = await kernel.ports.job_transport.get_jobs_by_run(run_id)
    return job


async def lose_a_worker(kernel: Kernel, name: str) -> None:
    assert len((await kernel.dispatch(ClaimJobs(name))).jobs) == 1
    await asyncio.sleep(0.02)
    await kernel.dispatch(ReapStaleLeases("10ms"))


@pytest.mark.guarantee("kernel.lost-workers-end-a-stage-with-its-reason")
async def test_workers_that_leave_in_order_do_not_count_as_lost(
    open_store: OpenStore, eventually: Eventually, ended: Ended
) -> None:
    body = Endless()
    stage = define_stage("s", body, input=Any, output=Any, retry=RetryPolicy(1, max_worker_losses=3))
    kernel = await open_store(define_workflow("flow", input=Any).pipe(stage).build())
    run_id = (await kernel.dispatch(CreateRun("flow"))).run_id
    await kernel.dispatch(ClaimPendingRuns("w"))

    async def leave_in_order() -> None:
        begun = body.begun

        async def has_begun() -> bool:
            return body.begun > begun

        async with NodeHost(kernel, shutdown_timeout="1ms", abort_grace="1ms", handle_signals=False):
            await eventually(has_begun)

    for losses in (1, 2):
        await lose_a_worker(kernel, f"lost-{losses}")
        for _ in range(losses):
            await leave_in_order()
            job = await job_of(kernel, run_id)
            assert (job.status, job.failures, job.worker_losses) == (Status.PENDING, 0, losses)
    assert (await job_of(kernel, run_id)).interruptions == 3
    await lose_a_worker(kernel, "lost-3")
    run = await ended(kernel, run_id)
    assert run.status is Status.FAILED
    assert run.error is not None
    assert run.error.code == "LEASE_HEARTBEAT_LOST"
    assert "worker loss 3 of at most 3; last owner: worker 'lost-3'" in run.error.message
    await kernel.dispatch(RedriveRun(run_id))
    job = await job_of(kernel, run_id)
    assert (job.status, job.worker_losses, job.interruptions) == (Status.PENDING, 0, 0)
