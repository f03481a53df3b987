"""`run.create`: accept a run, PENDING until a host claims it."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from stagewright.annotations import AnnotationInput, annotation_problems
from stagewright.definitions import Workflow
from stagewright.errors import (
    InvalidInputError,
    SchemaMismatchError,
    ValueNotSerializableError,
)
from stagewright.events import WorkflowCreated
from stagewright.json_values import Json
from stagewright.kernel.command import Command, Id
from stagewright.kernel.procedures.annotate import annotate
from stagewright.kernel.procedures.register_definition import register_definition
from stagewright.kernel.unit_of_work import UnitOfWork
from stagewright.records import RunRecord
from stagewright.status import Status

__all__ = ["CreateRun", "CreateRunResult", "handle"]


@dataclass(frozen=True, slots=True)
class CreateRunResult:
    """The run that was created.

    Attributes:
        run_id: Its id.
        status: PENDING.
        definition_version: The version it is pinned to; None if SQL enqueued it under this key, and without a version.
    """

    run_id: str
    status: Status
    definition_version: str | None


def _keepable(annotation: AnnotationInput) -> AnnotationInput:
    # An instance isn't looked into by pydantic.
    problems = annotation_problems(annotation)
    if problems:
        raise ValueError("; ".join(map(str, problems)))
    return annotation


@dataclass(frozen=True, slots=True)
class CreateRun(Command[CreateRunResult]):
    """Create a run.

    Attributes:
        workflow_id: The workflow to run.
        input: Its input: JSON, or a value of the workflow's input type.
        config: Config by stage id; what is left out has its default.
        priority: From -32768 to 32767; higher goes first.
        idempotency_key: A second command with this key and the same body gets the first one's answer.
        annotations: Written together with the run.

    Raises:
        UnknownWorkflowError: If the workflow isn't registered here.
        InvalidInputError: If the input doesn't fit the workflow's, or has no exact JSON form.
        InvalidConfigError: If the config names an unknown stage or doesn't fit a stage's.
        ValueNotSerializableError: If an annotation can't be stored.
        DefinitionVersionConflictError: If the declared version was used for another structure.
    """

    type: ClassVar[str] = "run.create"

    workflow_id: Id
    input: Any = None
    _: KW_ONLY
    config: Mapping[str, Any] = field(default_factory=dict)
    priority: Annotated[int, Field(strict=True, ge=-32_768, le=32_767)] = 5
    idempotency_key: Id | None = None
    annotations: Sequence[Annotated[AnnotationInput, AfterValidator(_keepable)]] = ()


async def handle(command: CreateRun, unit: UnitOfWork) -> CreateRunResult:
    """Check everything, then write the definition, the run and its annotations together."""
    workflow = unit.ports.workflow(command.workflow_id)
    stored_input = _accepted_input(workflow, command.input)
    config = workflow.validate_config(command.config)
    await register_definition(workflow, unit)
    run = RunRecord(
        id=unit.ports.ids.new_id(),
        workflow_id=workflow.id,
        workflow_name=workflow.name,
        status=Status.PENDING,
        input=stored_input,
        config=dict(config),
        priority=command.priority,
        definition_version=workflow.definition_version,
        created_at=unit.now,
        updated_at=unit.now,
    )
    await unit.tx.create_run(run)
    unit.emit(WorkflowCreated(timestamp=unit.now, run_id=run.id, workflow_id=workflow.id))
    await annotate(unit, command.annotations, run_id=run.id)
    unit.notify("runs")
    return CreateRunResult(run.id, run.status, workflow.definition_version)


def _accepted_input(workflow: Workflow, value: object) -> Json:
    subject = f"workflow {workflow.id!r}"
    try:
        return workflow.input_schema.accept(value, what=f"the input of {subject}")
    except SchemaMismatchError as error:
        raise InvalidInputError(subject, error.problems) from error
    except ValueNotSerializableError as error:
        raise InvalidInputError.of_unserializable(subject, error) from error
