"""Noticing that the event loop is blocked, from a thread that isn't, and naming who blocks it."""

import asyncio
import logging
import sys
import sysconfig
import threading
import time
from contextvars import Context
from pathlib import Path
from types import FrameType
from typing import Any, Final

from stagewright.hosting.job_execution import CURRENT_EXECUTION

__all__ = ["LoopWatch"]

_LOOK_EVERY: Final = 0.25
_PATIENCE: Final = 1.0
_STDLIB: Final = Path(sysconfig.get_paths()["stdlib"])
_SITE: Final = (Path(sysconfig.get_paths()["purelib"]), Path(sysconfig.get_paths()["platlib"]))
_OWN: Final = Path(__file__).resolve().parent
_log: Final = logging.getLogger("stagewright.host")


class LoopWatch:
    """Asks the running event loop for a sign of life, and warns when it doesn't come.

    The warning names the stage whose code blocks the loop and the line that it is at. A blocked loop keeps its leases;
    but nothing else of this process gets on meanwhile.

    Args:
        patience: After how many seconds a loop that doesn't answer counts as blocked.
    """

    def __init__(self, *, patience: float = _PATIENCE) -> None:
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._left = threading.Event()
        self._asked_at: float | None = None
        self._answered_at: float | None = None
        self._culprit: str | None = None
        self._longest = 0.0
        self._thread = threading.Thread(target=self._run, name="stagewright-loop-watch", daemon=True)

    @property
    def longest_block(self) -> float:
        """For how many seconds the loop was blocked at most."""
        return self._longest

    @property
    def blocked_for(self) -> float:
        """For how many seconds the loop has been blocked by now; 0 while it isn't."""
        asked_at, answered_at = self._asked_at, self._answered_at
        if asked_at is None or answered_at is not None:
            return 0.0
        waited = time.monotonic() - asked_at
        return waited if waited >= self._patience else 0.0

    @property
    def culprit(self) -> str | None:
        """Who was seen blocking the loop last."""
        return self._culprit

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; it is not waited for."""
        self._left.set()

    def _run(self) -> None:
        warned = False
        last = time.monotonic()
        while not self._left.wait(min(_LOOK_EVERY, self._patience / 2)):
            now = time.monotonic()
            if now - last > max(1.0, self._patience):
                # This thread didn't get on either: the whole process stood still, and nobody blocked the loop.
                self._asked_at = None
            last = now
            if self._asked_at is None or self._answered_at is not None:
                if warned and self._asked_at is not None and self._answered_at is not None:
                    self._report_end(self._answered_at - self._asked_at)
                warned = False
                if not self._ask(now):
                    return
            elif now - self._asked_at >= self._patience:
                if not self._look_who():
                    continue
                if not warned:
                    _log.warning(
                        "%s has blocked the event loop for %.1f s so far",
                        self._culprit or "something",
                        now - self._asked_at,
                    )
                warned = True

    def _look_who(self) -> bool:
        """Note who blocks the loop, unless it has let go by then: who comes next is nobody's culprit."""
        seen = self._who()
        if self._answered_at is not None:
            return False
        self._culprit = seen or self._culprit
        return True

    def _ask(self, now: float) -> bool:
        self._answered_at, self._asked_at = None, now
        try:
            self._loop.call_soon_threadsafe(self._answer, now)
        except RuntimeError:  # the loop has been closed
            return False
        return True

    def _answer(self, asked_at: float) -> None:
        if asked_at == self._asked_at:
            self._answered_at = time.monotonic()

    def _report_end(self, seconds: float) -> None:
        _log.warning(
            "%s blocked the event loop for %.1f s, and all other work of this process with it; make the stage a plain "
            "`def`, which runs in a thread of its own, or await what takes long",
            self._culprit or "something",
            seconds,
        )
        # Last: whoever sees the figure finds the warning in the log.
        self._longest = max(self._longest, seconds)

    def _who(self) -> str | None:
        """Whose code runs on the loop's thread at this moment, and where it is."""
        innermost = sys._current_frames().get(self._loop_thread)
        if innermost is None:
            return None
        execution, place = None, None
        frame: FrameType | None = innermost
        while frame is not None:
            if place is None and _is_of_the_application(frame):
                place = f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"
            if execution is None and frame.f_code.co_name == "_run" and "asyncio" in frame.f_code.co_filename:
                context: Any = getattr(frame.f_locals.get("self"), "_context", None)
                if isinstance(context, Context):
                    execution = context.get(CURRENT_EXECUTION, None)
            frame = frame.f_back
        place = place or f"{innermost.f_code.co_filename}:{innermost.f_lineno}"
        return f"code outside of any stage (at {place})" if execution is None else f"{execution} (at {place})"


def _is_of_the_application(frame: FrameType) -> bool:
    path = Path(frame.f_code.co_filename)
    if path.is_relative_to(_OWN) or any(path.is_relative_to(site) for site in _SITE):
        return False
    return not path.is_relative_to(_STDLIB)
