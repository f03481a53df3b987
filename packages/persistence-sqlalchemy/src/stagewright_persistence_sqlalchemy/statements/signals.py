"""A counter that rises with every notification, for databases that can't notify."""

from typing import Any

from sqlalchemy import Executable, Select, select

from stagewright_persistence_sqlalchemy.dialect import DatabaseKind
from stagewright_persistence_sqlalchemy.tables import Tables, for_tables

__all__ = ["current_signal", "raise_signal"]


@for_tables(maxsize=1)
def current_signal(tables: Tables) -> Select[Any]:
    """How many notifications there have been."""
    return select(tables.signals.c.count).where(tables.signals.c.id == 1)


@for_tables(maxsize=8)
def raise_signal(tables: Tables, kind: DatabaseKind) -> Executable:
    """Count one more notification."""
    statement: Any = kind.insert(tables.signals).values(id=1, count=1)
    counted: Executable = kind.replacing(statement, ["id"], lambda _: {"count": tables.signals.c.count + 1})
    return counted
