"""How many more jobs of each group may be RUNNING, as one claim finds it."""

from stagewright.memory.locks import LockKey
from stagewright.memory.rows import JobRow
from stagewright.memory.tables import Table
from stagewright.memory.transaction import Transaction
from stagewright.status import Status

__all__ = ["GroupRooms"]


class GroupRooms:
    """The room in groups, each locked before its jobs are counted: two claims never count the same place as free.

    A group that another transaction claims from has none, and isn't waited for.

    Args:
        tx: The transaction that claims; it keeps the locks of the groups from which it takes.
        jobs: The jobs.
        cap: How many of one group may be RUNNING.
    """

    def __init__(self, tx: Transaction, jobs: Table[JobRow], cap: int) -> None:
        self._tx = tx
        self._jobs = jobs
        self._cap = cap
        self._rooms: dict[str | None, int] = {}
        self._idle_locks: dict[str | None, LockKey] = {}

    def has_room(self, group: str | None) -> bool:
        """Whether one more job of this group may be taken now."""
        if group not in self._rooms:
            self._rooms[group] = self._look(group)
        return self._rooms[group] > 0

    def take(self, group: str | None) -> None:
        """Count one more job, which was taken."""
        self._rooms[group] -= 1
        self._idle_locks.pop(group, None)

    def leave(self) -> None:
        """Let others claim from the groups from which nothing was taken."""
        while self._idle_locks:
            self._tx.unlock(self._idle_locks.popitem()[1])

    def _look(self, group: str | None) -> int:
        lock: LockKey = ("groups of jobs", group)
        held_before = self._tx.holds(lock)
        if not self._tx.try_lock(lock):
            return 0
        if not held_before:
            self._idle_locks[group] = lock
        return self._cap - self._running(group)

    def _running(self, group: str | None) -> int:
        return len(self._tx.where(self._jobs, "group", (Status.RUNNING, group)))
