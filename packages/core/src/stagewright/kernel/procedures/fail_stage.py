"""Failing a stage whose body can't say so itself, and ending what depends on it."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from stagewright.events import StageFailed
from stagewright.kernel.context import KernelPorts
from stagewright.kernel.procedures.advance_run import fail_run
from stagewright.kernel.procedures.owe_jobs import owe_jobs
from stagewright.kernel.rules.progress import Fail, what_follows
from stagewright.kernel.unit_of_work import UnitOfWork, in_transaction
from stagewright.records import ErrorRecord, LogRecord, RunRecord, StagePatch, StoredStage, set_fields
from stagewright.status import ACTIVE_STAGE_STATUSES, Status

__all__ = ["cancel_open_stages", "fail_stage", "follow_failure"]


async def fail_stage(
    unit: UnitOfWork, stages: Sequence[StoredStage], record: StoredStage, error: ErrorRecord
) -> list[StoredStage]:
    """Make a stage FAILED for this reason; its run's row is held.

    Returns:
        The run's stages as they are now.
    """
    patch = StagePatch(
        updated_at=unit.now,
        status=Status.FAILED,
        completed_at=unit.now,
        duration=None if record.started_at is None else unit.now - record.started_at,
        error=error,
        next_poll_at=None,
    )
    await unit.tx.update_stage(record.id, patch)
    unit.emit(
        StageFailed(
            timestamp=unit.now,
            run_id=record.run_id,
            stage_id=record.stage_id,
            stage_name=record.stage_name,
            error=str(error),
        )
    )
    line = LogRecord(
        id=unit.ports.ids.new_id(),
        run_id=record.run_id,
        level="ERROR",
        message=f"attempt {record.attempt} of stage {record.stage_id!r} failed: {error}",
        created_at=unit.now,
        stage_record_id=record.id,
        stage_id=record.stage_id,
    )
    await unit.tx.append_logs([line])
    failed = replace(record, **set_fields(patch))
    return [failed if stage.id == record.id else stage for stage in stages]


async def follow_failure(unit: UnitOfWork, run: RunRecord, stages: Sequence[StoredStage]) -> bool:
    """Fail a run one of whose stages is FAILED, unless another of them can still move; True if it is FAILED now."""
    # No group is ever opened after a failure, so that the workflow itself needn't be known here.
    match what_follows(stages, ()):
        case Fail(stage) if stage.error is not None:
            await fail_run(unit, run, stage.error, stages)
            return True
        case _:
            return False


async def cancel_open_stages(unit: UnitOfWork, run_id: str, stages: Sequence[StoredStage]) -> None:
    """Cancel the stages of an ended run that were still open, and their waiting jobs; bodies are told to stop."""
    for stage in stages:
        if stage.status in ACTIVE_STAGE_STATUSES:
            patch = StagePatch(
                updated_at=unit.now, status=Status.CANCELLED, completed_at=unit.now, next_poll_at=None
            )
            await unit.tx.update_stage(stage.id, patch)
    if unit.jobs is not None:
        await unit.jobs.cancel_by_run(run_id)
    else:
        unit.after_commit(partial(_cancel_jobs, unit.ports, run_id))
    unit.notify("cancellations")


async def _cancel_jobs(ports: KernelPorts, run_id: str) -> None:
    await ports.job_transport.cancel_by_run(run_id)
    if await ports.persistence.get_run_status(run_id) is Status.RUNNING:
        # A redrive has come in between, and the jobs that it enqueued may be among those that were cancelled.
        await in_transaction(ports, lambda unit: owe_jobs(unit, run_id))
