"""How a call of a step ends, and what the rows of steps that have ended say."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from stagewright.errors import (
    StepFailedError,
    StepNotReplaySafeError,
    StepResultNotSerializableError,
    StepTimeoutError,
)
from stagewright.records import StepPatch, StepRecord
from stagewright.runtime.failure import describe_exception

__all__ = [
    "FAILED",
    "NOT_REPLAY_SAFE",
    "NOT_SERIALIZABLE",
    "REOPENED",
    "Answer",
    "Failure",
    "Settled",
    "Wait",
    "stored_failure",
    "time_out",
]

FAILED: Final = "STEP_FAILED"
NOT_REPLAY_SAFE: Final = "STEP_NOT_REPLAY_SAFE"
NOT_SERIALIZABLE: Final = "STEP_RESULT_NOT_SERIALIZABLE"
REOPENED: Final = "STEP_REOPENED"
"""Of a step that runs no more: an execution of it was begun, and what came of that is unknown."""
_TIMED_OUT: Final = "STEP_TIMEOUT"


@dataclass(frozen=True, slots=True)
class Answer:
    """The call returns this."""

    value: object


@dataclass(frozen=True, slots=True)
class Failure:
    """The call raises this."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Wait:
    """The call suspends the stage."""

    until: datetime


Settled: TypeAlias = Answer | Failure | Wait


def stored_failure(row: StepRecord) -> Exception:
    """The error that a failed step's row stands for, in whatever process it is read."""
    error = row.error
    if error is None:
        return StepFailedError(row.step_id, None, "its failure was not described")
    if error.code == _TIMED_OUT:
        return StepTimeoutError(row.step_id, row.kind, row.deadline_at)
    if error.code == NOT_REPLAY_SAFE:
        return StepNotReplaySafeError(row.step_id, row.external_key, row.lease_expires_at)
    if error.code == NOT_SERIALIZABLE:
        told = str(StepResultNotSerializableError(row.step_id, "", ""))
        path, _, problem = error.message.removeprefix(told.removesuffix(": ")).partition(": ")
        return StepResultNotSerializableError(row.step_id, path, problem)
    return StepFailedError(row.step_id, error.type, error.message)


def time_out(row: StepRecord, now: datetime, *, stage_id: str) -> StepPatch:
    """What becomes of a wait whose deadline has passed."""
    error = StepTimeoutError(row.step_id, row.kind, row.deadline_at)
    described = describe_exception(error, code=_TIMED_OUT, stage_id=stage_id)
    return StepPatch(updated_at=now, status="failed", error=described)
