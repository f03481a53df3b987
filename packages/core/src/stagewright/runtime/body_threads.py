"""Threads for plain `def` functions: one each while it runs, so that they never wait for one another or for a pool."""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Generic, TypeVar

from stagewright.runtime.fork_guard import ends_in_this_process
from stagewright.runtime.spare_threads import SpareThreads

__all__ = ["DEFAULT_CAP", "BodyRaisedError", "BodyThread", "BodyThreads"]

R = TypeVar("R")

DEFAULT_CAP: Final = 32
"""How many abandoned threads a process bears before it should take no more work."""


class BodyRaisedError(RuntimeError):
    """A body raised something that an event loop takes for its own, such as `StopIteration` or `SystemExit`.

    Attributes:
        error: What it raised.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"the body raised {type(error).__name__}")
        self.error = error


class BodyThreads:
    """Calls functions in daemon threads and counts those that nobody waits for any more.

    Python can't end a thread: when the task that awaits one is cancelled, or times out, the thread goes on by itself,
    abandoned until its function returns. What that returns or raises then is dropped, and being a daemon the thread
    doesn't keep the process alive.

    Args:
        cap: How many abandoned threads are borne before `is_full`.
    """

    def __init__(self, cap: int = DEFAULT_CAP) -> None:
        self.cap = cap
        self._lock = threading.Lock()
        self._abandoned = 0
        self._threads = SpareThreads()

    @property
    def abandoned(self) -> int:
        """How many threads go on that nobody waits for."""
        return self._abandoned

    @property
    def is_full(self) -> bool:
        """Whether there are so many that no more work should be taken."""
        return self._abandoned >= self.cap

    def start(self, function: Callable[[], R], *, name: str) -> "BodyThread[R]":
        """Run a blocking function in a thread that runs nothing else meanwhile, with the caller's context variables."""
        thread = BodyThread(function, self._lock, self._count)
        thread.start(self._threads, name)
        return thread

    async def run(self, function: Callable[[], R], *, name: str) -> R:
        """Run a blocking function as `start` does, and wait for it.

        Raises:
            BodyRaisedError: If the function raised something that is no `Exception`, or `StopIteration`.
        """
        return await self.start(function, name=name).result()

    def _count(self, difference: int) -> None:
        self._abandoned += difference


class BodyThread(Generic[R]):
    """One function in its thread; made by `BodyThreads`.

    Attributes:
        is_finished: Whether the function has returned or raised.
    """

    def __init__(self, function: Callable[[], R], lock: threading.Lock, count: Callable[[int], None]) -> None:
        self.is_finished = False
        self._function = function
        self._lock = lock
        self._count = count
        self._is_abandoned = False
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[R] = self._loop.create_future()

    def start(self, threads: SpareThreads, name: str) -> None:
        """Begin."""
        threads.start(partial(self._work, contextvars.copy_context(), name), name=name)

    async def result(self) -> R:
        """Wait for what the function returns, or raise what it raises; cancelled, leave it to itself.

        Raises:
            BodyRaisedError: If the function raised something that is no `Exception`, or `StopIteration`.
        """
        try:
            return await asyncio.shield(self._done)
        except asyncio.CancelledError:
            with self._lock:
                if not self.is_finished:
                    self._is_abandoned = True
                    self._count(1)
            self._done.add_done_callback(_retrieve)
            raise

    def _work(self, context: contextvars.Context, name: str) -> Callable[[], None]:
        """Call the function; what is given back tells of its end."""
        settle: Callable[[], None]
        try:
            with ends_in_this_process(f"the function of thread {name!r}"):
                result = context.run(self._function)
        except BaseException as error:  # whatever the function raises is the caller's to see
            settle = partial(self._done.set_exception, _raisable(error))
        else:
            settle = partial(self._done.set_result, result)
        with self._lock:
            self.is_finished = True
            if self._is_abandoned:
                self._count(-1)
        return partial(_tell, self._loop, self._done, settle)


def _tell(loop: asyncio.AbstractEventLoop, done: "asyncio.Future[Any]", settle: Callable[[], None]) -> None:
    """Settle a function's future on its loop, where it is still wanted."""

    def settle_if_wanted() -> None:
        if not done.done():
            settle()

    # Once the loop has ended, nobody waits for the function any more.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(settle_if_wanted)


def _retrieve(done: "asyncio.Future[Any]") -> None:  # Any: of any function
    if not done.cancelled():
        done.exception()


def _raisable(error: BaseException) -> BaseException:
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    wrapped = BodyRaisedError(error)
    wrapped.__cause__ = error
    return wrapped
