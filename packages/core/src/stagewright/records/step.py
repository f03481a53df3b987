"""A durable step as the ledger keeps it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from stagewright.json_values import Json
from stagewright.records.error import ErrorRecord
from stagewright.records.unset import UNSET, Unset

__all__ = ["StepExpectation", "StepKind", "StepPatch", "StepRecord", "StepStatus"]

StepKind: TypeAlias = Literal["run", "wait", "signal", "sleep"]
StepStatus: TypeAlias = Literal["running", "pending", "completed", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One step of one stage record; (stage record, step id) is unique.

    Attributes:
        id: The record's id.
        stage_record_id: The stage record it belongs to.
        step_id: The step's id within the stage.
        seq: When it was first asked for among the steps of its invocation, from 1.
        kind: run, wait, signal or sleep.
        status: running, pending, completed or failed.
        attempt: Which execution this is, from 1.
        lease_expires_at: Until when its owner alone may execute it, in UTC.
        deadline_at: When a wait ends, in UTC.
        external_key: What to give to other systems so that a repetition is recognised there.
        result: Its result once completed.
        error: Its failure.
        created_at: When it was first asked for, in UTC.
        updated_at: When its row last changed, in UTC.
    """

    id: str
    stage_record_id: str
    step_id: str
    seq: int
    kind: StepKind
    status: StepStatus
    created_at: datetime
    updated_at: datetime
    attempt: int = 1
    lease_expires_at: datetime | None = None
    deadline_at: datetime | None = None
    external_key: str | None = None
    result: Json = None
    error: ErrorRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepExpectation:
    """What a step must look like for a compare-and-set to apply; None doesn't matter."""

    status: StepStatus
    attempt: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPatch:
    """What to change of a step; a field left UNSET keeps its value, None is written."""

    updated_at: datetime
    status: StepStatus | Unset = UNSET
    attempt: int | Unset = UNSET
    lease_expires_at: datetime | None | Unset = UNSET
    deadline_at: datetime | None | Unset = UNSET
    result: Json | Unset = UNSET
    error: ErrorRecord | None | Unset = UNSET
