"""Telling a running body to stop."""

import asyncio
import threading

from stagewright.definitions import AbortReason, AbortSignal
from stagewright.errors import StageAbortedError

__all__ = ["AbortSource", "LinkedAbort", "NeverAborted"]


class AbortSource:
    """A signal that is set once, from any thread, and waited for on any event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reason: AbortReason | None = None
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def is_set(self) -> bool:
        """Whether the body should stop."""
        return self._reason is not None

    @property
    def reason(self) -> AbortReason | None:
        """Why, or None while the signal isn't set."""
        return self._reason

    def set(self, reason: AbortReason) -> None:
        """Tell the body to stop; the first reason stays."""
        with self._lock:
            if self._reason is not None:
                return
            self._reason = reason
            waiting, self._waiting = self._waiting, []
        for told in waiting:
            loop = told.get_loop()
            if not loop.is_closed():
                loop.call_soon_threadsafe(_settle, told)

    def told(self) -> "asyncio.Future[None]":
        """A future of the running event loop that is done once the signal is set; who loses interest cancels it."""
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            if self._reason is None:
                self._waiting.append(told)
                return told
        told.set_result(None)
        return told

    async def wait(self) -> None:
        """Return once the signal is set."""
        told = self.told()
        try:
            await told
        finally:
            with self._lock:
                if told in self._waiting:
                    self._waiting.remove(told)

    def raise_if_set(self) -> None:
        """Raise `StageAbortedError` if the signal is set."""
        if self._reason is not None:
            raise StageAbortedError(self._reason)


def _settle(told: "asyncio.Future[None]") -> None:
    if not told.done():
        told.set_result(None)


class NeverAborted(AbortSource):
    """The signal of an execution that nobody can stop."""

    def set(self, reason: AbortReason) -> None:
        """Do nothing: whoever started this execution gave it no signal."""


class LinkedAbort(AbortSource):
    """A signal of its own that is also set while another one is."""

    def __init__(self, outer: AbortSignal) -> None:
        super().__init__()
        self._outer = outer

    @property
    def is_set(self) -> bool:
        """Whether the body should stop."""
        return super().is_set or self._outer.is_set

    @property
    def reason(self) -> AbortReason | None:
        """Why, or None while neither signal is set."""
        return super().reason or self._outer.reason

    async def wait(self) -> None:
        """Return once either signal is set."""
        waiting = [asyncio.ensure_future(super().wait()), asyncio.ensure_future(self._outer.wait())]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    def raise_if_set(self) -> None:
        """Raise `StageAbortedError` if either signal is set."""
        super().raise_if_set()
        self._outer.raise_if_set()
