"""Which index MariaDB goes along when it locks rows.

It locks every row that it looks at. Left to itself it searches a small table whole, or sorts before it limits, and so
waits for rows, or takes some, that the statement isn't about.
"""

from typing import Any, Final, TypeVar, cast

from sqlalchemy import Executable, Select, Table, Update
from sqlalchemy.sql.selectable import HasHints

from stagewright_persistence_sqlalchemy.tables import names_of_table

__all__ = ["PRIMARY", "along", "is_of_met_rows", "of_met_rows", "updating_along"]

PRIMARY: Final = "PRIMARY"
_MET: Final = "stagewright_met"
Chosen = TypeVar("Chosen", bound=HasHints)


def along(chosen: Chosen, table: Table, index: str) -> Chosen:
    """A locking read along an index."""
    return chosen.with_hint(table, _hint(table, index), "mariadb")


def updating_along(changed: Update, index: str) -> Update:
    """An update along an index."""
    table = cast("Table", changed.table)
    return changed.with_hint(_hint(table, index), dialect_name="mariadb")


def _hint(table: Table, index: str) -> str:
    # A primary key has the same name everywhere.
    return f"FORCE INDEX ({index if index == PRIMARY else names_of_table(table).of(index)})"


def of_met_rows(chosen: Select[Any]) -> Select[Any]:
    """A read of rows that a write of the same transaction has met, by a key: wanted is what that write has seen.

    Under READ COMMITTED and on PostgreSQL that is what any read sees, or the write has failed.
    """
    return chosen.execution_options(**{_MET: True})


def is_of_met_rows(statement: Executable) -> bool:
    """Whether a statement is a read of such rows."""
    return bool(statement.get_execution_options().get(_MET))
