"""Turns at writing, for a database that lets one writer in at a time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

from stagewright.errors import DeadlockError

__all__ = ["WriterTurn"]


class WriterTurn:
    """Writers of one process wait here, where waiting can be cancelled, not in a driver's thread.

    Writers of other processes, and of other event loops, are waited for by the database.
    """

    def __init__(self) -> None:
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
        self._holder: asyncio.Task[object] | None = None

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Wait for a turn, and keep it while the block runs.

        Raises:
            DeadlockError: If this very task has the turn already, and so would wait for itself.
        """
        task = asyncio.current_task()
        lock = self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())
        if lock.locked() and self._holder is task:
            raise DeadlockError(
                "this task has a transaction open and would wait for it; use the transaction itself"
            )
        async with lock:
            self._holder = task
            try:
                yield
            finally:
                self._holder = None
