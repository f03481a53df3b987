"""SIGTERM and SIGINT: the first asks to stop, the second leaves at once."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Final, Self

__all__ = ["LEFT_WORK", "StopSignals", "leave_at_once"]

_WATCHED: Final = (signal.SIGTERM, signal.SIGINT)
_log: Final = logging.getLogger("stagewright.host")

LEFT_WORK: Final = 75
"""The exit code of a worker that left work to leases; `EX_TEMPFAIL` of sysexits."""


class StopSignals:
    """Takes the signals over while a `with` block lasts; outside of the main thread it does nothing.

    The handlers are Python's own, so that they are called also while the event loop is blocked by Python code. The
    process leaves at the second signal without any more clean-up: leases bring its jobs to others.
    """

    def __init__(self) -> None:
        self._received: signal.Signals | None = None
        self._told: Callable[[], None] | None = None
        self._before: dict[signal.Signals, Any] = {}  # Any: what signal.signal gives and takes

    @property
    def received(self) -> signal.Signals | None:
        """The first signal that came, or None."""
        return self._received

    def tell(self, callback: Callable[[], None] | None) -> None:
        """Have `callback` called at the first signal, at once if it has come; another call replaces it.

        It is called between any two lines of the main thread, so it may do next to nothing.
        """
        self._told = callback
        if self._received is not None and callback is not None:
            callback()

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for watched in _WATCHED:
                self._before[watched] = signal.signal(watched, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for watched, handler in self._before.items():
            signal.signal(watched, handler)
        self._before = {}

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._received is not None:
            leave_at_once(128 + number)
        self._received = signal.Signals(number)
        if self._told is not None:
            self._told()


def leave_at_once(code: int) -> None:
    """End the process here and now, whatever its threads do."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, RuntimeError):  # nobody reads it, or its writer was interrupted
            continue
    os._exit(code)
