"""Time, ids and randomness of the machine: what the kernel uses when it is given nothing else."""

import os
import random
import threading
import time
from datetime import UTC, datetime

from stagewright.errors import ForkedProcessError

__all__ = ["HomeProcess", "SystemClock", "SystemRandom", "TimeSortableIds"]


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

    def new_id(self) -> str:
        """A new id of 36 characters."""
        # 48 bits of milliseconds, then 12 bits of the RFC's rand_a used as a counter.
        moment = (time.time_ns() // 1_000_000) << 12
        with self._lock:
            self._last = moment = max(moment, self._last + 1)
        milliseconds, counter = moment >> 12, moment & 0xFFF
        tail = int.from_bytes(os.urandom(8)) & 0x3FFF_FFFF_FFFF_FFFF | 0x8000_0000_0000_0000
        digits = f"{milliseconds:012x}7{counter:03x}{tail:016x}"
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


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
