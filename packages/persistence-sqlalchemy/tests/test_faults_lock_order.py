"""Whoever holds a run waits for one of its jobs a moment only: a claim holds the job and waits for the run."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import text

from stagewright import Kernel, StageContext, define_workflow
from stagewright.commands import ClaimJobs, ClaimPendingRuns, CreateRun
from stagewright.errors import TransientError
from stagewright.records import DequeuedJob
from stagewright.status import Status
from stagewright_persistence_sqlalchemy import Database, SqlAlchemyJobTransport, SqlAlchemyPersistence
from stagewright_test_support.backend_choice import stores

pytestmark = [
    pytest.mark.tampers,
    pytest.mark.parametrize("way", stores("asyncpg", "psycopg"), indirect=True),
]

LOCK_JOB = text("SELECT 1 FROM job_queue WHERE id = :id FOR UPDATE")
LOCK_RUN = text("SELECT 1 FROM workflow_runs WHERE id = :id FOR UPDATE")
DEADLOCKS = text("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")


async def body(ctx: StageContext[Any]) -> Any:
    return ctx.input


@dataclass
class Scene:
    """A job that a worker has taken, and its way to say that it is done."""

    database: Database
    job: DequeuedJob

    async def settle(self, locked: Callable[[], Awaitable[None]] | None = None) -> None:
        """Lock the run, then acknowledge the job in the same transaction; `locked` is called in between."""
        async with SqlAlchemyPersistence(self.database).transaction() as tx:
            await tx.load_runs([self.job.run_id], lock=True)
            if locked is not None:
                await locked()
            enlisted = SqlAlchemyJobTransport(self.database).enlist(tx)
            assert enlisted is not None
            await enlisted.complete(self.job.job_id, self.job.fence)

    async def status(self) -> Status:
        (job,) = await SqlAlchemyJobTransport(self.database).get_jobs_by_run(self.job.run_id)
        return job.status


@pytest_asyncio.fixture
async def scene(database: Database, make_kernel: Callable[..., Kernel]) -> Scene:
    flow = define_workflow("flow", input=Any).stage("s", body, input=Any, output=Any).build()
    kernel = make_kernel(database, flow)
    await kernel.dispatch(CreateRun("flow", 1))
    await kernel.dispatch(ClaimPendingRuns("w"))
    (job,) = (await kernel.dispatch(ClaimJobs("w"))).jobs
    return Scene(database, job)


async def test_an_acknowledgement_gives_up_where_the_job_stays_held(scene: Scene) -> None:
    async with scene.database.engine.begin() as holder:
        await holder.execute(LOCK_JOB, {"id": scene.job.job_id})
        with pytest.raises(TransientError):
            async with asyncio.timeout(10):
                await scene.settle()
        assert await scene.status() is Status.RUNNING
    await scene.settle()
    assert await scene.status() is Status.COMPLETED


async def test_an_acknowledgement_waits_out_a_heartbeat(scene: Scene) -> None:
    async with scene.database.engine.begin() as holder:
        await holder.execute(LOCK_JOB, {"id": scene.job.job_id})
        settling = asyncio.create_task(scene.settle())
        await asyncio.sleep(0.1)
        assert not settling.done()
    await settling
    assert await scene.status() is Status.COMPLETED


@pytest.mark.guarantee("sql.lost-lease-ends-in-no-deadlock")
async def test_who_holds_the_run_and_who_claims_its_job_end_without_a_deadlock(scene: Scene) -> None:
    async with scene.database.engine.begin() as claimer:
        await claimer.execute(LOCK_JOB, {"id": scene.job.job_id})
        waiting: list[asyncio.Task[Any]] = []

        async def claim() -> None:
            waiting.append(asyncio.create_task(claimer.execute(LOCK_RUN, {"id": scene.job.run_id})))
            await asyncio.sleep(0.05)
            assert not waiting[0].done()

        with pytest.raises(TransientError) as refused:
            await scene.settle(claim)
        # The claimer's wait ends because the other has given up, not because the database ended one of them.
        await waiting[0]
    assert "deadlock" not in str(refused.value).lower()
    await scene.settle()
    async with scene.database.engine.connect() as connection:
        assert (await connection.execute(DEADLOCKS)).scalar_one() == 0
