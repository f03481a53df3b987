"""In-memory databases that many processes use: what a process held when it ended is given back."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from stagewright.memory import InMemoryDatabase
from stagewright.memory.locks import LockHolder, LockKey, LockTable, Mutex
from stagewright.memory.tables import Key, Table
from stagewright.ports import Clock
from stagewright_simulation.loop import CURRENT, Actor

__all__ = ["SimDatabase", "watch"]

_PRUNE: Final = 64
Reach: TypeAlias = Callable[[str, str], Awaitable[None]]


class _Locks(LockTable):
    """Locks whose holders are known by the process that they belong to."""

    def __init__(self, mutex: Mutex) -> None:
        super().__init__(mutex)
        self._guard = mutex
        self._of: dict[Actor, list[LockHolder]] = {}

    def try_acquire(self, holder: LockHolder, key: LockKey) -> bool:
        self._note(holder)
        return super().try_acquire(holder, key)

    async def acquire(self, holder: LockHolder, key: LockKey) -> None:
        self._note(holder)
        await super().acquire(holder, key)

    def drop(self, actor: Actor) -> None:
        """Give back what a process held, and let it wait for nothing, as a database does when a connection ends."""
        with self._guard:
            for holder in self._of.pop(actor, ()):
                for wait in list(holder.waits):
                    self._withdraw(wait)
                self.release(holder, list(holder.held))

    def _note(self, holder: LockHolder) -> None:
        actor = CURRENT.get()
        if actor is None:
            return
        holders = self._of.setdefault(actor, [])
        if holders and holders[-1] is holder:
            return
        if len(holders) >= _PRUNE:
            holders[:] = [one for one in holders if one.held or one.waits]
        holders.append(holder)


class SimDatabase(InMemoryDatabase):
    """A database whose every call is a moment at which something may happen to the caller.

    Args:
        name: What traces call it.
        clock: By which leases are stamped.
        reach: Called at each moment with the database's name and the moment's.
    """

    def __init__(self, name: str, clock: Clock, reach: Reach) -> None:
        super().__init__(clock)
        self.name = name
        self._reach = reach
        self._sim_locks = _Locks(self.mutex)
        self.locks = self._sim_locks

    async def pause(self, moment: str) -> None:
        await self._reach(self.name, moment)

    def disconnect(self, actor: Actor) -> None:
        """Roll back what a process that has ended had open."""
        self._sim_locks.drop(actor)


def watch(table: "Table[Any]", seen: Callable[[Any, Any], None]) -> None:
    """Call `seen(before, after)` for each row that a commit writes; None is a row that isn't there."""
    write = table.write

    def watched(key: Key, row: Any) -> None:
        before = table.get(key)
        write(key, row)
        seen(before, row)

    table.write = watched  # type: ignore[method-assign]  # one table's writes are watched, not those of its class
