"""How waiting hosts of this process are woken, in whatever thread and event loop they wait."""

import asyncio
import threading
from datetime import timedelta

__all__ = ["WorkChannel", "WorkInbox"]


class WorkChannel:
    """Notifications of one database, as far as this process has learnt of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told = 0
        self._waiting: dict[asyncio.Future[None], asyncio.AbstractEventLoop] = {}

    @property
    def told(self) -> int:
        """How many notifications there have been."""
        return self._told

    def inbox(self) -> "WorkInbox":
        """A listener's place: what comes from now on isn't lost to it."""
        return WorkInbox(self)

    def tell(self) -> None:
        """Wake whoever waits."""
        with self._lock:
            self._told += 1
            waiting, self._waiting = self._waiting, {}
        for future, loop in waiting.items():
            if not loop.is_closed():
                loop.call_soon_threadsafe(_resolve, future)

    async def wait_beyond(self, seen: int, timeout: timedelta) -> None:
        """Return once there have been more than `seen` notifications, or when the time is over."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._lock:
            if self._told > seen:
                return
            self._waiting[future] = loop
        timer = loop.call_later(timeout.total_seconds(), _resolve, future)
        try:
            await future
        finally:
            timer.cancel()
            with self._lock:
                self._waiting.pop(future, None)


class WorkInbox:
    """One listener's place on a channel."""

    def __init__(self, channel: WorkChannel) -> None:
        self._channel = channel
        self._seen = channel.told

    async def wait(self, timeout: timedelta) -> bool:
        """Wait for a notification that the last wait hasn't seen; False when the time is over."""
        seen = self._seen
        await self._channel.wait_beyond(seen, timeout)
        self._seen = self._channel.told
        return self._seen > seen


def _resolve(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
