"""`run.cancel`: end a run for good, unless it has ended already."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from stagewright.events import WorkflowCancelled
from stagewright.kernel.command import Command, Id, StorableText
from stagewright.kernel.procedures.fail_stage import cancel_open_stages
from stagewright.kernel.unit_of_work import UnitOfWork
from stagewright.records import RunPatch
from stagewright.status import TERMINAL_RUN_STATUSES, Status

__all__ = ["CancelRun", "CancelRunResult", "handle"]


@dataclass(frozen=True, slots=True)
class CancelRunResult:
    """Whether this command is what ended the run; False for a run that had ended, or never was."""

    cancelled: bool


@dataclass(frozen=True, slots=True)
class CancelRun(Command[CancelRunResult]):
    """Cancel a run, its open stages and its waiting jobs; a running body is told to stop.

    Attributes:
        run_id: The run.
        reason: Why, for the event.
    """

    type: ClassVar[str] = "run.cancel"

    run_id: Id
    _: KW_ONLY
    reason: StorableText | None = None


async def handle(command: CancelRun, unit: UnitOfWork) -> CancelRunResult:
    """Cancel run, stages and jobs together; a RUNNING job's outcome is refused when it comes."""
    loaded = await unit.tx.load_runs([command.run_id], lock=True)
    if not loaded or loaded[0].run.status in TERMINAL_RUN_STATUSES:
        return CancelRunResult(False)
    run = loaded[0].run
    duration = None if run.started_at is None else unit.now - run.started_at
    await unit.tx.update_run(
        run.id,
        RunPatch(updated_at=unit.now, status=Status.CANCELLED, completed_at=unit.now, duration=duration),
    )
    await cancel_open_stages(unit, run.id, loaded[0].stages)
    unit.emit(WorkflowCancelled(timestamp=unit.now, run_id=run.id, reason=command.reason))
    return CancelRunResult(True)
