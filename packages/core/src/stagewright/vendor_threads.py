"""Calls of a vendor's client that block, in threads of its own that keep no process from leaving."""

import asyncio
import contextvars
import os
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from threading import Condition, Lock, Thread
from typing import Any, Final, Generic, TypeVar

from stagewright.errors import ForkedProcessError

__all__ = ["VendorThreads"]

C = TypeVar("C")
R = TypeVar("R")

_SECONDS_OF_GRACE: Final = 10.0


class VendorThreads(Generic[C]):
    """One client, which is made at its first use, and as many threads as it has connections.

    It belongs to no event loop: callers in several of them share it. A process that ends waits for none of the threads,
    since a call of a server that hangs may take as long as it likes.

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
        self._threads = _DaemonThreads(what, size)
        self._process = os.getpid()
        self._lock = Lock()
        self._client: C | None = None
        self._ended: Future[None] | None = None
        # Nobody can call again once this is gone, so the threads go as well.
        weakref.finalize(self, self._threads.end).atexit = False

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
        """Close the client, once the calls that run have ended; it waits ten seconds for that.

        Calls that go on longer are left to themselves, and the client is closed behind the last.
        """
        if self._process != os.getpid():
            return
        if self._ended is None:
            self._threads.end()
            self._ended = Future()
            Thread(target=self._end, args=(self._ended,), name=f"{self._what} closes", daemon=True).start()
        ended = asyncio.wrap_future(self._ended)
        done, _ = await asyncio.wait({ended}, timeout=_SECONDS_OF_GRACE)
        for each in done:
            each.result()

    def _begin(self, work: Callable[[C], R]) -> Future[R]:
        if self._process != os.getpid():
            raise ForkedProcessError(self._what)
        run = partial(contextvars.copy_context().run, lambda: work(self._connected()))
        return self._threads.submit(run)

    def _connected(self) -> C:
        with self._lock:
            if self._client is None:
                self._client = self._connect()
            return self._client

    def _end(self, ended: Future[None]) -> None:
        try:
            self._threads.join()
            with self._lock:
                client, self._client = self._client, None
            if client is not None:
                self._disconnect(client)
        except BaseException as error:  # whatever it is, who closes is to see it
            ended.set_exception(error)
        else:
            ended.set_result(None)


class _DaemonThreads:
    """As many threads as are needed, up to a number; those of `concurrent.futures` are joined when a process ends."""

    def __init__(self, name: str, size: int) -> None:
        self._name = name
        self._size = size
        self._process = os.getpid()
        self._changed = Condition()
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()  # Any: of any call
        self._threads: list[Thread] = []
        self._idle = 0
        self._is_ended = False

    def submit(self, run: Callable[[], R]) -> Future[R]:
        """Run it in a thread, once one is free."""
        future: Future[R] = Future()
        with self._changed:
            if self._is_ended:
                raise RuntimeError(f"{self._name} is closed; open another")
            if self._idle <= len(self._waiting) and len(self._threads) < self._size:
                name = f"{self._name}_{len(self._threads)}"
                thread = Thread(target=self._work, name=name, daemon=True)
                thread.start()
                self._threads.append(thread)
            self._waiting.append((future, run))
            self._changed.notify()
        return future

    def end(self) -> None:
        """Begin nothing more; what waits is cancelled, and what runs goes on."""
        if self._process != os.getpid():
            return  # The lock may be held for ever by a thread that wasn't forked along.
        with self._changed:
            self._is_ended = True
            while self._waiting:
                future, _ = self._waiting.popleft()
                future.cancel()
            self._changed.notify_all()

    def join(self) -> None:
        """Wait for what runs."""
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (taken := self._take()) is not None:
            future, run = taken
            if future.set_running_or_notify_cancel():
                try:
                    result = run()
                except BaseException as error:  # whatever it raises is the caller's to see
                    future.set_exception(error)
                else:
                    future.set_result(result)
                    del result
            # A thread that waits for its next call keeps nothing of its last.
            del taken, future, run

    def _take(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        with self._changed:
            while not self._waiting:
                if self._is_ended:
                    return None
                self._idle += 1
                self._changed.wait()
                self._idle -= 1
            return self._waiting.popleft()
