"""The attempts that a redrive supersedes: kept as annotations, and counted on."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from stagewright.annotations import Actor, AnnotationInput
from stagewright.json_values import Json
from stagewright.kernel.procedures.annotate import AnnotationSubject, annotate
from stagewright.kernel.unit_of_work import UnitOfWork
from stagewright.records import AnnotationQuery, AnnotationRecord, ClaimCheck, RunRecord, StoredStage

__all__ = ["archive_attempt", "archived_attempts", "archived_stage_records"]

_KEY: Final = "run.supersededAttempt"
_ACTOR: Final = Actor(kind="engine", id="run.redrive")
_ALL: Final = 1_000_000


async def archive_attempt(
    unit: UnitOfWork,
    run: RunRecord,
    stage: StoredStage,
    *,
    reopened: bool,
    abandoned_steps: Sequence[Json],
) -> None:
    """Keep what a stage's record says of the attempt that is superseded, as an annotation of it.

    Args:
        unit: The transaction of the redrive.
        run: The run as it was before.
        stage: The record as it was before.
        reopened: Whether the record stays.
        abandoned_steps: Steps that are forgotten although other systems may know them.
    """
    payload: dict[str, Json] = {
        "redrive_count": run.redrive_count + 1,
        "definition_version": run.definition_version,
        "stage_record_id": stage.id,
        "stage_number": stage.stage_number,
        "execution_group": stage.execution_group,
        "attempt": stage.attempt,
        "status": stage.status.value,
        "error_message": None if stage.error is None else str(stage.error),
        "started_at": _text(stage.started_at),
        "completed_at": _text(stage.completed_at),
        "duration": None if stage.duration is None else stage.duration.total_seconds(),
        "metrics": stage.metrics,
        "output": stage.output,
        "output_claim": _claim(stage.output_claim),
        "artifacts": {name: _claim(claim) for name, claim in stage.artifacts.items()},
        "reopened": reopened,
    }
    if abandoned_steps:
        payload["abandoned_steps"] = list(abandoned_steps)
    annotation = AnnotationInput(
        attributes={_KEY: stage.status.value},
        actor=_ACTOR,
        payload=payload,
        idempotency_key=f"{_KEY}:{stage.id}:{stage.attempt}",
    )
    subject = AnnotationSubject(
        stage_record_id=stage.id, attempt=stage.attempt, scope="stage", scope_id=stage.stage_id
    )
    await annotate(unit, [annotation], run_id=run.id, subject=subject)


async def archived_attempts(unit: UnitOfWork, run: RunRecord) -> Mapping[str, int]:
    """The last attempt of each stage that a redrive superseded, by stage id."""
    last: dict[str, int] = {}
    for archived in await _archived(unit, run):
        stage_id = archived.scope_id or ""
        last[stage_id] = max(archived.attempt, last.get(stage_id, 0))
    return last


async def archived_stage_records(unit: UnitOfWork, run: RunRecord) -> set[str]:
    """The ids of the stage records that redrives superseded."""
    found = set()
    for archived in await _archived(unit, run):
        record_id = archived.payload.get("stage_record_id") if isinstance(archived.payload, dict) else None
        if isinstance(record_id, str):
            found.add(record_id)
    return found


async def _archived(unit: UnitOfWork, run: RunRecord) -> list[AnnotationRecord]:
    if not run.redrive_count:
        return []
    query = AnnotationQuery(key=_KEY, scope="stage", actor_kind=_ACTOR.kind, actor_id=_ACTOR.id, limit=_ALL)
    return await unit.tx.list_annotations(run.id, query)


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _claim(claim: ClaimCheck | None) -> Json:
    return None if claim is None else {"key": claim.key, "size": claim.size}
