"""A job that fails with the next lost worker runs by itself, so that no neighbour is lost with it again."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Status, define_workflow
from stagewright.commands import CancelRun, ClaimJobs, ClaimPendingRuns, CreateRun
from stagewright.hosting import wait_for_run
from stagewright.records import RunRecord
from stagewright_host_node import NodeHost

Opened = Callable[..., Awaitable[Kernel]]
Eventually = Callable[..., Awaitable[None]]


class Bodies:
    """Bodies that say who ran beside them."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.beside: dict[str, set[str]] = {}
        self.go = asyncio.Event()

    async def body(self, ctx: StageContext[Any]) -> Any:
        self.running.add(ctx.input)
        for name in self.running:
            self.beside.setdefault(name, set()).update(self.running - {name})
            self.beside.setdefault(ctx.input, set()).update(self.running - {ctx.input})
        try:
            if ctx.input.startswith("waits"):
                await self.go.wait()
            await asyncio.sleep(0.02)
        finally:
            self.running.discard(ctx.input)
        return ctx.input


@pytest.fixture
def bodies() -> Bodies:
    return Bodies()


@pytest.fixture
async def kernel(opened: Opened, url: str, bodies: Bodies) -> Kernel:
    return await opened(
        url, define_workflow("flow", input=Any).stage("s", bodies.body, input=Any, output=Any).build()
    )


async def create(kernel: Kernel, name: str) -> str:
    run_id = (await kernel.dispatch(CreateRun("flow", name))).run_id
    await kernel.dispatch(ClaimPendingRuns("w"))
    return run_id


async def suspects(kernel: Kernel, *names: str) -> list[str]:
    """Runs that have lost two workers."""
    runs = [await create(kernel, name) for name in names]
    for _ in range(2):
        assert len((await kernel.dispatch(ClaimJobs("gone", limit=9))).jobs) == len(runs)
        await asyncio.sleep(0.01)
        await kernel.ports.job_transport.release_stale(timedelta(0))
    return runs


async def run_of(kernel: Kernel, run_id: str) -> RunRecord:
    return await wait_for_run(kernel, run_id, timeout="20s")


@pytest.mark.guarantee("hosts.last-chances-run-alone")
async def test_a_job_that_lost_two_workers_runs_alone_and_others_side_by_side(
    kernel: Kernel, bodies: Bodies, eventually: Eventually
) -> None:
    suspected = await suspects(kernel, "suspect 0", "suspect 1")
    once = await create(kernel, "once")
    others = [await create(kernel, f"waits {n}") for n in range(3)]
    async with NodeHost(kernel, concurrency=8, handle_signals=False):
        await eventually(lambda: len(bodies.beside) >= 4)
        await asyncio.sleep(0.3)
        late = await create(kernel, "late")
        await asyncio.sleep(0.3)
        assert "suspect 0" not in bodies.beside, "it waits for those that run"
        assert "late" not in bodies.beside, "and nothing new is taken meanwhile"
        bodies.go.set()
        for run_id in (*suspected, once, *others, late):
            assert (await run_of(kernel, run_id)).status is Status.COMPLETED
    assert bodies.beside["suspect 0"] == bodies.beside["suspect 1"] == set()
    assert {"waits 0", "waits 1"} <= bodies.beside["waits 2"]
    counted = [await kernel.ports.job_transport.get_jobs_by_run(run_id) for run_id in suspected]
    assert [(job.worker_losses, job.interruptions) for (job,) in counted] == [(2, 0), (2, 1)]


async def test_it_is_not_kept_waiting_for_ever(kernel: Kernel, bodies: Bodies) -> None:
    (suspect,) = await suspects(kernel, "suspect")
    await create(kernel, "waits")
    host = NodeHost(
        kernel, handle_signals=False, stale_lease_threshold="500ms", job_heartbeat_interval="100ms"
    )
    async with host:
        assert (await run_of(kernel, suspect)).output == "suspect"
        assert bodies.beside["suspect"] == {"waits"}
        bodies.go.set()


async def test_a_cancelled_one_is_not_begun(kernel: Kernel, bodies: Bodies, eventually: Eventually) -> None:
    (suspect,) = await suspects(kernel, "suspect")
    other = await create(kernel, "waits")
    async with NodeHost(kernel, handle_signals=False, job_heartbeat_interval="100ms"):
        await eventually(lambda: "waits" in bodies.beside)
        assert (await kernel.dispatch(CancelRun(suspect))).cancelled
        await asyncio.sleep(0.5)
        bodies.go.set()
        assert (await run_of(kernel, other)).status is Status.COMPLETED
    assert "suspect" not in bodies.beside


async def test_a_host_that_stops_hands_it_back_unbegun(
    kernel: Kernel, bodies: Bodies, eventually: Eventually
) -> None:
    (suspect,) = await suspects(kernel, "suspect")
    await create(kernel, "waits")
    async with NodeHost(kernel, handle_signals=False, shutdown_timeout="100ms", abort_grace="0s"):
        await eventually(lambda: "waits" in bodies.beside)
    assert "suspect" not in bodies.beside
    (job,) = await kernel.ports.job_transport.get_jobs_by_run(suspect)
    assert (job.status, job.worker_losses, job.failures) == (Status.PENDING, 2, 0)
