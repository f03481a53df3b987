"""What differs between databases, in one place."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Table,
    bindparam,
    case,
    cast,
    func,
    literal_column,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite

from stagewright_persistence_sqlalchemy.column_types import Moment

__all__ = ["MARIADB", "POSTGRESQL", "SKIPPED", "SQLITE", "DatabaseKind", "kind_of"]

SKIPPED: Final = 2**63 - 1
"""What MariaDB gives as the last inserted id where a row stood in the way of an insert and stayed."""

_MICROSECOND: Final[ColumnElement[Any]] = literal_column("interval '1 microsecond'")
_UNIT: Final[ColumnElement[Any]] = literal_column("MICROSECOND")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseKind:
    """What a kind of database can do.

    Attributes:
        name: SQLAlchemy's name of it.
        composes: Whether several writes fit into one statement, as data-modifying common table expressions.
        has_clock: Whether leases are stamped and compared on the database's own clock.
        notifies: Whether it can wake other processes.
        skips_locked: Whether readers can pass over locked rows; without it one writer at a time holds everything.
        returns_changes: Whether an update answers with the rows that it has changed.
        locks_joined: Whether one table of a join can be locked alone.
        keeps_savepoints: Whether a transaction that a deadlock was found in can go back to a savepoint.
        locks_entries: Whether the entry of an index is locked apart from its row: who comes to a row by one index, and
            who has the row and changes it in that index, would wait for each other.
        ranges_follow_rows: Whether which range of an index is read can depend on a row of another part of a statement.
        rolls_ddl_back: Whether what makes and changes tables is a part of the transaction.
    """

    name: str
    composes: bool
    has_clock: bool
    notifies: bool
    skips_locked: bool
    returns_changes: bool = True
    locks_joined: bool = True
    keeps_savepoints: bool = True
    locks_entries: bool = False
    ranges_follow_rows: bool = True
    rolls_ddl_back: bool = True

    @property
    def counts_at_the_end(self) -> bool:
        """Whether a notification is a row that all writers share, and so has to be the last that they lock."""
        return self.skips_locked and not self.notifies

    def insert(self, table: Table) -> Any:  # Any: each dialect has an insert class of its own
        """An insert that knows what to do where its row exists."""
        match self.name:
            case "postgresql":
                return postgresql.insert(table)
            case "mariadb":
                return mysql.insert(table)
            case _:
                return sqlite.insert(table)

    def skipping(self, insert: Any) -> Any:
        """That insert, but for rows that stand there already; never an error that would spoil the transaction."""
        if self.name != "mariadb":
            return insert.on_conflict_do_nothing()
        # `INSERT IGNORE` would ignore every other error too, and the count of rows is 1 in either case.
        told = func.last_insert_id(literal_column(str(SKIPPED))) > literal_column("0")
        name = _first_text(insert.table)
        same = insert.table.c[name]
        return insert.on_duplicate_key_update({name: case((told, same), else_=same)})

    def replacing(
        self, insert: Any, keys: Sequence[str], changed: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    ) -> Any:
        """That insert; over a row that has these keys is written what `changed` makes of the given columns."""
        if self.name == "mariadb":
            return insert.on_duplicate_key_update(dict(changed(insert.inserted)))
        return insert.on_conflict_do_update(index_elements=list(keys), set_=changed(insert.excluded))

    def now(self, given: ColumnElement[Any]) -> ColumnElement[Any]:
        """The time of a lease: the database's where it has a clock, else what the caller gives."""
        if not self.has_clock:
            return given
        if self.name == "mariadb":
            return _utc()
        return func.clock_timestamp(type_=Moment)

    def before(self) -> ColumnElement[Any]:
        """The moment that lies the parameter `age_us` before now, on the clock that stamps leases."""
        if not self.has_clock:
            return bindparam("before", type_=Moment())
        age = bindparam("age_us", type_=BigInteger())
        if self.name == "mariadb":
            return func.timestampadd(_UNIT, -age, _utc(), type_=Moment)
        # The statement's own time, unlike the running clock, lets an index be used.
        return func.statement_timestamp(type_=Moment) - age * _MICROSECOND

    def later(self, moment: ColumnElement[Any], delay_us: ColumnElement[Any]) -> ColumnElement[Any]:
        """The moment so many microseconds later."""
        if self.name == "mariadb":
            return func.timestampadd(_UNIT, delay_us, moment, type_=Moment)
        return moment + cast(delay_us, BigInteger) * _MICROSECOND


POSTGRESQL: Final = DatabaseKind(
    name="postgresql", composes=True, has_clock=True, notifies=True, skips_locked=True
)
SQLITE: Final = DatabaseKind(
    name="sqlite", composes=False, has_clock=False, notifies=False, skips_locked=False
)
MARIADB: Final = DatabaseKind(
    name="mariadb",
    composes=False,
    has_clock=True,
    notifies=False,
    skips_locked=True,
    returns_changes=False,
    locks_joined=False,
    keeps_savepoints=False,
    locks_entries=True,
    ranges_follow_rows=False,
    rolls_ddl_back=False,
)


def kind_of(dialect_name: str) -> DatabaseKind:
    """The kind of a database by SQLAlchemy's name of it.

    Raises:
        ValueError: If it is none that this package supports.
    """
    for kind in (POSTGRESQL, SQLITE, MARIADB):
        if kind.name == dialect_name:
            return kind
    raise ValueError(f"{dialect_name!r} is not supported; use postgresql, sqlite or mariadb")


def _utc() -> ColumnElement[Any]:
    # Whatever time zone a session has; and it stands still while a statement waits.
    return func.utc_timestamp(literal_column("6"), type_=Moment)


def _first_text(table: Table) -> str:
    """A column that is no number: a number's own is what the last inserted id is about."""
    return "id" if "id" in table.c else next(iter(table.primary_key)).name
