"""Making up for jobs that were taken from a run by somebody who came too late."""

from stagewright.kernel.unit_of_work import UnitOfWork
from stagewright.records import StagePatch
from stagewright.status import Status

__all__ = ["owe_jobs"]


async def owe_jobs(unit: UnitOfWork, run_id: str) -> None:
    """Mark the PENDING stages of a RUNNING run as owed a job; one that has its job keeps that."""
    for loaded in await unit.tx.load_runs([run_id], lock=True):
        for stage in loaded.stages:
            if loaded.run.status is Status.RUNNING and stage.status is Status.PENDING:
                await unit.tx.update_stage(stage.id, StagePatch(updated_at=unit.now, job_enqueued_at=None))
