"""Whose a step is that is being executed."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Final, TypeAlias

from stagewright.duration import add_within_calendar
from stagewright.records import StepOwner, StepRecord

__all__ = [
    "DEFAULT_LEASE",
    "Asker",
    "Free",
    "Held",
    "Standing",
    "Superseded",
    "Void",
    "is_superseded",
    "standing_of",
]

DEFAULT_LEASE: Final = timedelta(seconds=60)
"""The lease of an execution that no job's lease covers."""

_LOOK_AGAIN: Final = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks for a step.

    Attributes:
        owner: The delivery under which the asking execution runs, or None.
        stage_attempt: Its attempt of the stage.
    """

    owner: StepOwner | None
    stage_attempt: int


@dataclass(frozen=True, slots=True)
class Free:
    """Nobody has it: it was given up in order."""


@dataclass(frozen=True, slots=True)
class Void:
    """Whoever had it has lost it, perhaps in the middle."""


@dataclass(frozen=True, slots=True)
class Held:
    """Somebody has it, to be asked again then."""

    until: datetime


@dataclass(frozen=True, slots=True)
class Superseded:
    """A later execution has it than the one that asks."""


Standing: TypeAlias = Free | Void | Held | Superseded


class _Age(Enum):
    OLDER = -1
    SAME = 0
    NEWER = 1


def standing_of(step: StepRecord, asker: Asker, now: datetime) -> Standing:
    """Whose a running step is.

    An explicit lease is a time and holds until then. Without one a step is its owner's until the owner's job was
    delivered again, or the stage came to another attempt.
    """
    age = _age(step, asker)
    if age is _Age.NEWER:
        return Superseded()
    if step.lease_expires_at is not None:
        if now >= step.lease_expires_at:
            return Void()
        return Held(min(step.lease_expires_at, add_within_calendar(now, _LOOK_AGAIN)))
    if step.owner is None:
        return Free()
    return Void() if age is _Age.OLDER else Held(add_within_calendar(now, _LOOK_AGAIN))


def is_superseded(step: StepRecord, asker: Asker) -> bool:
    """Whether a later execution than the one that asks has had the step."""
    return _age(step, asker) is _Age.NEWER


def _age(step: StepRecord, asker: Asker) -> _Age:
    """Whether the execution that has the step is older or newer than the one that asks."""
    theirs, ours = step.owner, asker.owner
    if theirs is not None and ours is not None and theirs.job_id == ours.job_id:
        return _compared(theirs.deliveries, ours.deliveries)
    if step.stage_attempt != asker.stage_attempt or theirs is None or ours is None:
        return _compared(step.stage_attempt, asker.stage_attempt)
    # Two jobs of one attempt: the first is gone, and ids sort by the time they were made.
    return _Age.OLDER if theirs.job_id < ours.job_id else _Age.NEWER


def _compared(theirs: int, ours: int) -> _Age:
    return _Age.SAME if theirs == ours else _Age.OLDER if theirs < ours else _Age.NEWER
