"""A durable step as the ledger keeps it."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from stagewright.json_values import Json
from stagewright.records.claim_check import ClaimCheck
from stagewright.records.error import ErrorRecord
from stagewright.records.unset import UNSET, Unset

__all__ = ["StepExpectation", "StepKind", "StepOwner", "StepPatch", "StepRecord", "StepStatus"]

StepKind: TypeAlias = Literal["run", "wait", "signal", "sleep"]
StepStatus: TypeAlias = Literal["running", "pending", "completed", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOwner:
    """The delivery of a job under which a step is executed; a later delivery of the same job supersedes it.

    Attributes:
        job_id: The job.
        deliveries: How often the job had been delivered by then, this delivery included.
    """

    job_id: str
    deliveries: int


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
        stage_attempt: The stage's attempt in which it was last claimed, from 1.
        owner: Who executes it; None for an execution without a job, and for a step that was given up.
        lease_expires_at: Until when its owner alone may execute it, in UTC; None as long as its owner's job is its own.
        deadline_at: When a wait ends, in UTC.
        retry_at: When a failed step is executed again, in UTC; None if its failure is final.
        poll_interval: How long a wait that polls pauses after an answer that isn't ready.
        poll_failures: How many polls have failed since the last that answered.
        external_key: What to give to other systems so that a repetition is recognised there.
        result: Its result once completed, unless it is spilled.
        result_claim: Where a result lies that was too large to be kept inline.
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
    stage_attempt: int = 1
    owner: StepOwner | None = None
    lease_expires_at: datetime | None = None
    deadline_at: datetime | None = None
    retry_at: datetime | None = None
    poll_interval: timedelta | None = None
    poll_failures: int = 0
    external_key: str | None = None
    result: Json = None
    result_claim: ClaimCheck | None = None
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
    stage_attempt: int | Unset = UNSET
    owner: StepOwner | None | Unset = UNSET
    lease_expires_at: datetime | None | Unset = UNSET
    deadline_at: datetime | None | Unset = UNSET
    retry_at: datetime | None | Unset = UNSET
    poll_failures: int | Unset = UNSET
    result: Json | Unset = UNSET
    result_claim: ClaimCheck | None | Unset = UNSET
    error: ErrorRecord | None | Unset = UNSET
