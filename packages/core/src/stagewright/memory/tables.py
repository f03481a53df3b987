"""Tables of immutable rows with their indexes, and the changes of one transaction to such a table."""

from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeAlias, TypeVar

__all__ = ["Changes", "Key", "Table"]

R = TypeVar("R")
Key: TypeAlias = Hashable


class Table(Generic[R]):
    """The committed rows of one table; rows are immutable and are replaced as a whole.

    Args:
        name: The table's name.
        key: The primary key of a row.
        indexes: By name, what else rows are looked up by.
    """

    def __init__(
        self, name: str, key: Callable[[R], Key], indexes: Mapping[str, Callable[[R], Key]] | None = None
    ) -> None:
        self.name = name
        self.key = key
        self.index_keys = dict(indexes or {})
        self._rows: dict[Key, R] = {}
        self._indexes: dict[str, dict[Key, dict[Key, None]]] = {index: {} for index in self.index_keys}

    def get(self, key: Key) -> R | None:
        """The row with that key, or None."""
        return self._rows.get(key)

    def all(self) -> dict[Key, R]:
        """All rows by key."""
        return dict(self._rows)

    def where(self, index: str, value: Key) -> dict[Key, R]:
        """By key, the rows that an index has under a value."""
        return {key: self._rows[key] for key in self._indexes[index].get(value, ())}

    def write(self, key: Key, row: R | None) -> None:
        """Put a row in the place of the one with that key; None deletes it."""
        before = self._rows.get(key)
        if row is not None:
            self._rows[key] = row
        elif before is not None:
            del self._rows[key]
        for index, index_key in self.index_keys.items():
            old = None if before is None else (index_key(before),)
            new = None if row is None else (index_key(row),)
            if old != new:
                self._move(self._indexes[index], key, old, new)

    @staticmethod
    def _move(
        entries: dict[Key, dict[Key, None]], key: Key, old: tuple[Key] | None, new: tuple[Key] | None
    ) -> None:
        if old is not None:
            keys = entries[old[0]]
            del keys[key]
            if not keys:
                del entries[old[0]]
        if new is not None:
            entries.setdefault(new[0], {})[key] = None


class Changes(Generic[R]):
    """What one transaction has written to a table and nobody else sees; None stands for a deleted row."""

    def __init__(self, table: Table[R], rows: Mapping[Key, R | None] | None = None) -> None:
        self._table = table
        self._rows = dict(rows or {})

    def get(self, key: Key) -> R | None:
        """The row as the transaction sees it, or None."""
        return self._rows[key] if key in self._rows else self._table.get(key)

    def all(self) -> list[R]:
        """All rows as the transaction sees them."""
        return self._over(self._table.all(), lambda _row: True)

    def where(self, index: str, value: Key) -> list[R]:
        """The rows that an index has under a value, as the transaction sees them."""
        index_key = self._table.index_keys[index]
        return self._over(self._table.where(index, value), lambda row: index_key(row) == value)

    def write(self, key: Key, row: R | None) -> None:
        """Change one row."""
        self._rows[key] = row

    @property
    def is_empty(self) -> bool:
        """Whether nothing was written."""
        return not self._rows

    def copy(self) -> "Changes[R]":
        """The changes so far, for a savepoint."""
        return Changes(self._table, self._rows)

    def apply(self) -> None:
        """Write the changes to the table."""
        for key, row in self._rows.items():
            self._table.write(key, row)

    def _over(self, committed: dict[Key, R], fits: Callable[[R], bool]) -> list[R]:
        for key, row in self._rows.items():
            if row is not None and fits(row):
                committed[key] = row
            else:
                committed.pop(key, None)
        return list(committed.values())
