"""Calls of a vendor's client that block, in threads of its own."""

import asyncio
import contextvars
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import Final, Generic, TypeVar

from stagewright.errors import ForkedProcessError

__all__ = ["VendorThreads"]

C = TypeVar("C")
R = TypeVar("R")

_SECONDS_OF_GRACE: Final = 10.0


class VendorThreads(Generic[C]):
    """One client, which is made at its first use, and as many threads as it has connections.

    It belongs to no event loop: callers in several of them share it.

    Args:
        what: What it is, for errors and the names of threads.
        size: How many calls run at once; others wait for their turn.
        connect: Makes the client; it is called in one of the threads.
        disconnect: Closes the client.
    """

    def __init__(
        self, what: str, *, size: int, connect: Callable[[], C], disconnect: Callable[[C], object]
    ) -> None:
        self._what = what
        self._connect = connect
        self._disconnect = disconnect
        self._executor = ThreadPoolExecutor(max_workers=size, thread_name_prefix=what)
        self._process = os.getpid()
        self._lock = Lock()
        self._client: C | None = None
        self._is_closed = False

    async def call(self, work: Callable[[C], R]) -> R:
        """What `work` makes of the client.

        Who is cancelled doesn't wait for it, and it ends by itself: good for what only reads.

        Raises:
            ForkedProcessError: If this process was forked off the one that made this.
            RuntimeError: If it is closed.
        """
        return await asyncio.wrap_future(self._begin(work))

    async def finish(self, work: Callable[[C], R]) -> R:
        """The same for what writes: who is cancelled waits until nothing is on its way any more, for ten seconds.

        Raises:
            ForkedProcessError: If this process was forked off the one that made this.
            RuntimeError: If it is closed.
        """
        begun = self._begin(work)
        ended = asyncio.wrap_future(begun)
        try:
            return await asyncio.shield(ended)
        except asyncio.CancelledError:
            if not begun.cancel():
                await asyncio.wait({ended}, timeout=_SECONDS_OF_GRACE)
            raise

    async def close(self) -> None:
        """Close the client, once the calls that run have ended; again, it does nothing."""
        if self._process == os.getpid():
            self._is_closed = True
            await asyncio.to_thread(self._end)

    def _begin(self, work: Callable[[C], R]) -> Future[R]:
        if self._process != os.getpid():
            raise ForkedProcessError(self._what)
        if self._is_closed:
            raise RuntimeError(f"{self._what} is closed; open another")
        run = partial(contextvars.copy_context().run, lambda: work(self._connected()))
        return self._executor.submit(run)

    def _connected(self) -> C:
        with self._lock:
            if self._client is None:
                self._client = self._connect()
            return self._client

    def _end(self) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            self._disconnect(client)
