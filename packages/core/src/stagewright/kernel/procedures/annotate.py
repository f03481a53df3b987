"""Writing annotations, with their events."""

from collections.abc import Sequence
from dataclasses import dataclass

from stagewright.annotations import AnnotationInput
from stagewright.errors import InvalidCommandError, Problem, ValueNotSerializableError
from stagewright.events import AnnotationCreated
from stagewright.json_values import require_json, text_problem
from stagewright.kernel.unit_of_work import UnitOfWork
from stagewright.records import AnnotationRecord

__all__ = ["AnnotationSubject", "annotate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationSubject:
    """What annotations are about; the default is the run as a whole."""

    stage_record_id: str | None = None
    attempt: int = 0
    scope: str = "run"
    scope_id: str | None = None


async def annotate(
    unit: UnitOfWork,
    inputs: Sequence[AnnotationInput],
    *,
    run_id: str,
    subject: AnnotationSubject = AnnotationSubject(),  # noqa: B008 - frozen, so one for all is safe
) -> None:
    """Write a row for each attribute that has a value, and an event for each row that was asked to have one.

    Raises:
        InvalidCommandError: If a key or a value can't be stored; nothing is kept then.
    """
    rows: list[tuple[AnnotationRecord, bool]] = []
    for position, annotation in enumerate(inputs):
        for key, value in annotation.attributes.items():
            if value is not None:
                _check(annotation, key, position)
                rows.append((_row(unit, annotation, key, run_id, subject), annotation.emit_event))
    if not rows:
        return
    written = set(await unit.tx.append_annotations([row for row, _ in rows]))
    for row, emit_event in rows:
        if emit_event and row.id in written:
            unit.emit(_created(unit, row))


def _check(annotation: AnnotationInput, key: str, position: int) -> None:
    path = f"$.annotations[{position}]"
    problem = "an annotation's key is text" if not isinstance(key, str) or not key else text_problem(key)
    if problem is not None:
        raise InvalidCommandError(None, (Problem(path=f"{path}.attributes", message=f"{key!r}: {problem}"),))
    try:
        require_json(annotation.attributes[key], what=f"annotation {key!r}")
        require_json(annotation.payload, what=f"the payload of annotation {key!r}")
    except ValueNotSerializableError as error:
        raise InvalidCommandError(None, (Problem(path=path, message=str(error)),)) from error


def _row(
    unit: UnitOfWork, annotation: AnnotationInput, key: str, run_id: str, subject: AnnotationSubject
) -> AnnotationRecord:
    return AnnotationRecord(
        id=unit.ports.ids.new_id(),
        run_id=run_id,
        stage_record_id=subject.stage_record_id,
        attempt=subject.attempt,
        scope=subject.scope,
        scope_id=subject.scope_id,
        actor=annotation.actor,
        key=key,
        value=annotation.attributes[key],
        payload=annotation.payload,
        idempotency_key=annotation.idempotency_key,
        created_at=unit.now,
    )


def _created(unit: UnitOfWork, row: AnnotationRecord) -> AnnotationCreated:
    actor = row.actor
    return AnnotationCreated(
        timestamp=unit.now,
        run_id=row.run_id,
        key=row.key,
        value=row.value,
        scope=row.scope,
        scope_id=row.scope_id,
        attempt=row.attempt,
        actor_kind=actor.kind if actor else None,
        actor_id=actor.id if actor else None,
        actor_version=actor.version if actor else None,
    )
