"""A run as stores keep it and people read it."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal

from stagewright.json_values import Json
from stagewright.records.error import ErrorRecord
from stagewright.records.unset import UNSET, Unset
from stagewright.status import Status

__all__ = ["RunPatch", "RunRecord"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run of a workflow.

    Attributes:
        id: The run's id; ids sort by the time they were made.
        workflow_id: Which workflow it runs.
        workflow_name: The workflow's name when the run was created.
        status: PENDING, RUNNING, COMPLETED, FAILED or CANCELLED.
        input: The JSON form of what the caller gave.
        config: The validated config by stage id, defaults filled in.
        output: The last group's output once COMPLETED; an object by stage id if that group is parallel.
        error: Why it FAILED, else None.
        priority: Higher goes first.
        created_at: When it was created, in UTC.
        updated_at: When its row last changed, in UTC.
        started_at: When it was claimed, in UTC.
        completed_at: When it reached COMPLETED, FAILED or CANCELLED, in UTC.
        duration: From `started_at` to `completed_at`.
        total_cost: What its model calls cost, in US dollars; None when unknown.
        total_tokens: Input and output tokens of its model calls.
        definition_version: The version of the workflow it is pinned to.
        redrive_count: How often it was redriven.
        version: Rises by one with every change of the row.
    """

    id: str
    workflow_id: str
    workflow_name: str
    status: Status
    input: Json
    created_at: datetime
    updated_at: datetime
    config: dict[str, Json] = field(default_factory=dict)
    output: Json = None
    error: ErrorRecord | None = None
    priority: int = 5
    started_at: datetime | None = None
    completed_at: datetime | None = None
    duration: timedelta | None = None
    total_cost: Decimal | None = Decimal(0)
    total_tokens: int = 0
    definition_version: str | None = None
    redrive_count: int = 0
    version: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPatch:
    """What to change of a run; a field left UNSET keeps its value, None is written."""

    updated_at: datetime
    status: Status | Unset = UNSET
    output: Json | Unset = UNSET
    error: ErrorRecord | None | Unset = UNSET
    started_at: datetime | None | Unset = UNSET
    completed_at: datetime | None | Unset = UNSET
    duration: timedelta | None | Unset = UNSET
    total_cost: Decimal | None | Unset = UNSET
    total_tokens: int | Unset = UNSET
    definition_version: str | None | Unset = UNSET
    redrive_count: int | Unset = UNSET
