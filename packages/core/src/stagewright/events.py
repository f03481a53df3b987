"""The events of a run, as its sink receives them."""

from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any, ClassVar, Final

from pydantic import TypeAdapter

from stagewright.json_values import Json
from stagewright.records.event import EventRecord

__all__ = [
    "EVENT_TYPES",
    "AnnotationCreated",
    "Event",
    "StageCompleted",
    "StageFailed",
    "StageProgress",
    "StageRetrying",
    "StageStarted",
    "StageSuspended",
    "StepSignalled",
    "WorkflowCancelled",
    "WorkflowCompleted",
    "WorkflowCreated",
    "WorkflowFailed",
    "WorkflowStarted",
    "WorkflowSuspended",
    "event_of_record",
    "event_payload",
]


@dataclass(frozen=True, kw_only=True)
class Event:
    """What every event has.

    Attributes:
        timestamp: When it happened, in UTC.
        run_id: The run it is about.
        event_id: As delivered by the outbox: by this a consumer recognises a repetition.
        sequence: As delivered by the outbox: its place among the run's events, from 1.
        delivered_to: The sink's consumers that accepted this event in an earlier attempt.
    """

    type: ClassVar[str]

    timestamp: datetime
    run_id: str
    event_id: str | None = None
    sequence: int | None = None
    delivered_to: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class WorkflowCreated(Event):
    """A run was created."""

    type: ClassVar[str] = "workflow:created"
    workflow_id: str


@dataclass(frozen=True, kw_only=True)
class WorkflowStarted(Event):
    """A run was claimed, or set going again."""

    type: ClassVar[str] = "workflow:started"


@dataclass(frozen=True, kw_only=True)
class WorkflowSuspended(Event):
    """A run waits because of one of its stages."""

    type: ClassVar[str] = "workflow:suspended"
    stage_id: str


@dataclass(frozen=True, kw_only=True)
class WorkflowCompleted(Event):
    """A run is COMPLETED."""

    type: ClassVar[str] = "workflow:completed"
    duration: timedelta | None
    output: Json
    total_cost: Decimal | None
    total_tokens: int


@dataclass(frozen=True, kw_only=True)
class WorkflowFailed(Event):
    """A run is FAILED; `error` reads `class name: message`."""

    type: ClassVar[str] = "workflow:failed"
    error: str


@dataclass(frozen=True, kw_only=True)
class WorkflowCancelled(Event):
    """A run is CANCELLED."""

    type: ClassVar[str] = "workflow:cancelled"
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class StageStarted(Event):
    """The body of a stage is about to run; `stage_number` counts from 1."""

    type: ClassVar[str] = "stage:started"
    stage_id: str
    stage_name: str
    stage_number: int


@dataclass(frozen=True, kw_only=True)
class StageProgress(Event):
    """A body reported how far it is, in percent."""

    type: ClassVar[str] = "stage:progress"
    stage_id: str
    stage_name: str
    progress: float
    message: str = ""
    details: dict[str, Json] | None = None


@dataclass(frozen=True, kw_only=True)
class StageSuspended(Event):
    """A stage waits until `next_poll_at` at the latest."""

    type: ClassVar[str] = "stage:suspended"
    stage_id: str
    stage_name: str
    next_poll_at: datetime


@dataclass(frozen=True, kw_only=True)
class StageCompleted(Event):
    """A stage is COMPLETED."""

    type: ClassVar[str] = "stage:completed"
    stage_id: str
    stage_name: str
    duration: timedelta | None


@dataclass(frozen=True, kw_only=True)
class StageRetrying(Event):
    """A body failed and gets another attempt; `attempt` is the failure's number within its budget, from 1."""

    type: ClassVar[str] = "stage:retrying"
    stage_id: str
    stage_name: str
    attempt: int
    max_attempts: int
    error: str


@dataclass(frozen=True, kw_only=True)
class StageFailed(Event):
    """A stage is FAILED; `error` reads `class name: message`."""

    type: ClassVar[str] = "stage:failed"
    stage_id: str
    stage_name: str
    error: str


@dataclass(frozen=True, kw_only=True)
class StepSignalled(Event):
    """A signal reached its step for the first time."""

    type: ClassVar[str] = "step:signalled"
    stage_id: str
    step_id: str
    payload: Json = None


@dataclass(frozen=True, kw_only=True)
class AnnotationCreated(Event):
    """An annotation was written that was asked to say so."""

    type: ClassVar[str] = "annotation:created"
    key: str
    value: Json
    scope: str
    scope_id: str | None = None
    attempt: int | None = None
    actor_kind: str | None = None
    actor_id: str | None = None
    actor_version: str | None = None


EVENT_TYPES: Final[dict[str, type[Event]]] = {
    kind.type: kind
    for kind in (
        WorkflowCreated,
        WorkflowStarted,
        WorkflowSuspended,
        WorkflowCompleted,
        WorkflowFailed,
        WorkflowCancelled,
        StageStarted,
        StageProgress,
        StageSuspended,
        StageCompleted,
        StageRetrying,
        StageFailed,
        StepSignalled,
        AnnotationCreated,
    )
}
"""The class of each event type."""

_COLUMNS: Final = {field.name for field in fields(Event)}


def event_payload(event: Event) -> dict[str, Json]:
    """The event's own fields as JSON, for the outbox; what every event has is kept in columns."""
    payload: dict[str, Json] = _adapter(event.type).dump_python(event, mode="json", exclude=_COLUMNS)
    return payload


def event_of_record(record: EventRecord) -> Event:
    """Rebuild the event of an outbox row, times as times."""
    columns = {
        "timestamp": record.occurred_at,
        "run_id": record.run_id,
        "event_id": record.id,
        "sequence": record.sequence,
        "delivered_to": record.delivered_to,
    }
    event: Event = _adapter(record.type).validate_python({**record.payload, **columns})
    return event


@cache
def _adapter(event_type: str) -> TypeAdapter[Any]:
    return TypeAdapter(EVENT_TYPES[event_type])
