"""How waiting hosts are woken, in whatever thread and event loop they wait."""

import asyncio
from datetime import timedelta

from stagewright.memory.locks import Mutex

__all__ = ["WorkChannel", "WorkInbox"]


class WorkChannel:
    """Notifications of one database."""

    def __init__(self, mutex: Mutex) -> None:
        self._mutex = mutex
        self._sent = 0
        self._waiting: dict[asyncio.Future[None], asyncio.AbstractEventLoop] = {}

    @property
    def sent(self) -> int:
        """How many notifications there have been."""
        return self._sent

    @property
    def waiting(self) -> int:
        """How many callers wait at this moment."""
        return len(self._waiting)

    def send(self) -> None:
        """Wake whoever waits."""
        with self._mutex:
            self._sent += 1
            waiting, self._waiting = self._waiting, {}
            for future, loop in waiting.items():
                try:
                    loop.call_soon_threadsafe(_resolve, future)
                except RuntimeError:  # its loop is closed, so nobody waits there any more
                    continue

    async def wait_beyond(self, seen: int, timeout: timedelta) -> None:
        """Return once more than `seen` notifications have been sent, or when the time is over."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._mutex:
            if self._sent > seen:
                return
            self._waiting[future] = loop
        timer = loop.call_later(timeout.total_seconds(), _resolve, future)
        try:
            await future
        finally:
            timer.cancel()
            self._mutex.run(lambda: self._forget(future))

    def _forget(self, future: asyncio.Future[None]) -> None:
        self._waiting.pop(future, None)


class WorkInbox:
    """One listener's place on a channel: what came since it last looked is not lost."""

    def __init__(self, channel: WorkChannel) -> None:
        self._channel = channel
        self._seen = channel.sent

    async def wait(self, timeout: timedelta) -> bool:
        """Wait for a notification that the last wait hasn't seen; False when the time is over."""
        seen = self._seen
        await self._channel.wait_beyond(seen, timeout)
        self._seen = self._channel.sent
        return self._seen > seen


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
