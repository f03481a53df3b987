"""Sweeping orphaned blobs where blobs are rows of the same database."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from stagewright import Kernel, StageContext, define_stage, define_workflow
from stagewright.commands import CreateRun
from stagewright.errors import OwnTransactionsError
from stagewright.hosting import drive_run, sweep_orphans
from stagewright.testing import FakeClock
from stagewright_persistence_sqlalchemy import Database

pytestmark = pytest.mark.parametrize("way", ["sqlite", "asyncpg"], indirect=True)


async def large(ctx: StageContext[int]) -> str:
    return "x" * ctx.input


flow = define_workflow("flow", input=int).pipe(define_stage("s1", large)).build()


@pytest.mark.guarantee("orphans.found-and-nothing-else")
async def test_orphans_are_deleted_and_what_runs_need_is_kept(
    database: Database, make_kernel: Callable[..., Kernel]
) -> None:
    clock = FakeClock(database.clock.now())
    kernel = make_kernel(database, flow, spill_threshold_bytes=100, clock=clock)
    run_id = (await kernel.dispatch(CreateRun("flow", 200))).run_id
    await drive_run(kernel, run_id)
    blobs = kernel.ports.blob_store
    needed = [key async for key in blobs.list("")]
    await blobs.put("workflow-v2/flow/gone/s1/output-1.json", b"1")
    assert (await sweep_orphans(kernel, delete=True)).too_new == 1
    clock.advance(timedelta(days=2))
    assert (await sweep_orphans(kernel, delete=True, pause=0)).deleted == 1
    assert [key async for key in blobs.list("")] == needed


async def test_a_kernel_in_its_callers_transaction_may_not_sweep(
    database: Database, make_kernel: Callable[..., Kernel]
) -> None:
    kernel = make_kernel(database, flow)
    async with AsyncSession(database.engine) as session:
        with pytest.raises(OwnTransactionsError, match="sweep_orphans"):
            await sweep_orphans(kernel.using(session), delete=True)
