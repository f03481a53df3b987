"""Whoever holds a run never waits for one of its jobs: a claim holds the job and waits for the run."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text

from stagewright import Kernel, StageContext, define_workflow
from stagewright.commands import ClaimJobs, ClaimPendingRuns, CreateRun
from stagewright.errors import TransientError
from stagewright.status import Status
from stagewright_persistence_sqlalchemy import Database, SqlAlchemyJobTransport, SqlAlchemyPersistence

LOCK_JOB = text("SELECT 1 FROM job_queue WHERE id = :id FOR UPDATE")


async def body(ctx: StageContext[Any]) -> Any:
    return ctx.input


@pytest.mark.parametrize("way", ["asyncpg", "psycopg"], indirect=True)
async def test_an_acknowledgement_in_a_transaction_does_not_wait_for_a_held_job(
    database: Database, make_kernel: Callable[..., Kernel]
) -> None:
    flow = define_workflow("flow", input=Any).stage("s", body, input=Any, output=Any).build()
    kernel = make_kernel(database, flow)
    persistence, transport = SqlAlchemyPersistence(database), SqlAlchemyJobTransport(database)
    run_id = (await kernel.dispatch(CreateRun("flow", 1))).run_id
    await kernel.dispatch(ClaimPendingRuns("w"))
    (job,) = (await kernel.dispatch(ClaimJobs("w"))).jobs

    async def settle() -> None:
        async with persistence.transaction() as tx:
            await tx.load_runs([run_id], lock=True)
            enlisted = transport.enlist(tx)
            assert enlisted is not None
            await enlisted.complete(job.job_id, job.fence)

    async with database.engine.begin() as holder:
        await holder.execute(LOCK_JOB, {"id": job.job_id})
        with pytest.raises(TransientError):
            async with asyncio.timeout(30):
                await settle()
        (held,) = await transport.get_jobs_by_run(run_id)
        assert held.status is Status.RUNNING
    await settle()
    (settled,) = await transport.get_jobs_by_run(run_id)
    assert settled.status is Status.COMPLETED
