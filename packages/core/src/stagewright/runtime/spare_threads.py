"""Daemon threads that are used again: starting one costs more than most of the calls that need one."""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

from stagewright.system import HomeProcess

__all__ = ["SpareThreads"]

_SPARE_FOR: Final = 1.0
Work = Callable[[], Callable[[], None]]
"""Something to do; it gives what tells of its end, which is called when its thread is free for the next."""


class SpareThreads:
    """Gives each piece of work a thread that does nothing else meanwhile: one that has become free, or else a new one.

    A free thread ends when there was nothing to do for a second.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[_Spare] = []
        self._home = HomeProcess()

    def start(self, work: Work, *, name: str) -> None:
        """Do something in a thread of this name."""
        if not self._home.is_here:
            # A forked child has none of its parent's threads, and perhaps a lock that one of them held.
            self._lock, self._free, self._home = threading.Lock(), [], HomeProcess()
        with self._lock:
            thread = self._free.pop() if self._free else None
        if thread is None:
            thread = _Spare(self._lock, self._free)
            thread.give(work, name)
            threading.Thread(target=thread.run, name=name, daemon=True).start()
        else:
            thread.give(work, name)


class _Spare:
    def __init__(self, lock: threading.Lock, free: "list[_Spare]") -> None:
        self._lock = lock
        self._free = free
        self._given: SimpleQueue[tuple[Work, str]] = SimpleQueue()

    def give(self, work: Work, name: str) -> None:
        self._given.put((work, name))

    def run(self) -> None:
        work: Work | None
        while True:
            try:
                work, name = self._given.get(timeout=_SPARE_FOR)
            except Empty:
                if self._leave():
                    return
                # Somebody has chosen it at this very moment.
                work, name = self._given.get()
            threading.current_thread().name = name
            tell = work()
            # A thread that is free keeps nothing of what it did.
            work = None
            with self._lock:
                self._free.append(self)
            # Last: what is done next, on hearing of it, finds this thread.
            tell()
            del tell

    def _leave(self) -> bool:
        """Take no more work; False if there is some already."""
        with self._lock:
            if self not in self._free:
                return False
            self._free.remove(self)
            return True
