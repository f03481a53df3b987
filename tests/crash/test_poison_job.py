"""A body that ends its process each time it runs: its deaths are counted, and end."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Status, define_workflow, open_kernel, stage
from stagewright.commands import CancelRun, CreateRun, RedriveRun
from stagewright.records import RunRecord
from stagewright.testing import assert_consistent
from stagewright_test_support.servers.launch import launch

WORKER = Path(__file__).with_name("poison_worker.py")
PATIENCE = 60.0


@stage("deadly")
async def deadly(ctx: StageContext[int]) -> int:
    raise AssertionError("the test's own process runs no body")


@stage("healthy")
async def healthy(ctx: StageContext[int]) -> int:
    raise AssertionError("the test's own process runs no body")


WORKFLOWS = [define_workflow(one.id, input=int).pipe(one).build() for one in (deadly, healthy)]


@asynccontextmanager
async def supervised(url: str, folder: Path, count: int = 2) -> AsyncIterator[None]:
    """So many workers, each started again as soon as it has ended."""
    over = False
    running: dict[int, Any] = {}

    async def supervise(number: int) -> None:
        while not over:
            command = [sys.executable, str(WORKER), url, f"worker-{number}", str(folder)]
            process = launch(
                command,
                log=folder / f"worker-{number}.log",
                account=None,
                farewell=signal.SIGKILL,
                environment=dict(os.environ),
            )
            running[number] = process
            while process.poll() is None and not over:  # noqa: ASYNC110 - a process's end announces itself to nobody
                await asyncio.sleep(0.05)

    supervisors = [asyncio.create_task(supervise(number)) for number in range(count)]
    try:
        yield
    finally:
        over = True
        await asyncio.gather(*supervisors)
        for process in running.values():
            process.kill()
            process.wait()


@pytest.fixture
async def kernel(url: str) -> AsyncIterator[Kernel]:
    async with open_kernel(WORKFLOWS, url, create_schema=True) as kernel:
        yield kernel
        await assert_consistent(kernel)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await condition():  # noqa: ASYNC110 - what a store holds announces itself to nobody
            await asyncio.sleep(0.05)


async def run_of(kernel: Kernel, run_id: str) -> RunRecord:
    run = await kernel.runs.get(run_id)
    assert run is not None
    return run


def deaths(folder: Path) -> int:
    told = folder / "deaths.txt"
    return len(told.read_text().splitlines()) if told.exists() else 0


@pytest.mark.slow
@pytest.mark.guarantee("kernel.crashes-are-counted-and-end")
async def test_after_its_third_death_a_run_is_parked_and_healthy_ones_end(
    kernel: Kernel, url: str, tmp_path: Path
) -> None:
    poison = (await kernel.dispatch(CreateRun("deadly", 1))).run_id
    others = [(await kernel.dispatch(CreateRun("healthy", number))).run_id for number in range(20)]

    async def all_have_ended() -> bool:
        runs = [await run_of(kernel, run_id) for run_id in (poison, *others)]
        return all(run.status not in (Status.PENDING, Status.RUNNING) for run in runs)

    async with supervised(url, tmp_path):
        await until(all_have_ended)
    run = await run_of(kernel, poison)
    assert (run.status, deaths(tmp_path)) == (Status.FAILED, 3)
    assert run.error is not None
    assert run.error.code == "LEASE_HEARTBEAT_LOST"
    assert "worker loss 3 of at most 3" in run.error.message
    assert "last owner: worker 'worker-" in run.error.message
    (job,) = await kernel.ports.job_transport.get_jobs_by_run(poison)
    assert (job.status, job.failures, job.worker_losses) == (Status.FAILED, 0, 3)
    # A worker that the database refuses for a moment hands the job back unexecuted, which is no loss.
    assert job.deliveries == 3 + job.interruptions
    await kernel.dispatch(RedriveRun(poison))
    (job,) = await kernel.ports.job_transport.get_jobs_by_run(poison)
    assert (job.status, job.worker_losses, job.deliveries) == (Status.PENDING, 0, 0), "it counts anew"
    for number, run_id in enumerate(others):
        other = await run_of(kernel, run_id)
        assert (other.status, other.output) == (Status.COMPLETED, number), other.error


@pytest.mark.slow
@pytest.mark.parametrize("after", [1, 2])
async def test_a_cancel_ends_the_loop_at_any_moment(
    kernel: Kernel, url: str, tmp_path: Path, after: int
) -> None:
    poison = (await kernel.dispatch(CreateRun("deadly", 1))).run_id

    async def has_died() -> bool:
        return deaths(tmp_path) >= after

    async with supervised(url, tmp_path):
        await until(has_died)
        assert (await kernel.dispatch(CancelRun(poison))).cancelled
        # A body that had begun by then runs to its end: one more death in each worker at the most.
        allowed = deaths(tmp_path) + 2
        other = (await kernel.dispatch(CreateRun("healthy", 7))).run_id

        async def other_has_ended() -> bool:
            return (await run_of(kernel, other)).status is Status.COMPLETED

        async def nothing_is_left_to_deliver() -> bool:
            jobs = await kernel.ports.job_transport.get_jobs_by_run(poison)
            return all(job.status not in (Status.PENDING, Status.RUNNING) for job in jobs)

        await until(other_has_ended)
        await until(nothing_is_left_to_deliver)
    assert (await run_of(kernel, poison)).status is Status.CANCELLED
    assert after <= deaths(tmp_path) <= allowed
