"""Which index MariaDB goes along when it locks rows.

It locks every row that it looks at. Left to itself it searches a small table whole, or sorts before it limits, and so
waits for rows, or takes some, that the statement isn't about.
"""

from typing import Final, TypeVar

from sqlalchemy import Table, Update
from sqlalchemy.sql.selectable import HasHints

__all__ = ["PRIMARY", "along", "updating_along"]

PRIMARY: Final = "PRIMARY"
Chosen = TypeVar("Chosen", bound=HasHints)


def along(chosen: Chosen, table: Table, index: str) -> Chosen:
    """A locking read along an index."""
    return chosen.with_hint(table, f"FORCE INDEX ({index})", "mariadb")


def updating_along(changed: Update, index: str) -> Update:
    """An update along an index."""
    return changed.with_hint(f"FORCE INDEX ({index})", dialect_name="mariadb")
