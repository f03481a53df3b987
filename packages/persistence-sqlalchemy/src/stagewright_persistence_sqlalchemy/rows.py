"""Records as rows, and rows as records."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from datetime import timedelta
from operator import itemgetter
from typing import Any, Final, TypeAlias

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
    SignalRecord,
    StageRecord,
    StepOwner,
    StepRecord,
    StoredStage,
)
from stagewright.status import Status

__all__ = [
    "RUN_PREFIX",
    "STAGE_PREFIX",
    "Row",
    "annotation_of",
    "column_values",
    "definition_of",
    "event_of",
    "job_of",
    "joined_run_of",
    "joined_stage_of",
    "log_of",
    "run_of",
    "signal_of",
    "stage_of",
    "stage_record_of",
    "step_of",
]

Row: TypeAlias = Mapping[str, Any]
"""A row by column name, its values as the column types give them."""

RUN_PREFIX: Final = "r_"
STAGE_PREFIX: Final = "s_"

_RENAMED = {"duration": "duration_us", "poll_interval": "poll_interval_us"}
_RUN_FIELDS = tuple(field.name for field in fields(RunRecord))
_STAGE_FIELDS = tuple(field.name for field in fields(StoredStage))


def _picking(names: tuple[str, ...], prefix: str = "") -> Callable[[Row], tuple[Any, ...]]:
    """Takes the columns of these fields out of a row, in their order and all at once."""
    return itemgetter(*(prefix + _RENAMED.get(name, name) for name in names))


_RUN, _JOINED_RUN = _picking(_RUN_FIELDS), _picking(_RUN_FIELDS, RUN_PREFIX)
_STAGE, _JOINED_STAGE = _picking(_STAGE_FIELDS), _picking(_STAGE_FIELDS, STAGE_PREFIX)
_STAGE_RECORD_FIELDS = tuple(field.name for field in fields(StageRecord))


def column_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of some fields of a record, by column name."""
    return {
        _RENAMED.get(name, name): value if (write := _WRITERS.get(type(value))) is None else write(value)
        for name, value in values.items()
    }


def run_of(row: Row) -> RunRecord:
    """The run of a row."""
    return _run(*_RUN(row))


def joined_run_of(row: Row) -> RunRecord:
    """The run of a row that has a run and a stage, side by side."""
    return _run(*_JOINED_RUN(row))


def stage_of(row: Row) -> StoredStage:
    """The stage of a row, with the engine's columns."""
    return _stage(*_STAGE(row))


def joined_stage_of(row: Row) -> StoredStage | None:
    """The stage of a row that has a run and a stage, side by side; None for a run without any."""
    return None if row[f"{STAGE_PREFIX}id"] is None else _stage(*_JOINED_STAGE(row))


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
    owner = None
    if row["owner_job_id"] is not None:
        owner = StepOwner(job_id=row["owner_job_id"], deliveries=row["owner_deliveries"])
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
        stage_attempt=row["stage_attempt"],
        owner=owner,
        lease_expires_at=row["lease_expires_at"],
        deadline_at=row["deadline_at"],
        retry_at=row["retry_at"],
        poll_interval=_interval(row["poll_interval_us"]),
        poll_failures=row["poll_failures"],
        external_key=row["external_key"],
        result=row["result"],
        result_claim=_claim(row["result_claim"]),
        error=_error(row["error"]),
    )


def signal_of(row: Row) -> SignalRecord:
    """The signal of a row."""
    return SignalRecord(
        id=row["id"],
        run_id=row["run_id"],
        stage_id=row["stage_id"],
        step_id=row["step_id"],
        created_at=row["created_at"],
        payload=row["payload"],
        payload_claim=_claim(row["payload_claim"]),
    )


def _run(*values: Any) -> RunRecord:
    fields = dict(zip(_RUN_FIELDS, values, strict=True))
    fields["status"] = Status(fields["status"])
    fields["error"] = _error(fields["error"])
    fields["duration"] = _interval(fields["duration"])
    return RunRecord(**fields)


def _stage(*values: Any) -> StoredStage:
    fields = dict(zip(_STAGE_FIELDS, values, strict=True))
    fields["status"] = Status(fields["status"])
    fields["error"] = _error(fields["error"])
    fields["duration"] = _interval(fields["duration"])
    fields["poll_interval"] = _interval(fields["poll_interval"])
    if fields["output_claim"] is not None:
        fields["output_claim"] = ClaimCheck(**fields["output_claim"])
    if fields["artifacts"]:
        fields["artifacts"] = {name: ClaimCheck(**claim) for name, claim in fields["artifacts"].items()}
    return StoredStage(**fields)


def _claims_inside(value: dict[str, Any]) -> dict[str, Any]:
    if any(isinstance(member, ClaimCheck) for member in value.values()):
        return {name: asdict(claim) for name, claim in value.items()}
    return value


def _claim(value: Any) -> ClaimCheck | None:
    return None if value is None else ClaimCheck(**value)


def _error(value: Any) -> ErrorRecord | None:
    return None if value is None else ErrorRecord(**value)


def _interval(microseconds: int | None) -> timedelta | None:
    return None if microseconds is None else timedelta(microseconds=microseconds)


_WRITERS: Final[dict[type, Callable[[Any], Any]]] = {
    timedelta: lambda value: value // timedelta(microseconds=1),
    ErrorRecord: asdict,
    ClaimCheck: asdict,
    dict: _claims_inside,
}
