"""`run.transition`: move a run on as far as its stages allow."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from stagewright.errors import RunNotFoundError
from stagewright.events import WorkflowStarted
from stagewright.kernel.command import Command, Id
from stagewright.kernel.procedures.advance_run import Advance, advance_run
from stagewright.kernel.unit_of_work import UnitOfWork
from stagewright.records import RunPatch
from stagewright.status import Status

__all__ = ["TransitionRun", "TransitionRunResult", "handle"]


@dataclass(frozen=True, slots=True)
class TransitionRunResult:
    """What became of the run.

    Attributes:
        action: `advanced` when a group was opened, `completed`, `failed`, or `noop` when nothing followed.
        next_group: The group that was opened, from 1.
    """

    action: Literal["advanced", "completed", "failed", "noop"]
    next_group: int | None = None


@dataclass(frozen=True, slots=True)
class TransitionRun(Command[TransitionRunResult]):
    """Open a run's next group, or end the run.

    Attributes:
        run_id: The run.

    Raises:
        RunNotFoundError: If there is no such run.
    """

    type: ClassVar[str] = "run.transition"

    run_id: Id


async def handle(command: TransitionRun, unit: UnitOfWork) -> TransitionRunResult:
    """Lock the run, look at its stages, do what follows."""
    advance = await _advance(command.run_id, unit)
    return TransitionRunResult(advance.action, advance.next_group)


async def _advance(run_id: str, unit: UnitOfWork) -> Advance:
    loaded = await unit.tx.load_runs([run_id], lock=True)
    if not loaded:
        raise RunNotFoundError(run_id)
    run, stages = loaded[0].run, loaded[0].stages
    workflow = await unit.ports.served_workflow(run, unit.tx)
    if workflow is None:
        return Advance("noop")
    if run.status is Status.PENDING and not stages:
        await unit.tx.update_run(
            run.id,
            RunPatch(updated_at=unit.now, status=Status.RUNNING, started_at=run.started_at or unit.now),
        )
        unit.emit(WorkflowStarted(timestamp=unit.now, run_id=run.id))
    elif run.status is not Status.RUNNING:
        return Advance("noop")
    return await advance_run(unit, run, workflow, stages)
