"""Leaving on time, also when the event loop or the thread of a body doesn't let go."""

import logging
import threading
from typing import Final

from stagewright_host_node.signals import leave_at_once

__all__ = ["ExitDeadline"]

_log: Final = logging.getLogger("stagewright.host")


class ExitDeadline:
    """A thread that ends the process so many seconds after it was armed, unless it is called off.

    It waits from the beginning, since a signal handler, which arms it, must not start threads.

    Args:
        seconds: How long after arming.
        code: The exit code.
        why: What is logged then; nothing if empty.
    """

    def __init__(self, seconds: float, code: int, why: str = "") -> None:
        self._seconds = seconds
        self._code = code
        self._why = why
        self._armed = threading.Event()
        self._called_off = threading.Event()
        threading.Thread(target=self._wait, name="stagewright-exit-deadline", daemon=True).start()

    def arm(self) -> None:
        """The time runs from now on."""
        self._armed.set()

    def call_off(self) -> None:
        """Everything has ended by itself."""
        self._called_off.set()
        self._armed.set()

    def _wait(self) -> None:
        self._armed.wait()
        if self._called_off.wait(self._seconds):
            return
        if self._why:
            _log.critical("%s", self._why)
        leave_at_once(self._code)
