"""How those who found nothing to do are woken, within one process."""

import asyncio
from collections import deque

__all__ = ["Bell"]

_LOOK_AGAIN = 0.02


class Bell:
    """Wakes as many waiters as there is something for, as a host is woken, so that few look in vain."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    def ring(self, times: int) -> None:
        while times and self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                times -= 1

    async def wait(self) -> None:
        """Wait to be woken; a moment later look again in any case."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        await asyncio.wait({waiter}, timeout=_LOOK_AGAIN)
        if not waiter.done():
            waiter.cancel()
