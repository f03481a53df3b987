"""Rows that are changed and answered with: one statement where an update can answer, else a few under their locks."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final, TypeAlias

from sqlalchemy import Column, ColumnElement, Executable, Select, Update, bindparam, select, update

from stagewright_persistence_sqlalchemy.statements.paths import PRIMARY, along

__all__ = ["Changes", "Taking", "taking_chosen", "taking_matching"]

_TAKEN: Final = "taken_keys"

Changes: TypeAlias = Sequence[tuple[Column[Any], Any]]
"""New values, in the order in which MariaDB evaluates them: each sees those before it as they are then."""


class Taking:
    """A change of rows, and what is told of them afterwards.

    Args:
        at_once: The one statement, for databases whose updates answer.
        chosen: The keys of the rows, locked.
        key: The column that tells the rows from each other.
        changes: What becomes of them.
        told: The columns of the answer.
        candidates: The keys of rows that may be taken, not locked; None where the rows are named.
        still: Whether a candidate can still be taken.
    """

    def __init__(
        self,
        at_once: Executable,
        chosen: Select[Any],
        key: Column[Any],
        changes: Changes,
        told: Sequence[ColumnElement[Any]],
        candidates: Executable | None = None,
        still: Sequence[ColumnElement[bool]] = (),
    ) -> None:
        self.candidates: Final = candidates
        self._still = still
        self.at_once: Final = at_once
        self.chosen: Final = chosen
        self._key = key
        self._changes = changes
        self._told = told

    @cached_property
    def chosen_candidates(self) -> Select[Any]:
        """The keys of those candidates that can still be taken and that nobody holds, locked by their keys alone."""
        still = select(self._key).where(self._is_taken, *self._still).with_for_update(skip_locked=True)
        return along(still, self._key.table, PRIMARY)

    @cached_property
    def change(self) -> Update:
        """The change of what was chosen."""
        return _changed(self._key, self._changes).where(self._is_taken)

    @cached_property
    def told(self) -> Select[Any] | None:
        """What is told of them; None where that is what was chosen."""
        if len(self._told) == 1 and self._told[0] is self._key:
            return None
        return select(*self._told).where(self._is_taken)

    def keys(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The parameter of what is told of chosen rows."""
        return {_TAKEN: [row[self._key.name] for row in rows]}

    def changing(self, given: Mapping[str, Any], keys: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of the change; SQLAlchemy would take what isn't one of them for new values."""
        return {name: value for name, value in given.items() if name in self._names} | dict(keys)

    @property
    def _is_taken(self) -> ColumnElement[bool]:
        return self._key.in_(bindparam(_TAKEN, expanding=True, type_=self._key.type))

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self.change.compile().params)


def taking_chosen(
    chosen: Select[Any],
    key: Column[Any],
    changes: Changes,
    told: Sequence[ColumnElement[Any]],
    candidates: Select[Any] | None = None,
) -> Taking:
    """Taking the rows whose keys a locking read chooses.

    `candidates` is that read without its locks. With it, a transaction of MariaDB's that may be under REPEATABLE READ
    locks no more than what it takes: there a locking read of a range keeps others from inserting rows into it.
    """
    # A common table expression is evaluated once; as a plain subquery the planner may evaluate it row by row.
    taken = chosen.cte("taken")
    at_once = _changed(key, changes).where(key.in_(select(taken.c[key.name]))).returning(*told)
    still = () if candidates is None or candidates.whereclause is None else (candidates.whereclause,)
    return Taking(at_once, chosen, key, changes, told, candidates, still)


def taking_matching(
    matching: Sequence[ColumnElement[bool]], key: Column[Any], changes: Changes, told: Sequence[Column[Any]]
) -> Taking:
    """Taking the rows that fit, of those that are named by their primary key; who holds one is waited for."""
    at_once = _changed(key, changes).where(*matching).returning(*told)
    chosen = select(key).where(*matching).with_for_update()
    return Taking(at_once, along(chosen, key.table, PRIMARY), key, changes, told)


def _changed(key: Column[Any], changes: Changes) -> Update:
    return update(key.table).ordered_values(*changes)
