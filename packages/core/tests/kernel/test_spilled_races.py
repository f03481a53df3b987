"""Blobs of whoever comes too late: each has a key of its own, and nothing of a purged run is left or comes back."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from stagewright import Kernel, RetryPolicy, StageContext, StageResult, Status, define_stage, define_workflow
from stagewright.commands import (
    CancelRun,
    ClaimPendingRuns,
    CreateRun,
    ExecuteJobResult,
    FlushOutbox,
    PurgeRuns,
)
from stagewright.filesystem import FileSystemBlobStore
from stagewright.memory import InMemoryBlobStore
from stagewright.ports import BlobStore
from stagewright.records import DequeuedJob, RunRecord

MakeKernel = Callable[..., Kernel]
TakeJob = Callable[[Kernel], Awaitable[DequeuedJob]]
Execute = Callable[..., Awaitable[ExecuteJobResult]]
Finish = Callable[[Kernel, str], Awaitable[RunRecord]]

pytestmark = pytest.mark.parametrize("transport", ["enlisting", "separate"], indirect=True)


@pytest.fixture(params=["enlisting", "separate", "files"])
def blobs(request: pytest.FixtureRequest, blob_store: InMemoryBlobStore, tmp_path: Path) -> BlobStore:
    """Where blobs are: in the persistence's database, in another one, and in a folder."""
    stores: dict[str, BlobStore] = {
        "enlisting": blob_store,
        "separate": InMemoryBlobStore(),
        "files": FileSystemBlobStore(tmp_path),
    }
    return stores[request.param]


async def keys(blobs: BlobStore) -> list[str]:
    return [key async for key in blobs.list("")]


class Held:
    """A body with a large result of a step, a large artifact and a large output; it waits where it is told to."""

    def __init__(self, *, in_step: bool) -> None:
        self.in_step = in_step
        self.reached = asyncio.Event()
        self.go = asyncio.Event()

    async def __call__(self, ctx: StageContext[Any, dict[str, str]]) -> Any:
        text = await ctx.step.run("text", self.text)
        if not self.in_step:
            await self.wait()
        return StageResult(output=text * 2, artifacts={"sheet": text})

    async def text(self) -> str:
        if self.in_step:
            await self.wait()
        return "x" * 400

    async def wait(self) -> None:
        self.reached.set()
        await self.go.wait()


@pytest.mark.guarantee("purges.late-workers-leave-no-blob")
@pytest.mark.parametrize("in_step", [True, False])
async def test_a_worker_that_ends_after_its_run_was_purged_leaves_no_blob(
    make_kernel: MakeKernel, take_job: TakeJob, execute: Execute, blobs: BlobStore, in_step: bool
) -> None:
    body = Held(in_step=in_step)
    stage = define_stage("s1", body.__call__, input=Any, output=Any, config=dict[str, str])
    flow = define_workflow("flow", input=Any).pipe(stage).build()
    kernel = make_kernel(flow, spill_threshold_bytes=200, blob_store=blobs)
    created = await kernel.dispatch(CreateRun("flow", config={"s1": {"large": "y" * 300}}))
    await kernel.dispatch(ClaimPendingRuns("claimer"))
    job = await take_job(kernel)
    assert any("/_jobs/" in key for key in await keys(blobs))
    working = asyncio.ensure_future(execute(kernel, job))
    await body.reached.wait()
    assert (await kernel.dispatch(CancelRun(created.run_id))).cancelled
    await kernel.dispatch(FlushOutbox())
    assert (await kernel.dispatch(PurgeRuns(kernel.ports.clock.now()))).purged == 1
    assert await keys(blobs) == []
    body.go.set()
    assert (await working).ghost
    assert await keys(blobs) == []


@pytest.mark.guarantee("kernel.each-spill-has-a-key")
async def test_attempts_of_one_stage_write_keys_of_their_own(
    make_kernel: MakeKernel, finish: Finish, blobs: BlobStore
) -> None:
    attempts: list[int] = []

    async def fails_once(ctx: StageContext[Any]) -> Any:
        attempts.append(ctx.attempt)
        await ctx.storage.save_bytes(f"seen-{ctx.attempt}", "\n".join(await keys(blobs)).encode())
        if len(attempts) == 1:
            await ctx.step.run("text", lambda: "x" * 400)
            raise ValueError("once")
        return StageResult(output="y" * 400, artifacts={"sheet": 1, "Sheet": 2})

    stage = define_stage("s1", fails_once, input=Any, output=Any, retry=RetryPolicy(2, delay=0))
    flow = define_workflow("flow", input=Any).pipe(stage).build()
    kernel = make_kernel(flow, spill_threshold_bytes=200, blob_store=blobs)
    first, second = [(await kernel.dispatch(CreateRun("flow"))).run_id for _ in range(2)]
    assert [(await finish(kernel, run_id)).status for run_id in (first, second)] == [Status.COMPLETED] * 2
    spilled = [key for key in await keys(blobs) if "/storage/" not in key]
    assert len({key.rsplit("-", 1)[1] for key in spilled}) == len(spilled)
    assert sum("/artifacts/" in key for key in spilled) == 4
