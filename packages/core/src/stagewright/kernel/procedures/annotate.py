"""Writing annotations, with their events."""

from collections.abc import Sequence
from dataclasses import dataclass

from stagewright.annotations import Actor, AnnotationInput
from stagewright.errors import ValueNotSerializableError
from stagewright.events import AnnotationCreated
from stagewright.json_values import require_json, shown, text_problem
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
    subject: AnnotationSubject = AnnotationSubject(),
) -> None:
    """Write a row for each attribute that has a value, and an event for each row that was asked to have one.

    Raises:
        ValueNotSerializableError: If a key, a value, a payload or an actor can't be stored; nothing is kept then.
    """
    rows: list[tuple[AnnotationRecord, bool]] = []
    for annotation in inputs:
        for key, value in annotation.attributes.items():
            if value is not None:
                _check(annotation, key)
                rows.append((_row(unit, annotation, key, run_id, subject), annotation.emit_event))
    if not rows:
        return
    written = set(await unit.tx.append_annotations([row for row, _ in rows]))
    for row, emit_event in rows:
        if emit_event and row.id in written:
            unit.emit(_created(unit, row))


def _check(annotation: AnnotationInput, key: str) -> None:
    what = f"annotation {shown(key)}"
    if not isinstance(key, str) or not key:
        raise ValueNotSerializableError(what, "$", "an annotation's key is text that isn't empty")
    actor = annotation.actor or Actor(kind="")
    texts = {"key": key, "idempotency_key": annotation.idempotency_key}
    texts |= {"actor.kind": actor.kind, "actor.id": actor.id, "actor.version": actor.version}
    for name, text in texts.items():
        problem = None if text is None else text_problem(text)
        if problem is not None:
            raise ValueNotSerializableError(what, f"$.{name}", problem)
    require_json(annotation.attributes[key], what=what)
    require_json(annotation.payload, what=f"the payload of {what}")


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
