"""Enqueueing the jobs that stages want and that the transport has none for."""

from datetime import timedelta
from typing import Final

from stagewright.duration import subtract_within_calendar
from stagewright.kernel.context import KernelPorts
from stagewright.kernel.procedures.open_group import job_for
from stagewright.kernel.unit_of_work import UnitOfWork, in_transaction
from stagewright.records import Serves

__all__ = ["LIMIT", "OWED_FOR", "enqueue_owed_jobs"]

OWED_FOR: Final = timedelta(seconds=5)
"""A job that is owed for less than this is on its way."""

LIMIT: Final = 100
"""How many jobs are enqueued at once."""


async def enqueue_owed_jobs(
    ports: KernelPorts, *, owed_for: timedelta = OWED_FOR, limit: int = LIMIT, serves: Serves
) -> int:
    """Enqueue jobs that have been owed for so long, and say how many."""
    # Nearly always nothing is owed, which a read without a transaction tells.
    before = subtract_within_calendar(ports.clock.now(), owed_for)
    if not await ports.persistence.get_owed_stages(before, limit=1, serves=serves):
        return 0
    return await in_transaction(ports, lambda unit: _enqueue(unit, owed_for, limit, serves))


async def _enqueue(unit: UnitOfWork, owed_for: timedelta, limit: int, serves: Serves) -> int:
    before = subtract_within_calendar(unit.now, owed_for)
    owed = await unit.tx.get_owed_stages(before, limit=limit, serves=serves)
    runs = {run.id: run for run in await unit.tx.lock_runs({stage.run_id for stage in owed})}
    enqueued = 0
    for record in owed:
        run = runs[record.run_id]
        workflow = await unit.ports.served_workflow(run, unit.tx)
        if workflow is not None and record.stage_id in workflow.stage_ids:
            job = job_for(unit, run, workflow.stage(record.stage_id))
            unit.resume(job, stage_record_id=record.id, version=record.version)
            enqueued += 1
    if enqueued:
        unit.notify("jobs")
    return enqueued
