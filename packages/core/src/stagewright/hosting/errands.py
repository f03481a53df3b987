"""Work that a coroutine of the kernel's thread has done in the thread of the caller, who waits for it there."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, TypeVar

__all__ = ["Errands"]

R = TypeVar("R")


class Errands:
    """A `CallersThread`: the thread that calls `serve`, for as long as that goes on.

    It needs no event loop, and doesn't mind one that runs.
    """

    def __init__(self) -> None:
        self._errands: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._task: asyncio.Task[Any] | None = None
        self._interruption: BaseException | None = None

    @contextmanager
    def asked_for(self) -> Iterator[None]:
        """Around all that a coroutine asks for; `serve` goes on until its end."""
        self._task = asyncio.current_task()
        try:
            if self._interruption is not None:
                raise asyncio.CancelledError
            yield
        finally:
            self._errands.put(None)

    async def do(self, work: Callable[[], R]) -> R:
        """Do something in the thread that serves; what it raises is raised here."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[R] = loop.create_future()

        def errand() -> None:
            # Nobody would undo what is done for a coroutine that was told to stop meanwhile.
            if done.cancelled():
                return
            try:
                result = work()
            except Exception as error:
                loop.call_soon_threadsafe(_fail, done, error)
            except BaseException as interruption:
                # It is the caller's, and would end the kernel's thread.
                self._interruption = interruption
                loop.call_soon_threadsafe(done.cancel)
            else:
                loop.call_soon_threadsafe(_answer, done, result)

        self._errands.put(errand)
        return await done

    def serve(self, waiting: "Future[R]") -> R:
        """Run errands until the coroutine has ended; an interrupted caller goes on until that has cleaned up."""
        while True:
            try:
                errand = self._errands.get()
                if errand is None:
                    break
                errand()
            except BaseException as interruption:
                self._interruption = interruption
                if self._task is not None:
                    self._task.get_loop().call_soon_threadsafe(self._task.cancel)
        if self._interruption is not None:
            raise self._interruption
        return waiting.result()


def _answer(done: "asyncio.Future[R]", result: R) -> None:
    if not done.done():
        done.set_result(result)


def _fail(done: "asyncio.Future[Any]", error: Exception) -> None:
    if not done.done():
        done.set_exception(error)
