"""Records as rows, and rows as records."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from datetime import timedelta
from typing import Any, TypeAlias

from stagewright.annotations import Actor
from stagewright.records import (
    AnnotationRecord,
    ClaimCheck,
    DefinitionRecord,
    ErrorRecord,
    EventRecord,
    JobRecord,
    LogRecord,
    RunRecord,
    StageRecord,
    StepRecord,
    StoredStage,
)
from stagewright.status import Status

__all__ = [
    "Row",
    "annotation_of",
    "column_values",
    "definition_of",
    "event_of",
    "job_of",
    "log_of",
    "run_of",
    "stage_of",
    "stage_record_of",
    "step_of",
]

Row: TypeAlias = Mapping[str, Any]
"""A row by column name, its values as the column types give them."""

_RENAMED = {"duration": "duration_us", "poll_interval": "poll_interval_us"}
_STAGE_RECORD_FIELDS = tuple(field.name for field in fields(StageRecord))


def column_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of some fields of a record, by column name."""
    return {_RENAMED.get(name, name): _stored(value) for name, value in values.items()}


def run_of(row: Row) -> RunRecord:
    """The run of a row."""
    return RunRecord(
        id=row["id"],
        workflow_id=row["workflow_id"],
        workflow_name=row["workflow_name"],
        status=Status(row["status"]),
        input=row["input"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        config=row["config"],
        output=row["output"],
        error=_error(row["error"]),
        priority=row["priority"],
        started_at=row["started_at"],
        completed_at=row["completed_at"],
        duration=_interval(row["duration_us"]),
        total_cost=row["total_cost"],
        total_tokens=row["total_tokens"],
        definition_version=row["definition_version"],
        redrive_count=row["redrive_count"],
        version=row["version"],
    )


def stage_of(row: Row) -> StoredStage:
    """The stage of a row, with the engine's columns."""
    return StoredStage(
        id=row["id"],
        run_id=row["run_id"],
        stage_id=row["stage_id"],
        stage_name=row["stage_name"],
        stage_number=row["stage_number"],
        execution_group=row["execution_group"],
        attempt=row["attempt"],
        status=Status(row["status"]),
        started_at=row["started_at"],
        completed_at=row["completed_at"],
        duration=_interval(row["duration_us"]),
        error=_error(row["error"]),
        metrics=row["metrics"],
        suspended_state=row["suspended_state"],
        next_poll_at=row["next_poll_at"],
        poll_interval=_interval(row["poll_interval_us"]),
        max_wait_until=row["max_wait_until"],
        version=row["version"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        output=row["output"],
        output_claim=None if row["output_claim"] is None else ClaimCheck(**row["output_claim"]),
        artifacts={name: ClaimCheck(**claim) for name, claim in row["artifacts"].items()},
        job_enqueued_at=row["job_enqueued_at"],
    )


def stage_record_of(row: Row) -> StageRecord:
    """The stage of a row, as people read it."""
    stored = stage_of(row)
    return StageRecord(**{name: getattr(stored, name) for name in _STAGE_RECORD_FIELDS})


def job_of(row: Row) -> JobRecord:
    """The job of a row."""
    return JobRecord(
        id=row["id"],
        run_id=row["run_id"],
        workflow_id=row["workflow_id"],
        stage_id=row["stage_id"],
        definition_version=row["definition_version"],
        payload=row["payload"],
        priority=row["priority"],
        status=Status(row["status"]),
        max_attempts=row["max_attempts"],
        max_worker_losses=row["max_worker_losses"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        deliveries=row["deliveries"],
        failures=row["failures"],
        worker_losses=row["worker_losses"],
        interruptions=row["interruptions"],
        worker_id=row["worker_id"],
        started_at=row["started_at"],
        locked_at=row["locked_at"],
        completed_at=row["completed_at"],
        due_at=row["due_at"],
        last_error=row["last_error"],
    )


def event_of(row: Row) -> EventRecord:
    """The event of a row."""
    return EventRecord(
        id=row["id"],
        run_id=row["run_id"],
        sequence=row["sequence"],
        type=row["type"],
        payload=row["payload"],
        occurred_at=row["occurred_at"],
        causation_id=row["causation_id"],
        published_at=row["published_at"],
        retry_count=row["retry_count"],
        last_error=row["last_error"],
        last_error_at=row["last_error_at"],
        delivered_to=frozenset(row["delivered_to"]),
        dead_lettered_at=row["dead_lettered_at"],
    )


def annotation_of(row: Row) -> AnnotationRecord:
    """The annotation of a row."""
    actor = None
    if row["actor_kind"] is not None:
        actor = Actor(kind=row["actor_kind"], id=row["actor_id"], version=row["actor_version"])
    return AnnotationRecord(
        id=row["id"],
        run_id=row["run_id"],
        key=row["key"],
        value=row["value"],
        created_at=row["created_at"],
        stage_record_id=row["stage_record_id"],
        attempt=row["attempt"],
        scope=row["scope"],
        scope_id=row["scope_id"],
        actor=actor,
        payload=row["payload"],
        idempotency_key=row["idempotency_key"],
    )


def log_of(row: Row) -> LogRecord:
    """The log line of a row."""
    return LogRecord(
        id=row["id"],
        run_id=row["run_id"],
        level=row["level"],
        message=row["message"],
        created_at=row["created_at"],
        stage_record_id=row["stage_record_id"],
        stage_id=row["stage_id"],
        fields=row["fields"],
    )


def definition_of(row: Row) -> DefinitionRecord:
    """The definition of a row."""
    return DefinitionRecord(
        workflow_id=row["workflow_id"],
        version=row["version"],
        structure_hash=row["structure_hash"],
        snapshot=row["snapshot"],
        created_at=row["created_at"],
    )


def step_of(row: Row) -> StepRecord:
    """The step of a row."""
    return StepRecord(
        id=row["id"],
        stage_record_id=row["stage_record_id"],
        step_id=row["step_id"],
        seq=row["seq"],
        kind=row["kind"],
        status=row["status"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        attempt=row["attempt"],
        lease_expires_at=row["lease_expires_at"],
        deadline_at=row["deadline_at"],
        external_key=row["external_key"],
        result=row["result"],
        error=_error(row["error"]),
    )


def _stored(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if isinstance(value, ErrorRecord | ClaimCheck):
        return asdict(value)
    if isinstance(value, dict) and any(isinstance(member, ClaimCheck) for member in value.values()):
        return {name: asdict(claim) for name, claim in value.items()}
    return value


def _error(value: Any) -> ErrorRecord | None:
    return None if value is None else ErrorRecord(**value)


def _interval(microseconds: int | None) -> timedelta | None:
    return None if microseconds is None else timedelta(microseconds=microseconds)
