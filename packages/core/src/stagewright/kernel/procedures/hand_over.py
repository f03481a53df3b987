"""Handing a suspended stage back as a job, so that its body runs as any other does."""

from stagewright.kernel.unit_of_work import UnitOfWork
from stagewright.records import NewJob, StagePatch, StoredStage

__all__ = ["hand_over"]


async def hand_over(unit: UnitOfWork, record: StoredStage, job: NewJob) -> None:
    """Make the job of a SUSPENDED stage claimable at once; it is owed until the transport has it.

    Args:
        unit: The transaction, which holds the run's row.
        record: The stage, which is due no longer.
        job: What the stage wants; a job of its own that sleeps is woken instead.
    """
    patch = StagePatch(updated_at=unit.now, next_poll_at=None, job_enqueued_at=None)
    await unit.tx.update_stage(record.id, patch)
    unit.resume(job, stage_record_id=record.id, version=record.version + 1)
    unit.notify("jobs")
