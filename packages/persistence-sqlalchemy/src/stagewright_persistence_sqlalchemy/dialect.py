"""What differs between databases, in one place."""

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Table, func
from sqlalchemy.dialects import postgresql, sqlite

from stagewright_persistence_sqlalchemy.column_types import Moment

__all__ = ["POSTGRESQL", "SQLITE", "DatabaseKind", "kind_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseKind:
    """What a kind of database can do.

    Attributes:
        name: SQLAlchemy's name of it.
        composes: Whether several writes fit into one statement, as data-modifying common table expressions.
        has_clock: Whether leases are stamped and compared on the database's own clock.
        notifies: Whether it can wake other processes.
        skips_locked: Whether readers can pass over locked rows; without it one writer at a time holds everything.
    """

    name: str
    composes: bool
    has_clock: bool
    notifies: bool
    skips_locked: bool

    def insert(self, table: Table) -> Any:  # Any: each dialect has an insert class of its own
        """An insert that knows ON CONFLICT."""
        return postgresql.insert(table) if self.name == "postgresql" else sqlite.insert(table)

    def now(self, given: ColumnElement[Any]) -> ColumnElement[Any]:
        """The time of a lease: the database's where it has a clock, else what the caller gives."""
        return func.clock_timestamp(type_=Moment) if self.has_clock else given


POSTGRESQL: Final = DatabaseKind(
    name="postgresql", composes=True, has_clock=True, notifies=True, skips_locked=True
)
SQLITE: Final = DatabaseKind(
    name="sqlite", composes=False, has_clock=False, notifies=False, skips_locked=False
)


def kind_of(dialect_name: str) -> DatabaseKind:
    """The kind of a database by SQLAlchemy's name of it.

    Raises:
        ValueError: If it is none that this package supports.
    """
    for kind in (POSTGRESQL, SQLITE):
        if kind.name == dialect_name:
            return kind
    raise ValueError(f"{dialect_name!r} is not supported; use postgresql or sqlite")
