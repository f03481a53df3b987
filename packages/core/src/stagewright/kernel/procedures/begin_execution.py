"""Phase 1 of an execution: the stage is RUNNING before its body starts."""

from dataclasses import replace
from typing import Any

from stagewright.definitions import Stage, Workflow
from stagewright.errors import RunNotRunningError, SupersededError
from stagewright.kernel.procedures.open_group import new_stage
from stagewright.kernel.procedures.start_stage import start_stage
from stagewright.kernel.unit_of_work import UnitOfWork
from stagewright.records import StagePatch, StoredStage
from stagewright.status import ACTIVE_STAGE_STATUSES, Status

__all__ = ["begin_execution"]


async def begin_execution(
    unit: UnitOfWork, run_id: str, workflow: Workflow, stage: Stage[Any, Any, Any]
) -> StoredStage:
    """Mark a stage as RUNNING, and create its record when it was never wanted before.

    Raises:
        RunNotRunningError: If the run isn't RUNNING any more.
        SupersededError: If the stage has ended meanwhile.
    """
    locked = await unit.tx.lock_runs([run_id])
    if not locked or locked[0].status is not Status.RUNNING:
        raise RunNotRunningError(run_id, locked[0].status if locked else None)
    record = await unit.tx.get_stage(run_id, stage.id)
    if record is None:
        record = replace(new_stage(unit, locked[0], workflow, stage), job_enqueued_at=unit.now)
        await unit.tx.create_stage(record)
    if record.status not in ACTIVE_STAGE_STATUSES:
        raise SupersededError(f"of stage {stage.id}")
    if record.status is Status.SUSPENDED:
        await unit.tx.update_stage(record.id, StagePatch(updated_at=unit.now, status=Status.RUNNING))
        return replace(record, status=Status.RUNNING)
    if record.status is Status.RUNNING:
        # Somebody started it before and may still come to an end: the attempt rises to refuse that outcome.
        record = replace(record, attempt=record.attempt + 1)
        await unit.tx.update_stage(record.id, StagePatch(updated_at=unit.now, attempt=record.attempt))
    await start_stage(unit, record)
    return replace(record, status=Status.RUNNING, started_at=unit.now)
