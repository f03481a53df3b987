"""A caller's transaction beside ports that live elsewhere: they hear nothing before the commit, and get it after."""

from collections.abc import Callable

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from stagewright import Kernel, NonRetryableError, StageContext, Status, define_stage, define_workflow
from stagewright.commands import (
    CancelRun,
    ClaimJobs,
    ClaimPendingRuns,
    CreateRun,
    RedriveRun,
    SignalStep,
    Start,
    TransitionRun,
)
from stagewright.errors import CapabilityMissingError
from stagewright.hosting import drive_run
from stagewright.hosting.job_runner import run_job
from stagewright.memory import InMemoryBlobStore, InMemoryDatabase, InMemoryJobTransport, InMemoryStepLedger
from stagewright_persistence_sqlalchemy import Database
from stagewright_test_support.backend_choice import stores

MARIADB = pytest.param("mariadb", marks=pytest.mark.slow)
pytestmark = pytest.mark.parametrize(
    "way",
    [*stores("sqlite", "asyncpg", "psycopg"), MARIADB],
    indirect=True,
)


async def ask(ctx: StageContext[int]) -> str:
    return await ctx.step.wait_for_signal("approval", timeout="1d", returns=str)


async def repeat(ctx: StageContext[str]) -> str:
    if ctx.input.startswith("no"):
        raise NonRetryableError(ctx.input[:2])
    return ctx.input


asking = (
    define_workflow("asking", input=int)
    .pipe(define_stage("ask", ask))
    .pipe(define_stage("repeat", repeat))
    .build()
)


@pytest.fixture
def elsewhere() -> InMemoryDatabase:
    return InMemoryDatabase()


@pytest.mark.guarantee("kernel.outside-ports-hear-after-the-callers-commit")
@pytest.mark.parametrize("kept", [True, False])
async def test_jobs_for_a_queue_elsewhere_are_owed_until_after_the_commit(
    database: Database, make_kernel: Callable[..., Kernel], elsewhere: InMemoryDatabase, *, kept: bool
) -> None:
    transport = InMemoryJobTransport(elsewhere)
    kernel = make_kernel(database, asking, job_transport=transport)
    async with AsyncSession(database.engine) as session:
        bound = kernel.using(session)
        started = (await bound.dispatch(CreateRun("asking", 1))).run_id
        claimed = (await bound.dispatch(CreateRun("asking", 1))).run_id
        await bound.dispatch(TransitionRun(started))
        await bound.dispatch(ClaimPendingRuns("me"))
        await (session.commit() if kept else session.rollback())
    assert await transport.depth() == 0
    await kernel.dispatch({"type": "job.enqueueOwed", "owed_for": 0})
    assert await transport.depth() == (2 if kept else 0)
    if not kept:
        return
    async with AsyncSession(database.engine) as session:
        await kernel.using(session).dispatch(CancelRun(claimed))
        await session.commit()
    jobs = (await kernel.dispatch(ClaimJobs("worker", limit=2))).jobs
    for job in jobs:
        await run_job(kernel, job)
    stages = {job.run_id: (await kernel.runs.stages(job.run_id))[0].status for job in jobs}
    assert stages == {started: Status.SUSPENDED, claimed: Status.CANCELLED}
    await kernel.dispatch(CancelRun(started))


@pytest.mark.guarantee("kernel.outside-ports-hear-after-the-callers-commit")
async def test_large_values_stay_in_their_rows_beside_a_blob_store_elsewhere(
    database: Database, make_kernel: Callable[..., Kernel], elsewhere: InMemoryDatabase
) -> None:
    blobs = InMemoryBlobStore(elsewhere)
    kernel = make_kernel(database, asking, blob_store=blobs, spill_threshold_bytes=100)
    run_id = (await kernel.dispatch(CreateRun("asking", 1))).run_id
    for answer, kept in (("maybe", False), ("no", True)):
        async with AsyncSession(database.engine) as session:
            signal = SignalStep(run_id, "ask", "approval", payload=answer * 200)
            assert (await kernel.using(session).dispatch(signal)).delivered
            await (session.commit() if kept else session.rollback())
        assert [key async for key in blobs.list("")] == []
    assert (await drive_run(kernel, run_id)).status is Status.FAILED
    spilled = [key async for key in blobs.list("")]
    assert spilled
    async with AsyncSession(database.engine) as session:
        await kernel.using(session).dispatch(RedriveRun(run_id, from_=Start()))
        await session.rollback()
    assert [key async for key in blobs.list("")] == spilled
    assert (await kernel.runs.output_of(run_id, "ask")) == "no" * 200


@pytest.mark.guarantee("kernel.outside-ports-hear-after-the-callers-commit")
async def test_a_signal_to_a_ledger_elsewhere_is_refused(
    database: Database, make_kernel: Callable[..., Kernel], elsewhere: InMemoryDatabase
) -> None:
    kernel = make_kernel(database, asking, step_ledger=InMemoryStepLedger(elsewhere))
    run_id = (await kernel.dispatch(CreateRun("asking", 1))).run_id
    async with AsyncSession(database.engine) as session:
        with pytest.raises(CapabilityMissingError, match="send it with the kernel itself"):
            await kernel.using(session).dispatch(SignalStep(run_id, "ask", "approval", payload="yes"))
        await kernel.using(session).annotations.attach(run_id, {"by": "me"})
        await session.commit()
    await kernel.dispatch(SignalStep(run_id, "ask", "approval", payload="yes"))
    assert (await drive_run(kernel, run_id)).output == "yes"
