"""How long an event that the sink refused waits."""

from datetime import timedelta
from typing import Final

__all__ = ["retry_delay"]

_FIRST: Final = timedelta(seconds=1)
_LONGEST: Final = timedelta(minutes=5)
_MOST_DOUBLINGS: Final = 10


def retry_delay(refusals: int) -> timedelta:
    """The wait before an event is offered again: 1 s after the first refusal, doubled each time, at most 5 minutes."""
    doublings = min(refusals - 1, _MOST_DOUBLINGS)
    return min(_FIRST * (1 << doublings), _LONGEST)
