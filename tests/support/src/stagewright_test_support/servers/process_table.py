"""Looks at and ends the processes of a server, children first to last."""

import os
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

__all__ = ["command_line", "descendants", "end_family", "is_alive", "kill_family", "wait_until_gone"]

_PROC = Path("/proc")


def is_alive(pid: int) -> bool:
    """Tells whether the process runs; a dead one that nobody has asked after doesn't."""
    if _has_proc():
        status = _proc_status(pid)
        return status is not None and status[1] not in "ZX"
    state = _ps("-o", "stat=", "-p", str(pid)).strip()
    return bool(state) and not state.startswith("Z")


def command_line(pid: int) -> str:
    """The program and its arguments with spaces between; empty where there is no such process."""
    if _has_proc():
        try:
            return (_PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
        except OSError:
            return ""
    return _ps("-ww", "-o", "command=", "-p", str(pid)).strip()


def descendants(pid: int) -> list[int]:
    """The living processes that come from this one, itself left out."""
    children: dict[int, list[int]] = {}
    for child, parent in _parents():
        children.setdefault(parent, []).append(child)
    found: list[int] = []
    waiting = [pid]
    while waiting:
        offspring = children.get(waiting.pop(), [])
        found.extend(offspring)
        waiting.extend(offspring)
    return [process for process in found if is_alive(process)]


def end_family(pid: int, farewell: signal.Signals, seconds: float = 2.0) -> None:
    """Asks a process to end with `farewell`, and kills what is left of it and its children afterwards.

    Raises:
        TimeoutError: One was still there ten seconds after SIGKILL.
    """
    family = [pid, *descendants(pid)]
    _send(pid, farewell)
    _send(pid, signal.SIGCONT)
    try:
        wait_until_gone(family, seconds)
    except TimeoutError:
        for process in filter(is_alive, family):
            kill_family(process)


def kill_family(pid: int) -> None:
    """Ends a process and all that come from it with SIGKILL, and returns when none is left.

    Raises:
        TimeoutError: One was still there after ten seconds.
    """
    # Stopped, it starts no further child while they are counted.
    _send(pid, signal.SIGSTOP)
    family = [pid, *descendants(pid)]
    for process in family:
        _send(process, signal.SIGKILL)
    wait_until_gone(family)


def wait_until_gone(processes: Iterable[int], seconds: float = 10.0) -> None:
    """Returns when none of the processes runs any more.

    Raises:
        TimeoutError: One still did after `seconds`.
    """
    deadline = time.monotonic() + seconds
    left = list(processes)
    while left := [process for process in left if is_alive(process)]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {left} are still there after {seconds:g} s")
        time.sleep(0.005)


def _send(pid: int, what: signal.Signals) -> None:
    try:
        os.kill(pid, what)
    except ProcessLookupError:
        return


def _has_proc() -> bool:
    return (_PROC / "self" / "stat").exists()


def _parents() -> list[tuple[int, int]]:
    """Every process with its parent."""
    if not _has_proc():
        rows = (line.split() for line in _ps("-A", "-o", "pid=,ppid=").splitlines())
        return [(int(pid), int(parent)) for pid, parent in rows]
    numbers = [int(path.name) for path in _PROC.iterdir() if path.name.isdecimal()]
    statuses = ((number, _proc_status(number)) for number in numbers)
    return [(number, status[0]) for number, status in statuses if status is not None]


def _proc_status(pid: int) -> tuple[int, str] | None:
    """The parent and the letter of the state."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The program's name stands in parentheses and may hold any sign.
    state, parent = text.rpartition(")")[2].split()[:2]
    return int(parent), state


def _ps(*arguments: str) -> str:
    return subprocess.run(["ps", *arguments], capture_output=True, text=True, check=False).stdout
