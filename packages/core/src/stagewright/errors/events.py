"""What a sink may say."""

from dataclasses import dataclass
from typing import Final

from stagewright.errors.root import StagewrightError

__all__ = [
    "DeliveryTimeoutError",
    "InvalidCursorError",
    "PartialDeliveryError",
]

_SHOWN: Final = 100


@dataclass(eq=False)
class DeliveryTimeoutError(StagewrightError):
    """Whoever was given an event neither accepted nor refused it in time; that counts as a refusal."""

    seconds: float

    def __str__(self) -> str:
        return f"the event was not accepted within {self.seconds:g} s"


@dataclass(eq=False)
class PartialDeliveryError(StagewrightError):
    """A sink gave an event to some of its consumers; the next attempt sees them as `event.delivered_to`.

    Attributes:
        delivered: Who has the event by now.
        problem: What was the matter with the others.
        timed_out: Whether one of the others did not answer in time.
    """

    delivered: frozenset[str]
    problem: str
    timed_out: bool = False

    def __str__(self) -> str:
        return self.problem


@dataclass(eq=False)
class InvalidCursorError(StagewrightError):
    """A listing was asked to go on from a cursor that it never gave."""

    cursor: str

    def __str__(self) -> str:
        given = repr(self.cursor)
        shown = given if len(given) <= _SHOWN else f"{given[:_SHOWN]}…"
        return f"{shown} is not a cursor of this listing; give the next_cursor of its last page"
