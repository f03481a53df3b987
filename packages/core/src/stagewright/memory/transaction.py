"""One transaction: what it has written, what it holds, and what becomes of both."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from stagewright.errors import StagewrightError, TransientError
from stagewright.memory.database import InMemoryDatabase
from stagewright.memory.locks import LockHolder, LockKey
from stagewright.memory.tables import Changes, Key, Table

__all__ = ["Savepoint", "Transaction"]

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Savepoint:
    """What a transaction had written and locked at some moment."""

    changes: dict[str, Changes[Any]]  # Any: as many row types as tables
    held: frozenset[LockKey]
    notifies: bool
    failure: BaseException | None


class Transaction:
    """A transaction on an in-memory database, at READ COMMITTED.

    Reads see the latest committed rows and its own writes over them. Its writes reach the tables together at commit.
    Whoever writes a row locks it first, and only then reads what the write depends on.
    """

    def __init__(self, database: InMemoryDatabase) -> None:
        self.database = database
        self._changes: dict[str, Changes[Any]] = {}  # Any: as many row types as tables
        self._locks = LockHolder()
        self._notifies = False
        self._failure: BaseException | None = None
        self._ended = False

    # Reading and writing

    def get(self, table: Table[R], key: Key) -> R | None:
        """The row with that key, or None."""
        return self._changes_of(table).get(key)

    def where(self, table: Table[R], index: str, value: Key) -> list[R]:
        """The rows that an index has under a value."""
        with self.database.mutex:
            return self._changes_of(table).where(index, value)

    def first(self, table: Table[R], index: str, value: Key) -> R | None:
        """The row that a unique index has under a value, or None."""
        return next(iter(self.where(table, index, value)), None)

    def all(self, table: Table[R]) -> list[R]:
        """All rows of a table."""
        with self.database.mutex:
            return self._changes_of(table).all()

    def put(self, table: Table[R], row: R) -> None:
        """Insert a row, or put it in the place of the one with its key."""
        self._changes_of(table).write(table.key(row), row)

    def delete(self, table: Table[R], key: Key) -> None:
        """Delete the row with that key."""
        self._changes_of(table).write(key, None)

    def notify(self) -> None:
        """Wake waiting hosts once this transaction has committed."""
        self._notifies = True

    # Locking

    async def lock_row(self, table: Table[R], key: Key, fits: Callable[[R], bool] | None = None) -> R | None:
        """Lock a row that is there, and read it as it is once locked.

        Args:
            table: The row's table.
            key: The row's key; a row that this transaction can't see isn't waited for.
            fits: Whether the row is still wanted, asked of the row as it is once locked; all are unless given.

        Returns:
            The row, locked; or None, with no lock taken, if it is gone or doesn't fit.
        """
        if self.get(table, key) is None:
            return None
        locked_here = await self.lock((table.name, key))
        row = self.get(table, key)
        if row is not None and (fits is None or fits(row)):
            return row
        if locked_here:
            self.unlock((table.name, key))
        return None

    async def lock(self, key: LockKey) -> bool:
        """Lock until the transaction ends, waiting while another one holds it; False if it was locked already."""
        if key in self._locks.held:
            return False
        await self.database.locks.acquire(self._locks, key)
        return True

    def try_lock(self, key: LockKey) -> bool:
        """Lock unless another transaction holds it; True if it is locked now."""
        return self.database.locks.try_acquire(self._locks, key)

    def holds(self, key: LockKey) -> bool:
        """Whether this transaction has the lock."""
        return key in self._locks.held

    def unlock(self, key: LockKey) -> None:
        """Give one lock back at once, under which nothing was written."""
        with self.database.mutex:
            self.database.locks.release(self._locks, (key,))

    def skip_locked(self, table: Table[R], keys: Iterable[Key], fits: Callable[[R], bool]) -> Iterator[R]:
        """Lock rows one by one as they are asked for, passing over those that another transaction holds.

        Args:
            table: The rows' table.
            keys: Candidates, in the order to be taken.
            fits: Whether a row is still wanted, asked of the row as it is once locked.
        """
        for key in keys:
            lock = (table.name, key)
            held_before = self.holds(lock)
            if not self.try_lock(lock):
                continue
            row = self.get(table, key)
            if row is not None and fits(row):
                yield row
            elif not held_before:
                self.unlock(lock)

    # Savepoints and the end

    def fail(self, error: BaseException) -> None:
        """Note that a call failed that leaves its transaction unusable; a commit then raises instead."""
        self._failure = self._failure or error

    def check_usable(self) -> None:
        """Refuse work after the end."""
        if self._ended:
            raise RuntimeError("this transaction has ended; open another one")

    def savepoint(self) -> Savepoint:
        """Remember what was written and locked so far."""
        changes = {name: changes.copy() for name, changes in self._changes.items()}
        return Savepoint(changes, frozenset(self._locks.held), self._notifies, self._failure)

    def release_savepoint(self, savepoint: Savepoint) -> None:
        """Keep what was done since; if a call among it failed, undo it and raise."""
        failure = self._failure
        if failure is not None and failure is not savepoint.failure:
            self.roll_back_to(savepoint)
            raise _spoiled(failure)

    def roll_back_to(self, savepoint: Savepoint) -> None:
        """Undo what was written since, and give back what was locked since."""
        self._changes = savepoint.changes
        self._notifies = savepoint.notifies
        self._failure = savepoint.failure
        self.database.mutex.run(lambda: self._release_all_but(savepoint.held))

    def commit(self) -> None:
        """Write everything at once and give the locks back; if a call failed, roll back and raise."""
        if self._failure is not None:
            self.roll_back()
            raise _spoiled(self._failure)
        self._ended = True
        with self.database.mutex:
            for changes in self._changes.values():
                changes.apply()
            self._release_all_but(frozenset())
        if self._notifies:
            self.database.work.send()

    def roll_back(self) -> None:
        """Drop everything and give the locks back."""
        self._ended = True
        self._changes.clear()
        self.database.mutex.run(lambda: self._release_all_but(frozenset()))

    @property
    def has_written(self) -> bool:
        """Whether a commit would change or announce anything."""
        return self._notifies or any(not changes.is_empty for changes in self._changes.values())

    def _release_all_but(self, kept: frozenset[LockKey]) -> None:
        self.database.locks.release(self._locks, [key for key in self._locks.held if key not in kept])

    def _changes_of(self, table: Table[R]) -> Changes[R]:
        changes = self._changes.get(table.name)
        if changes is None:
            changes = self._changes[table.name] = Changes(table)
        return changes


def _spoiled(failure: BaseException) -> BaseException:
    if isinstance(failure, StagewrightError):
        return failure
    error = TransientError(
        f"a call in the transaction was interrupted by {type(failure).__name__}; nothing is kept"
    )
    error.__cause__ = failure
    return error
