"""The database's clock, read without asking the database."""

import time
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import null, select
from sqlalchemy.ext.asyncio import AsyncEngine

from stagewright.ports import Clock
from stagewright.system import SystemClock
from stagewright_persistence_sqlalchemy.connecting import connected
from stagewright_persistence_sqlalchemy.dialect import kind_of
from stagewright_persistence_sqlalchemy.vendor_errors import translated_errors

__all__ = ["OffsetClock", "SteadyClock", "clock_of"]

_SAMPLES: Final = 5
_STEADY: Final = getattr(time, "CLOCK_BOOTTIME", None)
"""A counter of the machine that goes on while it sleeps and that nobody sets, where there is one."""


class SteadyClock:
    """Another clock as it was when this was made, going on from there: setting the other one doesn't move it.

    Args:
        local: The other clock.
    """

    def __init__(self, local: Clock) -> None:
        self._began = local.now()
        self._counted = _counted()

    def now(self) -> datetime:
        """The current time, in UTC."""
        return self._began + timedelta(seconds=_counted() - self._counted)


class OffsetClock:
    """Another clock, set right by what it was found to be off.

    Args:
        offset: What is added to the other clock.
        local: The other clock.
    """

    def __init__(self, offset: timedelta, local: Clock | None = None) -> None:
        self.offset: Final = offset
        self._local = local or SystemClock()

    def now(self) -> datetime:
        """The current time, in UTC."""
        return self._local.now() + self.offset


async def clock_of(engine: AsyncEngine, *, local: Clock | None = None) -> Clock:
    """The clock of an engine's database: on a server, the local one plus the measured difference.

    The difference is right to half a round trip, of the fastest of a few. Setting the machine's clock later moves
    nothing.

    Args:
        engine: The engine; SQLite has no clock of its own, so the local one is its clock.
        local: The clock to set right; by default the machine's.

    Raises:
        TransientError: If the database can't be reached.
    """
    local = local or SystemClock()
    if engine.dialect.name == "sqlite":
        return local
    local, now = SteadyClock(local), kind_of(engine.dialect.name).now(null())
    async with connected(engine) as connection:
        with translated_errors():
            samples = []
            for _ in range(_SAMPLES):
                before, started = local.now(), time.perf_counter()
                there: datetime = (await connection.execute(select(now))).scalar_one()
                round_trip = timedelta(seconds=time.perf_counter() - started)
                samples.append((round_trip, there - (before + round_trip / 2)))
    return OffsetClock(min(samples)[1], local)


def _counted() -> float:
    return time.monotonic() if _STEADY is None else time.clock_gettime(_STEADY)
