"""Making the steps of a stage that is opened again ready for another attempt."""

from dataclasses import replace
from datetime import datetime

from stagewright.errors import RunNotRunningError, SupersededError
from stagewright.kernel.context import KernelPorts
from stagewright.kernel.rules.step_reset import plan_step_reset
from stagewright.kernel.unit_of_work import UnitOfWork, in_transaction
from stagewright.ports import StepLedger
from stagewright.records import (
    ErrorRecord,
    StagePatch,
    StepExpectation,
    StepPatch,
    StepRecord,
    StoredStage,
)
from stagewright.runtime.steps.endings import REOPENED
from stagewright.status import Status

__all__ = ["reset_owed_steps", "reset_steps"]


async def reset_steps(ledger: StepLedger, stage_record_id: str, now: datetime) -> None:
    """Keep what is completed, open executions again, drop waits; doing it twice is doing it once."""
    reset = plan_step_reset(await ledger.list(stage_record_id))
    for step in reset.reopened:
        await _reopen(ledger, step, now)
    if reset.dropped:
        await ledger.clear_except(stage_record_id, [step.step_id for step in (*reset.kept, *reset.reopened)])


async def reset_owed_steps(ports: KernelPorts, record: StoredStage) -> StoredStage:
    """Do for a started stage what the redrive that opened it could not, before its body runs.

    Returns:
        The record as it is now.

    Raises:
        RunNotRunningError: If the run isn't RUNNING any more.
        SupersededError: If this attempt isn't the current one any more.
    """
    if record.steps_reset_owed_at is None:
        return record
    if ports.step_ledger is not None:
        await reset_steps(ports.step_ledger, record.id, ports.clock.now())
    await in_transaction(ports, lambda unit: _note_reset(unit, record))
    return replace(record, steps_reset_owed_at=None)


async def _reopen(ledger: StepLedger, step: StepRecord, now: datetime) -> None:
    """Give an execution to whoever asks next, without waiting for a lease.

    The error on a running step says that an execution was begun before; one that still goes on somewhere may end it.
    """
    current: StepRecord | None = step
    while current is not None and current.status != "completed":
        error = current.error or ErrorRecord(
            code=REOPENED, message="its run was redriven while it was executed, or about to be"
        )
        patch = StepPatch(
            updated_at=now, status="running", owner=None, lease_expires_at=None, retry_at=None, error=error
        )
        expectation = StepExpectation(status=current.status, attempt=current.attempt)
        applied, current = await ledger.compare_and_set(current.id, expectation, patch)
        if applied:
            return


async def _note_reset(unit: UnitOfWork, record: StoredStage) -> None:
    locked = await unit.tx.lock_runs([record.run_id])
    if not locked or locked[0].status is not Status.RUNNING:
        raise RunNotRunningError(record.run_id, locked[0].status if locked else None)
    current = await unit.tx.get_stage(record.run_id, record.stage_id)
    if current is None or (current.id, current.attempt) != (record.id, record.attempt):
        raise SupersededError(f"of stage {record.stage_id}")
    await unit.tx.update_stage(record.id, StagePatch(updated_at=unit.now, steps_reset_owed_at=None))
