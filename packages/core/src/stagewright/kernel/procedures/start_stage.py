"""Marking a stage as started."""

from dataclasses import replace

from stagewright.events import StageStarted
from stagewright.kernel.unit_of_work import UnitOfWork
from stagewright.records import StagePatch, StoredStage, set_fields
from stagewright.status import Status

__all__ = ["resume_stage", "start_stage"]


async def start_stage(unit: UnitOfWork, stage: StoredStage) -> StoredStage:
    """Make a stage RUNNING from now on, whether it waited or was left behind by a lost worker.

    Returns:
        The record as this transaction leaves it.
    """
    patch = StagePatch(
        updated_at=unit.now,
        status=Status.RUNNING,
        started_at=unit.now,
        completed_at=None,
        duration=None,
        # Signals that came before now are seen by the body.
        nudged_at=None,
    )
    await unit.tx.update_stage(stage.id, patch)
    unit.emit(
        StageStarted(
            timestamp=unit.now,
            run_id=stage.run_id,
            stage_id=stage.stage_id,
            stage_name=stage.stage_name,
            stage_number=stage.stage_number,
        )
    )
    return replace(stage, **set_fields(patch), version=stage.version + 1)


async def resume_stage(unit: UnitOfWork, stage: StoredStage) -> StoredStage:
    """Make a SUSPENDED stage RUNNING again: it goes on, so it isn't said to start anew.

    Returns:
        The record as this transaction leaves it.
    """
    patch = StagePatch(updated_at=unit.now, status=Status.RUNNING, next_poll_at=None, nudged_at=None)
    await unit.tx.update_stage(stage.id, patch)
    return replace(stage, **set_fields(patch), version=stage.version + 1)
