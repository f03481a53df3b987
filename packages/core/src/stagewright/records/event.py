"""Events as rows: what is appended to the outbox, and what it keeps."""

from dataclasses import dataclass
from datetime import datetime

from stagewright.json_values import Json

__all__ = ["EventRecord", "NewEvent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """An event to be appended; the store gives it the next sequence of its run.

    Attributes:
        id: The event's id, by which a consumer recognises a repetition.
        run_id: The run it is about.
        type: Such as `stage:completed`.
        payload: The event's own fields as JSON.
        occurred_at: When, in UTC.
        causation_id: Shared by all events of one dispatch.
    """

    id: str
    run_id: str
    type: str
    payload: dict[str, Json]
    occurred_at: datetime
    causation_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecord:
    """A row of the outbox; published rows stay as the run's history.

    Attributes:
        id: The event's id.
        run_id: The run it is about.
        sequence: Its place among the run's events, from 1, without gaps.
        type: Such as `stage:completed`.
        payload: The event's own fields as JSON.
        occurred_at: When, in UTC.
        causation_id: Shared by all events of one dispatch.
        published_at: When the sink accepted it, or None.
        retry_count: How often the sink refused it.
        last_error: What the sink said the last time.
        last_error_at: When the sink said so, in UTC.
        delivered_to: The sink's consumers that accepted it in an attempt that failed as a whole.
        dead_lettered_at: When it was given up, or None.
    """

    id: str
    run_id: str
    sequence: int
    type: str
    payload: dict[str, Json]
    occurred_at: datetime
    causation_id: str
    published_at: datetime | None = None
    retry_count: int = 0
    last_error: str | None = None
    last_error_at: datetime | None = None
    delivered_to: frozenset[str] = frozenset()
    dead_lettered_at: datetime | None = None
