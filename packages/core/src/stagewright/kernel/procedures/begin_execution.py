"""Phase 1 of an execution: the stage is RUNNING before its body starts."""

from dataclasses import replace
from typing import Any

from stagewright.definitions import Stage, Workflow
from stagewright.errors import RunNotRunningError, SupersededError
from stagewright.kernel.procedures.archive_attempts import archived_attempts
from stagewright.kernel.procedures.execution import JobRef
from stagewright.kernel.procedures.open_group import new_stage
from stagewright.kernel.procedures.settle_job import require_owned
from stagewright.kernel.procedures.start_stage import resume_stage, start_stage
from stagewright.kernel.unit_of_work import UnitOfWork
from stagewright.records import StagePatch, StoredStage
from stagewright.status import ACTIVE_STAGE_STATUSES, Status

__all__ = ["begin_execution"]


async def begin_execution(
    unit: UnitOfWork, run_id: str, workflow: Workflow, stage: Stage[Any, Any, Any], job: JobRef | None
) -> StoredStage:
    """Mark a stage as RUNNING, and create its record when it was never wanted before.

    Args:
        unit: The transaction.
        run_id: The run.
        workflow: The run's workflow.
        stage: The stage.
        job: The delivery that is answered; where the transport takes part, it has to own its job still.

    Raises:
        RunNotRunningError: If the run isn't RUNNING any more.
        SupersededError: If the stage has ended meanwhile, or the job was delivered again.
    """
    locked = await unit.tx.lock_runs([run_id])
    if not locked or locked[0].status is not Status.RUNNING:
        raise RunNotRunningError(run_id, locked[0].status if locked else None)
    if job is not None and unit.jobs is not None:
        await require_owned(unit.jobs, job)
    record = await unit.tx.get_stage(run_id, stage.id)
    if record is None:
        earlier = await archived_attempts(unit, locked[0])
        record = new_stage(unit, locked[0], workflow, stage, attempt=earlier.get(stage.id, 0) + 1)
        record = replace(record, job_enqueued_at=unit.now)
        await unit.tx.create_stage(record)
    if record.status not in ACTIVE_STAGE_STATUSES:
        raise SupersededError(f"of stage {stage.id}")
    if record.status is Status.SUSPENDED:
        return await resume_stage(unit, record)
    if record.status is Status.RUNNING:
        # Somebody started it before and may still come to an end: the attempt rises to refuse that outcome.
        record = replace(record, attempt=record.attempt + 1)
        await unit.tx.update_stage(record.id, StagePatch(updated_at=unit.now, attempt=record.attempt))
    return await start_stage(unit, record)
