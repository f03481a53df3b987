"""How a thread uses what lives on an event loop."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["LoopPortal"]

R = TypeVar("R")


class LoopPortal:
    """Lets a thread await something on the event loop that started it; it is made on that loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = threading.get_ident()

    def call(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine on the loop and wait for its result.

        Raises:
            RuntimeError: If the loop has ended, or this is called on the loop's own thread.
        """
        if self._loop.is_closed():
            work.close()
            raise RuntimeError(
                "the event loop that started this stage has ended; its context can't be used any more"
            )
        if threading.get_ident() == self._thread:
            work.close()
            raise RuntimeError(
                "a blocking context can't be used on the event loop's own thread; it would wait forever"
            )
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
