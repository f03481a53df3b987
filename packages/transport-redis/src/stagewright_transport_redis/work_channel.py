"""How those who wait for work in this process are woken."""

import asyncio
from datetime import timedelta

__all__ = ["WorkChannel", "WorkInbox"]


class WorkChannel:
    """Notifications of one namespace, as far as this process has learnt of them; of one event loop."""

    def __init__(self) -> None:
        self.told = 0
        self._waiting: set[asyncio.Future[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def tell(self) -> None:
        """Wake whoever waits."""
        self.told += 1
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def tell_in(self, seconds: float) -> None:
        """Wake whoever waits then: a job will be due. Only the earliest time counts; who looks then learns the next."""
        loop = asyncio.get_running_loop()
        at = loop.time() + max(seconds, 0.0)
        if self._timer is not None:
            if not self._timer.cancelled() and loop.time() < self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = loop.call_at(at, self.tell)

    def close(self) -> None:
        """Wake nobody any more by the clock."""
        if self._timer is not None:
            self._timer.cancel()

    async def wait_beyond(self, seen: int, timeout: timedelta) -> None:
        """Return once there have been more than `seen` notifications, or when the time is over."""
        if self.told > seen:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await asyncio.wait({future}, timeout=timeout.total_seconds())
        finally:
            self._waiting.discard(future)


class WorkInbox:
    """One listener's place on a channel: what came since it last looked is not lost."""

    def __init__(self, channel: WorkChannel) -> None:
        self._channel = channel
        self._seen = channel.told

    async def wait(self, timeout: timedelta) -> bool:
        """Wait for a notification that the last wait hasn't seen; False when the time is over."""
        seen = self._seen
        await self._channel.wait_beyond(seen, timeout)
        self._seen = self._channel.told
        return self._seen > seen
