"""What a sink may say."""

from dataclasses import dataclass

from stagewright.errors.root import StagewrightError

__all__ = [
    "InvalidCursorError",
    "PartialDeliveryError",
]


@dataclass(eq=False)
class PartialDeliveryError(StagewrightError):
    """A sink gave an event to some of its consumers; the next attempt sees them as `event.delivered_to`."""

    delivered: frozenset[str]
    problem: str

    def __str__(self) -> str:
        return self.problem


@dataclass(eq=False)
class InvalidCursorError(StagewrightError):
    """A listing was asked to go on from a cursor that it never gave."""

    cursor: str

    def __str__(self) -> str:
        return f"{self.cursor!r} is not a cursor of this listing; give the next_cursor of its last page"
