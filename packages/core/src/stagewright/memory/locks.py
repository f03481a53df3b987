"""Row locks: who holds them, who waits for them in which order, and which wait would never end."""

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from stagewright.errors import DeadlockError

__all__ = ["LockHolder", "LockKey", "LockTable", "Mutex"]

LockKey: TypeAlias = tuple[str, Hashable]
"""A table's name, or another word that sets these locks apart, and what is locked in it."""


class Mutex:
    """Guards the shared state of a database between threads; never held across an await.

    The garbage collector may close an abandoned transaction at any instruction, also in the thread that holds the
    mutex in the middle of a change. What such a transaction gives back goes through `run`, which then waits for the
    change to be whole.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._owner: int | None = None
        self._deferred: deque[Callable[[], None]] = deque()

    def __enter__(self) -> None:
        self._lock.acquire()
        self._owner = threading.get_ident()

    def __exit__(self, *_error: object) -> None:
        owner = self._owner
        while True:
            while self._deferred:
                self._deferred.popleft()()
            self._owner = None
            if not self._deferred:
                break
            self._owner = owner
        self._lock.release()

    def run(self, change: Callable[[], None]) -> None:
        """Make a change under the mutex, now or as soon as the change this thread is in the middle of is whole."""
        if self._owner == threading.get_ident():
            self._deferred.append(change)
        else:
            with self:
                change()


class LockHolder:
    """What one transaction holds, in the order it was locked, and what it waits for.

    It is made by the task whose transaction it is, and used by one task at a time.
    """

    __slots__ = ("_task", "held", "waits")

    def __init__(self) -> None:
        self.held: dict[LockKey, None] = {}
        self.waits: list[_Wait] = []
        task = _current_task()
        self._task = None if task is None else weakref.ref(task)

    def is_of_task(self, task: asyncio.Task[object] | None) -> bool:
        """Whether this is the transaction of that task."""
        return task is not None and self._task is not None and self._task() is task


@dataclass(eq=False, slots=True)
class _Wait:
    holder: LockHolder
    key: LockKey
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[None]
    granted: bool = False


class LockTable:
    """Exclusive locks by key. A lock that becomes free goes to whoever has waited for it longest."""

    def __init__(self, mutex: Mutex) -> None:
        self._mutex = mutex
        self._holders: dict[LockKey, LockHolder] = {}
        self._queues: dict[LockKey, list[_Wait]] = {}

    def try_acquire(self, holder: LockHolder, key: LockKey) -> bool:
        """Take a lock unless somebody else holds it; True if the holder has it now."""
        with self._mutex:
            return self._take(holder, key)

    async def acquire(self, holder: LockHolder, key: LockKey) -> None:
        """Take a lock, waiting while somebody else holds it.

        Raises:
            DeadlockError: If whoever holds it waits for this holder, directly or through others, or is another
                transaction of the task that asks.
        """
        with self._mutex:
            if self._take(holder, key):
                return
            wait = self._enqueue(holder, key)
        try:
            await wait.future
        except BaseException:
            self._mutex.run(lambda: self._withdraw(wait))
            raise

    def release(self, holder: LockHolder, keys: Iterable[LockKey]) -> None:
        """Give locks back; whoever waits for one of them has it from this moment. The mutex is the caller's."""
        for key in keys:
            if self._holders.get(key) is holder:
                del holder.held[key]
                self._pass_on(key)

    @property
    def is_idle(self) -> bool:
        """Whether nobody holds a lock or waits for one."""
        with self._mutex:
            return not self._holders and not self._queues

    def _take(self, holder: LockHolder, key: LockKey) -> bool:
        current = self._holders.setdefault(key, holder)
        if current is not holder:
            return False
        holder.held[key] = None
        return True

    def _enqueue(self, holder: LockHolder, key: LockKey) -> _Wait:
        if self._would_close_a_cycle(holder, key):
            table, row = key
            raise DeadlockError(
                f"the wait for the lock on {table} {row!r} would never end: its holder waits too"
            )
        loop = asyncio.get_running_loop()
        wait = _Wait(holder, key, loop, loop.create_future())
        self._queues.setdefault(key, []).append(wait)
        holder.waits.append(wait)
        return wait

    def _would_close_a_cycle(self, holder: LockHolder, key: LockKey) -> bool:
        task = asyncio.current_task()
        blockers = [self._holders[key], *(wait.holder for wait in self._queues.get(key, ()))]
        seen: set[int] = set()
        while blockers:
            blocker = blockers.pop()
            if blocker is holder or blocker.is_of_task(task):
                return True
            if id(blocker) in seen:
                continue
            seen.add(id(blocker))
            for wait in blocker.waits:
                blockers.append(self._holders[wait.key])
                queue = self._queues[wait.key]
                blockers.extend(ahead.holder for ahead in queue[: queue.index(wait)])
        return False

    def _pass_on(self, key: LockKey) -> None:
        del self._holders[key]
        queue = self._queues.get(key, [])
        while queue:
            wait = queue.pop(0)
            wait.holder.waits.remove(wait)
            try:
                wait.loop.call_soon_threadsafe(_resolve, wait.future)
            except RuntimeError:  # its loop is closed, so nobody is there to use the lock
                continue
            wait.granted = True
            self._take(wait.holder, key)
            break
        if not queue:
            self._queues.pop(key, None)

    def _withdraw(self, wait: _Wait) -> None:
        if wait.granted:
            self.release(wait.holder, (wait.key,))
        elif wait in wait.holder.waits:
            wait.holder.waits.remove(wait)
            queue = self._queues[wait.key]
            queue.remove(wait)
            if not queue:
                del self._queues[wait.key]


def _current_task() -> "asyncio.Task[object] | None":
    try:
        return asyncio.current_task()
    except RuntimeError:  # a thread in which no event loop runs: it can try a lock, and not wait for one
        return None


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
