"""`run.rerunFrom`: what `run.redrive` from a stage was called before."""

import warnings
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from stagewright.errors import DefinitionVersionMismatchError, RunNotFoundError, RunStateError
from stagewright.kernel.command import Command, Id
from stagewright.kernel.procedures.redrive_run import redrive_run
from stagewright.kernel.procedures.register_definition import require_same_structure
from stagewright.kernel.rules.redrive import FromStage
from stagewright.kernel.unit_of_work import UnitOfWork
from stagewright.status import Status

__all__ = ["RerunFrom", "RerunFromResult", "handle"]

_CALLER = 3


@dataclass(frozen=True, slots=True)
class RerunFromResult:
    """What the run goes on with.

    Attributes:
        run_id: The run.
        from_stage_id: The stage that it goes on with.
        deleted_stages: The stages whose last attempts don't count any more, in the order of the workflow.
    """

    run_id: str
    from_stage_id: str
    deleted_stages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RerunFrom(Command[RerunFromResult]):
    """Deprecated: use `RedriveRun(run_id, from_=FromStage(stage_id))`, which also takes cancelled runs.

    Attributes:
        run_id: The run, COMPLETED or FAILED.
        from_stage_id: The stage to go on with.
        idempotency_key: A second command with this key and the same body gets the first one's answer.

    Raises:
        RunNotFoundError: If there is no such run.
        RunStateError: If it isn't COMPLETED or FAILED, or an earlier group isn't COMPLETED.
        UnknownWorkflowError: If the workflow isn't registered here.
        UnknownStageError: If the workflow has no such stage.
        DefinitionVersionMismatchError: If this build doesn't have the version that the run is pinned to.
        DefinitionVersionConflictError: If it has another structure under that version.
    """

    type: ClassVar[str] = "run.rerunFrom"

    run_id: Id
    from_stage_id: Id
    _: KW_ONLY
    idempotency_key: Id | None = None

    def __post_init__(self) -> None:
        warnings.warn(
            "RerunFrom is deprecated; use RedriveRun(run_id, from_=FromStage(stage_id))",
            DeprecationWarning,
            stacklevel=_CALLER,
        )


async def handle(command: RerunFrom, unit: UnitOfWork) -> RerunFromResult:
    """Redrive from the stage, in the version that the run is pinned to."""
    loaded = await unit.tx.load_runs([command.run_id], lock=True)
    if not loaded:
        raise RunNotFoundError(command.run_id)
    run = loaded[0].run
    if run.status not in (Status.COMPLETED, Status.FAILED):
        raise RunStateError(run.id, run.status, "COMPLETED or FAILED")
    workflow = unit.ports.workflow(run.workflow_id)
    live = workflow.definition_version
    if run.definition_version not in (None, live):
        raise DefinitionVersionMismatchError(run.id, workflow.id, run.definition_version, live)
    if run.definition_version is not None:
        await require_same_structure(workflow, unit)
    workflow.stage(command.from_stage_id)
    origin = FromStage(command.from_stage_id)
    redriven = await redrive_run(unit, loaded[0], workflow, run.definition_version, origin)
    return RerunFromResult(run.id, redriven.from_stage_id, redriven.superseded)
