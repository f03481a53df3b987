"""Time, ids and randomness of the machine: what the kernel uses when it is given nothing else."""

import os
import random
import threading
import time
from datetime import UTC, datetime
from typing import Final

from stagewright.errors import ForkedProcessError

__all__ = ["HomeProcess", "SystemClock", "SystemRandom", "TimeSortableIds"]

_AT_ONCE: Final = 64
"""For how many ids random bytes are drawn at once: asking the system costs more than making an id."""

_VARIANT: Final = bytes(0x80 | byte & 0x3F for byte in range(256))
"""What makes of a random byte one that begins with the two bits of the RFC's variant."""


class SystemClock:
    """The machine's clock, in UTC."""

    def now(self) -> datetime:
        """The current time, aware, in UTC."""
        return datetime.now(UTC)


class SystemRandom:
    """The operating system's randomness."""

    def __init__(self) -> None:
        self._source = random.SystemRandom()

    def uniform(self) -> float:
        """A number from 0 up to, not including, 1."""
        return self._source.random()


class TimeSortableIds:
    """Version 7 UUIDs (RFC 9562, section 5.7): text that sorts by the time it was made.

    Within one process ids rise strictly, also within a millisecond and when the clock is set back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0
        self._ends: list[str] = []
        self._process = _process.number

    def new_id(self) -> str:
        """A new id of 36 characters."""
        # 48 bits of milliseconds, then 12 bits of the RFC's rand_a used as a counter.
        moment = (time.time_ns() // 1_000_000) << 12
        with self._lock:
            self._last = moment = max(moment, self._last + 1)
            if not self._ends or self._process != _process.number:
                # What a parent process has drawn is the parent's.
                self._process = _process.number
                self._ends = _random_ends()
            end = self._ends.pop()
        began = f"{moment >> 12:012x}"
        return f"{began[:8]}-{began[8:]}-7{moment & 0xFFF:03x}-{end}"


def _random_ends() -> list[str]:
    variants, others = os.urandom(_AT_ONCE).translate(_VARIANT).hex(), os.urandom(7 * _AT_ONCE).hex()
    starts = zip(range(0, 2 * _AT_ONCE, 2), range(0, 14 * _AT_ONCE, 14), strict=True)
    return [f"{variants[v : v + 2]}{others[o : o + 2]}-{others[o + 2 : o + 14]}" for v, o in starts]


class _Process:
    """Which process this is, counted in forks: asking the system each time costs a call."""

    def __init__(self) -> None:
        self.number = 0

    def be_another(self) -> None:
        self.number += 1


_process: Final = _Process()
if hasattr(os, "register_at_fork"):  # where processes fork
    os.register_at_fork(after_in_child=_process.be_another)


class HomeProcess:
    """The process that something was made in; a forked child shares neither its connections nor its threads."""

    __slots__ = ("_pid",)

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether this is that process."""
        return os.getpid() == self._pid

    def require(self, what: str) -> None:
        """Refuse to go on in another process.

        Args:
            what: What is being used, for the error.

        Raises:
            ForkedProcessError: If this process was forked off.
        """
        if not self.is_here:
            raise ForkedProcessError(what)
