"""A count that rises with every notification, for databases that can't notify.

Row 1 is the counter. Whoever can't hold that row until an unknown end leaves a row of its own, a notice, which counts
as much; listeners look at the sum, and put notices into the counter, which leaves the sum as it is.
"""

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Delete,
    Executable,
    Integer,
    Select,
    bindparam,
    delete,
    func,
    select,
)

from stagewright_persistence_sqlalchemy.dialect import DatabaseKind
from stagewright_persistence_sqlalchemy.tables import Tables, for_tables

__all__ = [
    "add_notices",
    "current_signal",
    "delete_notice",
    "free_notices",
    "leave_notice",
    "raise_signal",
    "signals_and_notices",
]

_COUNTER: Final = 1
_IDS: Final = 2**31 - 3
"""So many ids there are for notices, from 2 on."""


@for_tables(maxsize=1)
def current_signal(tables: Tables) -> Select[Any]:
    """How many notifications there have been."""
    return select(tables.signals.c.count).where(tables.signals.c.id == _COUNTER)


@for_tables(maxsize=8)
def raise_signal(tables: Tables, kind: DatabaseKind) -> Executable:
    """Count one more notification."""
    return _counting(tables, kind, _COUNTER, 1, 1)


@for_tables(maxsize=8)
def add_notices(tables: Tables, kind: DatabaseKind) -> Executable:
    """Count so many more notifications."""
    many = bindparam("many", type_=BigInteger())
    return _counting(tables, kind, _COUNTER, many, many)


@for_tables(maxsize=8)
def leave_notice(tables: Tables, kind: DatabaseKind) -> Executable:
    """Count one more notification in a row of its own, for which nobody has to wait."""
    # By chance, and not the next free one: who looks at a row that another transaction has inserted waits for its end.
    return _counting(tables, kind, 2 + func.floor(func.rand() * _IDS), 1, 1)


@for_tables(maxsize=1)
def signals_and_notices(tables: Tables) -> Executable:
    """How many notifications there have been, and in how many rows they are counted."""
    signals = tables.signals.c
    counted = func.coalesce(func.sum(signals.count), 0, type_=BigInteger)
    return select(counted.label("count"), func.count(signals.id).label("rows"))


@for_tables(maxsize=1)
def free_notices(tables: Tables) -> Executable:
    """Up to `limit` notices that nobody holds; they are locked by this."""
    signals = tables.signals.c
    notices = select(signals.id, signals.count).where(signals.id > _COUNTER).order_by(signals.id)
    return notices.limit(bindparam("limit", type_=Integer())).with_for_update(skip_locked=True)


@for_tables(maxsize=1)
def delete_notice(tables: Tables) -> Delete:
    """Delete a notice; several at once would be looked for among all of them."""
    return delete(tables.signals).where(tables.signals.c.id == bindparam("of_id", type_=Integer()))


def _counting(tables: Tables, kind: DatabaseKind, id: Any, first: Any, more: Any) -> Executable:
    statement: Any = kind.insert(tables.signals).values(id=id, count=first)
    counted: Executable = kind.replacing(
        statement, ["id"], lambda _: {"count": tables.signals.c.count + more}
    )
    return counted
