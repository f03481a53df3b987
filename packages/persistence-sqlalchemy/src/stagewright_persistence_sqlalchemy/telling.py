"""Telling other processes that there may be work: with the commit that made it, or where many do so, a little later."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

from stagewright.errors import TransientError

__all__ = ["Telling"]

_AT_ONCE: Final = 5
_APART: Final = 0.05
_LAST_MOMENT: Final = 2.0
_log: Final = logging.getLogger("stagewright.persistence")


class Telling:
    """Decides which transactions of this process tell others.

    PostgreSQL lets those that notify commit one at a time, in all databases of a server, each with its own flush of the
    log; on MariaDB they wait for one row. So a few of them tell with their commit, and when they come fast, what they
    would have said is said for all of them together, within a twentieth of a second after they have committed. A
    process that is lost in between leaves it to the hosts' next look.

    Args:
        send: Tells others, in a transaction of its own.
        clock: Seconds that only go forward.
    """

    def __init__(
        self, send: Callable[[], Awaitable[None]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._send = send
        self._clock = clock
        self._left = float(_AT_ONCE)
        self._counted_at = clock()
        self._sending: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def goes_along(self) -> bool:
        """Whether the transaction that asks tells others itself; if not, `later` is to be called after its commit."""
        now = self._clock()
        self._left = min(self._left + (now - self._counted_at) / _APART, _AT_ONCE)
        self._counted_at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def later(self) -> None:
        """Others have to be told of something that is committed."""
        loop = asyncio.get_running_loop()
        if self._sending is None or self._sending.done() or self._sending.get_loop() is not loop:
            self._sending = loop.create_task(self._send_soon(), name="stagewright-telling")
            self._tasks.add(self._sending)
            self._sending.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Tell at once what is still to be told, if the database takes it in a moment."""
        waiting, self._sending = self._sending, None
        here = [task for task in self._tasks if task.get_loop() is asyncio.get_running_loop()]
        if waiting in here:
            waiting.cancel()
        # Those beside it are telling already.
        last = [self._tell()] if waiting in here else []
        try:
            async with asyncio.timeout(_LAST_MOMENT):
                await asyncio.gather(*here, *last, return_exceptions=True)
        except TimeoutError:
            _log.debug(
                "other processes could not be told of new work any more, and find it with their next look"
            )

    async def _send_soon(self) -> None:
        await asyncio.sleep(_APART)
        # Whoever commits from now on is told of by the next one.
        self._sending = None
        await self._tell()

    async def _tell(self) -> None:
        try:
            await self._send()
        except TransientError as error:
            _log.debug(
                "other processes were not told of new work, and find it with their next look: %s", error
            )
