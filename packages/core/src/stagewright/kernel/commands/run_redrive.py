"""`run.redrive`: set an ended run going again, from its failure, from a stage, or from the start."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, ClassVar

from pydantic import AliasChoices, BeforeValidator, Field

from stagewright.definitions import Workflow
from stagewright.errors import (
    DefinitionVersionMismatchError,
    RunNotFoundError,
    RunStateError,
    UnknownDefinitionVersionError,
)
from stagewright.kernel.command import Command, Id
from stagewright.kernel.procedures.redrive_run import redrive_run
from stagewright.kernel.procedures.register_definition import register_definition, require_same_structure
from stagewright.kernel.rules.redrive import FromStage, LastFailure, Start
from stagewright.kernel.unit_of_work import UnitOfWork
from stagewright.records import RunRecord
from stagewright.status import TERMINAL_RUN_STATUSES

__all__ = ["FromStage", "LastFailure", "RedriveRun", "RedriveRunResult", "Start", "handle"]


@dataclass(frozen=True, slots=True)
class RedriveRunResult:
    """What the run goes on with.

    Attributes:
        run_id: The run.
        from_stage_id: The stage that it goes on with, or one of several of a group.
        superseded_stages: The stages whose last attempts don't count any more, in the order of the workflow.
        redrive_count: How often it was redriven by now.
        definition_version: The version that it is pinned to.
    """

    run_id: str
    from_stage_id: str
    superseded_stages: tuple[str, ...]
    redrive_count: int
    definition_version: str | None


def _place(given: object) -> object:
    if isinstance(given, LastFailure | Start | FromStage | Mapping):
        return given
    if given == "start" or given is Start:
        raise ValueError("give Start()")
    if given == "lastFailure" or given is LastFailure:
        raise ValueError("give LastFailure()")
    raise ValueError('must be LastFailure(), Start() or FromStage("the stage\'s id")')


@dataclass(frozen=True, slots=True)
class RedriveRun(Command[RedriveRunResult]):
    """Set a COMPLETED, FAILED or CANCELLED run going again.

    Each attempt that is superseded stays on record as an annotation `run.supersededAttempt` of its stage.

    Attributes:
        run_id: The run.
        from_: From where; in a dict `from`, such as `{"kind": "stage", "stage_id": "ship"}`. What failed is opened
            again with its completed steps; later groups are taken away and made anew.
        definition_version: `"latest"` for the version of this build, or a registered version that this build has;
            None is the version that the run is pinned to.
        idempotency_key: A second command with this key and the same body gets the first one's answer.

    Raises:
        RunNotFoundError: If there is no such run.
        RunStateError: If it hasn't ended, or can't be redriven from there.
        UnknownWorkflowError: If the workflow isn't registered here.
        UnknownStageError: If the workflow has no such stage.
        UnknownDefinitionVersionError: If the version was never registered.
        DefinitionVersionMismatchError: If this build doesn't have the version.
        DefinitionVersionConflictError: If the declared version was used for another structure than this build has.
    """

    type: ClassVar[str] = "run.redrive"

    run_id: Id
    _: KW_ONLY
    from_: Annotated[
        Annotated[LastFailure | Start | FromStage, Field(discriminator="kind")],
        BeforeValidator(_place),
        Field(validation_alias=AliasChoices("from", "from_")),
    ] = field(default_factory=LastFailure)
    definition_version: Id | None = None
    idempotency_key: Id | None = None


async def handle(command: RedriveRun, unit: UnitOfWork) -> RedriveRunResult:
    """Look at the run under its lock, and do all of it in one transaction."""
    loaded = await unit.tx.load_runs([command.run_id], lock=True)
    if not loaded:
        raise RunNotFoundError(command.run_id)
    run = loaded[0].run
    if run.status not in TERMINAL_RUN_STATUSES:
        raise RunStateError(run.id, run.status, "COMPLETED, FAILED or CANCELLED")
    workflow = unit.ports.workflow(run.workflow_id)
    version = await _version(unit, run, workflow, command.definition_version)
    if isinstance(command.from_, FromStage):
        workflow.stage(command.from_.stage_id)
    redriven = await redrive_run(unit, loaded[0], workflow, version, command.from_)
    return RedriveRunResult(
        run_id=run.id,
        from_stage_id=redriven.from_stage_id,
        superseded_stages=redriven.superseded,
        redrive_count=redriven.run.redrive_count,
        definition_version=version,
    )


async def _version(unit: UnitOfWork, run: RunRecord, workflow: Workflow, wanted: str | None) -> str | None:
    live = workflow.definition_version
    if wanted == "latest":
        await register_definition(workflow, unit)
        return live
    if wanted is not None and await unit.tx.get_definition(workflow.id, wanted) is None:
        raise UnknownDefinitionVersionError(workflow.id, wanted)
    needed = run.definition_version if wanted is None else wanted
    if needed not in (None, live):
        raise DefinitionVersionMismatchError(run.id, workflow.id, needed, live)
    if needed is not None:
        await require_same_structure(workflow, unit)
    return needed
