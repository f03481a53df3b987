"""Time, ids and randomness of simulated processes."""

import asyncio
import random
from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ["SimIds", "SimRandom", "SkewedClock", "TrueClock", "moment"]

_EPOCH: Final = datetime(2025, 1, 1, tzinfo=UTC)


def moment(seconds: float) -> datetime:
    """A virtual time as the stores keep it."""
    return _EPOCH + timedelta(seconds=seconds)


class TrueClock:
    """The clock of the stores: virtual time as it is."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now(self) -> datetime:
        """The current time."""
        return moment(self._loop.time())


class SkewedClock:
    """The clock of one machine: it is off, runs too fast or too slow, and may be set.

    Args:
        loop: Whose time is the true one.
        offset: By how many seconds it is ahead at the start.
        drift: By how many seconds it gains each second.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, offset: float, drift: float) -> None:
        self._loop = loop
        self.offset = offset
        self.drift = drift

    def now(self) -> datetime:
        """What it shows."""
        true = self._loop.time()
        return moment(true + true * self.drift + self.offset)


class SimIds:
    """Ids that sort by the time they were made on their machine's clock, and name who made them."""

    def __init__(self, clock: SkewedClock, maker: str) -> None:
        self._clock = clock
        self._maker = maker
        self._last = 0

    def new_id(self) -> str:
        """A new id."""
        microseconds = (self._clock.now() - _EPOCH) // timedelta(microseconds=1)
        self._last = max(microseconds, self._last + 1)
        return f"{self._last + 10**12:014x}-{self._maker}"


class SimRandom:
    """A kernel's randomness."""

    def __init__(self, source: random.Random) -> None:
        self._source = source

    def uniform(self) -> float:
        """A number from 0 up to, not including, 1."""
        return self._source.random()
