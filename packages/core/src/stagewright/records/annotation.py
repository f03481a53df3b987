"""An annotation, and how annotations are asked for."""

from dataclasses import dataclass
from datetime import datetime

from stagewright.annotations import Actor
from stagewright.json_values import Json

__all__ = ["AnnotationQuery", "AnnotationRecord"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationRecord:
    """One key and its value, said of a run or of a part of it.

    Attributes:
        id: The annotation's id.
        run_id: The run it is about.
        stage_record_id: The stage record it was made in; None once that record is gone, or outside a stage.
        attempt: The stage's attempt it was made in; 0 outside a stage.
        scope: What it is about: `run`, `stage`, or a word of the caller's.
        scope_id: Which one, such as the stage id.
        actor: Who made it.
        key: Its name.
        value: Any JSON but null.
        payload: A JSON document that belongs to it.
        idempotency_key: A second row of the same run, key and idempotency key is skipped.
        created_at: When, in UTC.
    """

    id: str
    run_id: str
    key: str
    value: Json
    created_at: datetime
    stage_record_id: str | None = None
    attempt: int = 0
    scope: str = "run"
    scope_id: str | None = None
    actor: Actor | None = None
    payload: Json = None
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationQuery:
    """Which annotations of a run to list; filters are combined with AND, None doesn't filter.

    Attributes:
        key: This very key; it wins over `key_prefix`.
        key_prefix: Keys that start with this, letter by letter; nothing in it is a wildcard.
        scope: What it is about.
        scope_id: Which one.
        actor_id: Who made it.
        actor_kind: What sort of actor made it.
        attempt: The stage's attempt.
        since: Made at or after.
        until: Made at or before.
        limit: At most so many, the oldest first.
    """

    key: str | None = None
    key_prefix: str | None = None
    scope: str | None = None
    scope_id: str | None = None
    actor_id: str | None = None
    actor_kind: str | None = None
    attempt: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    limit: int = 1000
