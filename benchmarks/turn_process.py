"""Starts the process of a turn, waits for its figures no longer than it may take, and leaves none of it behind."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from benchmarks.figures import Figures, Request
from benchmarks.turn import MARK

from stagewright_test_support.servers.launch import last_lines, launch

__all__ = ["TurnFailedError", "take_turn"]

_ROOT = Path(__file__).resolve().parents[1]


def _own_path() -> list[str]:
    return [one for one in (os.environ.get("PYTHONPATH"),) if one]


class TurnFailedError(Exception):
    """A turn gave no figures; its text is the last thing that its process said."""


def take_turn(place: str, request: Request, *, log: Path, limit: float) -> Figures:
    """Have a function called in a process of its own.

    Args:
        place: `module:function`.
        request: What it is asked.
        log: Where what its process writes goes; what was there is lost.
        limit: How many seconds it may take.

    Raises:
        TurnFailedError: If it took longer, or ended without figures.
    """
    log.unlink(missing_ok=True)
    process = launch(
        [sys.executable, "-m", "benchmarks.turn", place, request.as_text()],
        log=log,
        account=None,
        farewell=signal.SIGKILL,
        environment=dict(os.environ) | {"PYTHONPATH": os.pathsep.join([str(_ROOT), *_own_path()])},
    )
    try:
        process.wait(limit)
    except subprocess.TimeoutExpired:
        raise TurnFailedError(f"it took more than {limit:g} s") from None
    finally:
        # Its session is its own, so that what it started ends with it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for line in reversed(log.read_text(encoding="utf-8", errors="replace").splitlines()):
        if line.startswith(MARK):
            return Figures.from_text(line.removeprefix(MARK))
    raise TurnFailedError(last_lines(log, 1).strip() or f"it ended with {process.returncode}, without a word")
