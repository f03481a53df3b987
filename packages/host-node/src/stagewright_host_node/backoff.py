"""Pauses that grow while something fails."""

import random
from typing import Final

__all__ = ["BackOff"]

_FIRST: Final = 0.25
_LONGEST: Final = 5.0


class BackOff:
    """Doubles its pause with every failure, up to five seconds, each a little shorter by chance."""

    def __init__(self, *, first: float = _FIRST, longest: float = _LONGEST) -> None:
        self._first = first
        self._longest = longest
        self._failures = 0

    @property
    def failures(self) -> int:
        """How many failures there were in a row."""
        return self._failures

    def succeeded(self) -> None:
        """Begin anew."""
        self._failures = 0

    def failed(self) -> float:
        """Count a failure, and say how many seconds to pause."""
        pause = min(self._longest, self._first * 2.0 ** min(self._failures, 16))
        self._failures += 1
        return pause * random.uniform(0.75, 1.0)
