"""Valid records with fields to choose; the one place where the suite makes them.

Each builder takes the fields that tests vary. Any other field is changed with `dataclasses.replace`.
"""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Final

from stagewright.annotations import Actor
from stagewright.json_values import Json
from stagewright.records import (
    AnnotationRecord,
    DefinitionRecord,
    LogLevel,
    LogRecord,
    NewEvent,
    NewJob,
    RunRecord,
    SignalRecord,
    StepRecord,
    StoredStage,
)
from stagewright.status import Status

__all__ = [
    "LATER",
    "MOMENT",
    "ODD_JSON",
    "ODD_TEXTS",
    "a_definition",
    "a_job",
    "a_log_line",
    "a_run",
    "a_signal",
    "a_stage",
    "a_step",
    "an_annotation",
    "an_event",
    "exactly",
    "new_id",
    "rare_text",
]

MOMENT: Final = datetime(2031, 5, 17, 9, 30, 12, 345_678, tzinfo=UTC)
"""When sample records were made; its microseconds end in a digit that a careless store rounds away."""

LATER: Final = MOMENT + timedelta(seconds=61, microseconds=1)
"""When sample records were changed."""

ODD_TEXTS: Final = (
    "",
    " leading and trailing ",
    "\\u0000 \\ud800 \\n spelled with backslashes",
    "👩🏽‍🚀 🏳️‍🌈 𝔘𝔫𝔦",
    "\u202bשלום עולם\u202c مرحبا",
    "e\u0301 is not \u00e9",
    "tab\tline\nreturn\rcontrol\x01\x1f\x7f\u0085\u2028",
    "'; DROP TABLE runs; -- \" ` $1 %s %(name)s :name ? {} \\",
    "null",
    "Case and case",
)
"""Texts that every store keeps exactly."""

ODD_JSON: Final[Json] = {
    "texts": list(ODD_TEXTS),
    "": "an empty key",
    "a.b[0]/c'd\"e": "an odd key",
    "Key": 1,
    "key": 2,
    "whole floats": [1.0, 0.0, 1e22, -3.0],
    "floats": [1e-7, 0.1, 1.7976931348623157e308, 5e-324, 123456789.12345679],
    "integers": [0, -1, 2**53 + 1, 2**60, -(2**63), 10**30],
    "booleans are no numbers": [True, 1, False, 0],
    "nulls": {"deep": [None, {"deeper": None}], "text": "null"},
    "empties": [[], {}, "", [[]], [{}]],
    "look-alikes": {"$ref": "#/x", "__claim__": {"key": "k", "size": 1}, "in_progress": True},
}
"""A JSON value of which every member must come back as it was, in value and in type."""


def new_id(kind: str) -> str:
    """An id that no other row has."""
    return f"{kind}-{uuid.uuid4().hex}"


def rare_text(length: int) -> str:
    """A text of so many characters, of four bytes each in UTF-8, in which nothing is repeated that could be packed."""
    return "".join(chr(0x10000 + 40_503 * number % 0xFFFF) for number in range(length))


def exactly(value: object) -> str:
    """A text that differs between JSON values that differ in value or type; the order of keys doesn't count."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {exactly(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(exactly, value)) + "]"
    return f"{type(value).__name__} {value!r}"


def a_run(
    *,
    id: str | None = None,
    status: Status = Status.PENDING,
    workflow_id: str = "orders",
    definition_version: str | None = None,
    priority: int = 5,
    created_at: datetime = MOMENT,
    input: Json = None,
) -> RunRecord:
    """A run as `create_run` gets it."""
    return RunRecord(
        id=new_id("run") if id is None else id,
        workflow_id=workflow_id,
        workflow_name="Orders",
        status=status,
        input=input,
        config={"price": {"currency": "EUR"}},
        priority=priority,
        definition_version=definition_version,
        created_at=created_at,
        updated_at=created_at,
    )


def a_stage(
    run_id: str,
    *,
    id: str | None = None,
    stage_id: str = "price",
    stage_number: int = 1,
    execution_group: int = 1,
    status: Status = Status.PENDING,
) -> StoredStage:
    """A stage of a run as `create_stage` gets it."""
    return StoredStage(
        id=new_id("stage") if id is None else id,
        run_id=run_id,
        stage_id=stage_id,
        stage_name=stage_id.title(),
        stage_number=stage_number,
        execution_group=execution_group,
        status=status,
        created_at=MOMENT,
        updated_at=MOMENT,
    )


def a_definition(
    *,
    workflow_id: str = "orders",
    version: str = "v1",
    structure_hash: str = "sha256:1",
    snapshot: Json = None,
    created_at: datetime = MOMENT,
) -> DefinitionRecord:
    """A definition."""
    return DefinitionRecord(
        workflow_id=workflow_id,
        version=version,
        structure_hash=structure_hash,
        snapshot=snapshot,
        created_at=created_at,
    )


def an_annotation(
    run_id: str,
    *,
    id: str | None = None,
    key: str = "decision.outcome",
    value: Json = "approved",
    created_at: datetime = MOMENT,
    scope: str = "run",
    scope_id: str | None = None,
    actor: Actor | None = None,
    attempt: int = 0,
    idempotency_key: str | None = None,
) -> AnnotationRecord:
    """An annotation of a run."""
    return AnnotationRecord(
        id=new_id("annotation") if id is None else id,
        run_id=run_id,
        key=key,
        value=value,
        created_at=created_at,
        scope=scope,
        scope_id=scope_id,
        actor=actor,
        attempt=attempt,
        idempotency_key=idempotency_key,
    )


def a_log_line(
    run_id: str,
    *,
    id: str | None = None,
    level: LogLevel = "INFO",
    message: str = "priced",
    created_at: datetime = MOMENT,
    fields: dict[str, Json] | None = None,
) -> LogRecord:
    """A line of a run's log."""
    return LogRecord(
        id=new_id("log") if id is None else id,
        run_id=run_id,
        level=level,
        message=message,
        created_at=created_at,
        fields={} if fields is None else fields,
    )


def an_event(
    run_id: str,
    *,
    id: str | None = None,
    occurred_at: datetime = MOMENT,
    payload: dict[str, Json] | None = None,
) -> NewEvent:
    """An event of a run as it is appended."""
    return NewEvent(
        id=new_id("event") if id is None else id,
        run_id=run_id,
        type="workflow:started",
        payload={} if payload is None else payload,
        occurred_at=occurred_at,
        causation_id="dispatch-1",
    )


def a_job(
    run_id: str | None = None,
    *,
    stage_id: str = "price",
    workflow_id: str = "orders",
    definition_version: str | None = None,
    priority: int = 5,
    due_at: datetime | None = None,
    payload: dict[str, Json] | None = None,
    max_worker_losses: int = 3,
) -> NewJob:
    """A job as it is enqueued, of a run of its own unless one is given."""
    return NewJob(
        id=new_id("job"),
        run_id=new_id("run") if run_id is None else run_id,
        workflow_id=workflow_id,
        stage_id=stage_id,
        definition_version=definition_version,
        payload={} if payload is None else payload,
        priority=priority,
        due_at=due_at,
        max_worker_losses=max_worker_losses,
    )


def a_signal(
    run_id: str,
    *,
    id: str | None = None,
    stage_id: str = "price",
    step_id: str = "approval",
    payload: Json = None,
    created_at: datetime = MOMENT,
) -> SignalRecord:
    """A signal that was sent to a run."""
    return SignalRecord(
        id=new_id("signal") if id is None else id,
        run_id=run_id,
        stage_id=stage_id,
        step_id=step_id,
        payload=payload,
        created_at=created_at,
    )


def a_step(
    stage_record_id: str, *, id: str | None = None, step_id: str = "charge", seq: int = 1, result: Json = None
) -> StepRecord:
    """A running step of a stage record."""
    return StepRecord(
        id=new_id("step") if id is None else id,
        stage_record_id=stage_record_id,
        step_id=step_id,
        seq=seq,
        kind="run",
        status="running",
        created_at=MOMENT,
        updated_at=MOMENT,
        lease_expires_at=LATER,
        result=result,
    )
