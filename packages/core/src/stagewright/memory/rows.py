"""The rows whose columns are more than a record shows."""

from dataclasses import dataclass
from datetime import datetime

from stagewright.json_values import Json
from stagewright.records import AnnotationRecord, EventRecord, JobRecord, LoggedAICall

__all__ = [
    "AICallRow",
    "AnnotationRow",
    "BlobRow",
    "EventSequenceRow",
    "IdempotencyRow",
    "JobRow",
    "OutboxRow",
]


@dataclass(frozen=True, slots=True)
class AICallRow:
    """A model call and its own id."""

    id: str
    logged: LoggedAICall


@dataclass(frozen=True, slots=True)
class AnnotationRow:
    """An annotation; `position` is its place in the order of appending."""

    record: AnnotationRecord
    position: int


@dataclass(frozen=True, slots=True)
class EventSequenceRow:
    """The last sequence that was given to an event of a run."""

    run_id: str
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxRow:
    """An event, who claims it until when, and from when on it is offered again after a failure."""

    record: EventRecord
    token: str | None = None
    claimed_until: datetime | None = None
    retry_at: datetime | None = None

    @property
    def is_pending(self) -> bool:
        """Whether the sink has yet to accept it."""
        return self.record.published_at is None and self.record.dead_lettered_at is None


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyRow:
    """A key and the run that it names; `result` counts only when `completed`, so that null is a result too."""

    key: str
    command_type: str
    fingerprint: str
    taken_at: datetime
    run_id: str | None = None
    completed: bool = False
    result: Json = None


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job; `position` is its place in the order of enqueueing, and `group` what fairness counts it under."""

    record: JobRecord
    position: int
    group: str | None = None


@dataclass(frozen=True, slots=True)
class BlobRow:
    """The bytes under a key."""

    key: str
    data: bytes
    content_type: str | None
    written_at: datetime
