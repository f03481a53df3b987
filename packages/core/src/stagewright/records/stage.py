"""A stage of a run: what people read, and what a store keeps beside it."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from stagewright.json_values import Json
from stagewright.records.claim_check import ClaimCheck
from stagewright.records.error import ErrorRecord
from stagewright.records.unset import UNSET, Unset
from stagewright.status import Status

__all__ = ["StagePatch", "StageRecord", "StoredStage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRecord:
    """One stage of one run.

    Attributes:
        id: The id of this record, which steps and annotations refer to.
        run_id: The run it belongs to.
        stage_id: The stage's id in the workflow; unique within the run.
        stage_name: The stage's name when the record was made.
        stage_number: Its place in the workflow, from 1.
        execution_group: The group it runs in, from 1; the members of a group run concurrently.
        attempt: Which attempt this is, from 1; it only ever rises.
        status: PENDING, RUNNING, SUSPENDED, COMPLETED, FAILED or CANCELLED.
        started_at: When the attempt's body was started, in UTC.
        completed_at: When it ended for good, in UTC.
        duration: From `started_at` to the end of the attempt.
        error: The last failure; a PENDING stage with an error waits for another attempt.
        metrics: Numbers and notes that the body reported.
        suspended_state: What a suspended stage resumes with.
        next_poll_at: When a suspended stage is looked at next, in UTC.
        poll_interval: How often a suspended stage is looked at.
        max_wait_until: When a suspended stage stops waiting and fails, in UTC.
        version: Rises by one with every change of the row.
    """

    id: str
    run_id: str
    stage_id: str
    stage_name: str
    stage_number: int
    execution_group: int
    attempt: int = 1
    status: Status = Status.PENDING
    started_at: datetime | None = None
    completed_at: datetime | None = None
    duration: timedelta | None = None
    error: ErrorRecord | None = None
    metrics: dict[str, Json] = field(default_factory=dict)
    suspended_state: Json = None
    next_poll_at: datetime | None = None
    poll_interval: timedelta | None = None
    max_wait_until: datetime | None = None
    version: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredStage(StageRecord):
    """A stage with the columns that only the engine uses.

    Attributes:
        created_at: When the record was made, in UTC.
        updated_at: When its row last changed, in UTC.
        output: The output of a COMPLETED stage, unless it is spilled.
        output_claim: Where the output lies when it was too large to be kept inline.
        artifacts: Claim checks of the body's artifacts, by name.
        job_enqueued_at: When the transport took the job this record wants; None while the job is owed.
        waiting_step_id: The durable step that the stage was last suspended for; None if it was not for a step.
        nudged_at: When a signal came while the stage was at work; it waits no longer than until then. In UTC.
        steps_reset_owed_at: Since when its steps are to be reset before its body runs again, because the redrive that
            wanted it could not do it itself; None if nothing is owed.
    """

    created_at: datetime
    updated_at: datetime
    output: Json = None
    output_claim: ClaimCheck | None = None
    artifacts: dict[str, ClaimCheck] = field(default_factory=dict)
    job_enqueued_at: datetime | None = None
    waiting_step_id: str | None = None
    nudged_at: datetime | None = None
    steps_reset_owed_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePatch:
    """What to change of a stage; a field left UNSET keeps its value, None is written."""

    updated_at: datetime
    stage_name: str | Unset = UNSET
    stage_number: int | Unset = UNSET
    execution_group: int | Unset = UNSET
    attempt: int | Unset = UNSET
    status: Status | Unset = UNSET
    started_at: datetime | None | Unset = UNSET
    completed_at: datetime | None | Unset = UNSET
    duration: timedelta | None | Unset = UNSET
    error: ErrorRecord | None | Unset = UNSET
    metrics: dict[str, Json] | Unset = UNSET
    suspended_state: Json | Unset = UNSET
    next_poll_at: datetime | None | Unset = UNSET
    poll_interval: timedelta | None | Unset = UNSET
    max_wait_until: datetime | None | Unset = UNSET
    output: Json | Unset = UNSET
    output_claim: ClaimCheck | None | Unset = UNSET
    artifacts: dict[str, ClaimCheck] | Unset = UNSET
    job_enqueued_at: datetime | None | Unset = UNSET
    waiting_step_id: str | None | Unset = UNSET
    nudged_at: datetime | None | Unset = UNSET
    steps_reset_owed_at: datetime | None | Unset = UNSET
