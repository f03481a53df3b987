"""Telling other hosts of jobs that this one made and doesn't take: not each time, but soon."""

import time
from collections.abc import Awaitable, Callable
from typing import Final

__all__ = ["LeftJobs"]

_LEAST_PAUSE: Final = 0.1


class LeftJobs:
    """Keeps in mind whether there may be jobs of this host's own making that nobody was told of.

    A host claims after each execution, and mostly takes itself what that one made. Others are told when a claim took as
    much as it could, or could not be made, and ten times a second at the most: who waits was told a moment ago.

    Args:
        tell: Wakes other hosts.
        clock: Seconds that only go forward.
    """

    def __init__(
        self, tell: Callable[[], Awaitable[None]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tell = tell
        self._clock = clock
        self._made = 0
        self._settled = 0
        self._told_at = float("-inf")

    @property
    def made(self) -> int:
        """How often there was something; asked before a claim that is to see all of that."""
        return self._made

    @property
    def wait(self) -> float | None:
        """After how many seconds others have to be told; None if there is nothing to tell."""
        if self._made == self._settled:
            return None
        return max(0.0, self._told_at + _LEAST_PAUSE - self._clock())

    def note(self) -> None:
        """Something that this host did may have made jobs."""
        self._made += 1

    def settle(self, made: int) -> None:
        """A claim that began when so much was made has left nothing."""
        self._settled = max(self._settled, made)

    async def tell_when_due(self) -> None:
        """Tell others if it is time."""
        if self.wait == 0:
            await self.tell_now()

    async def tell_now(self) -> None:
        """Tell others if there is something to tell."""
        if self._made != self._settled:
            self._settled = self._made
            self._told_at = self._clock()
            await self._tell()
