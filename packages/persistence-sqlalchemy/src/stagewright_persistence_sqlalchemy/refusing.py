"""A statement that is a transaction of its own, and undoes itself when one of its guards has refused a row.

What one data-modifying common table expression has changed stays whatever the others did; only an error undoes it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import (
    CTE,
    ColumnElement,
    FromClause,
    Integer,
    Label,
    Text,
    bindparam,
    case,
    cast,
    func,
    literal_column,
    select,
)

from stagewright_persistence_sqlalchemy.rows import Row

__all__ = ["GUARDED_ROWS", "after", "refused_answer", "refusing"]

GUARDED_ROWS: Final = "guarded_rows"
"""The parameter that says how many rows have to be changed under a guard."""

_MARK: Final = "stagewright undoes this statement, whose rows have changed meanwhile: "
_TOLD: Final = re.compile(re.escape(_MARK) + r"(\{.*\})", re.DOTALL)
_NOT_A_NUMBER: Final = "22P02"


def refusing(changes: FromClause, names: Sequence[str]) -> Label[int]:
    """A column that fails, and tells which rows were changed, unless those under a guard all were.

    Args:
        changes: One row of arrays: the ids of the rows that were changed, or NULL.
        names: Its columns.
    """
    counts = [func.coalesce(func.cardinality(changes.c[name]), 0) for name in names]
    total: ColumnElement[int] = counts[0]
    for count in counts[1:]:
        total = total + count
    told = func.jsonb_build_object(
        *(part for name in names for part in (literal_column(f"'{name}'"), changes.c[name]))
    )
    # Text that is no number can't be made one, in words that the server's log shows as they are.
    fails = cast(literal_column(f"'{_MARK}'", Text()).concat(cast(told, Text())), Integer)
    is_complete = total == bindparam(GUARDED_ROWS, type_=Integer())
    return case((is_complete, literal_column("0")), else_=fails).label("is_complete")


def after(parts: Sequence[CTE]) -> list[ColumnElement[bool]]:
    """Conditions that always hold, and are known only once these parts of the statement have locked their rows."""
    return [select(func.count(part.c.id)).scalar_subquery() >= literal_column("0") for part in parts]


def refused_answer(error: BaseException) -> Row | None:
    """What a statement told when it refused to be kept, as if it had answered; None for any other error."""
    cause = error.__cause__ or error
    if getattr(cause, "sqlstate", None) != _NOT_A_NUMBER:
        return None
    told = _TOLD.search(str(cause))
    if told is None:
        return None
    answer: Mapping[str, Any] = json.loads(told[1])
    return dict(answer)
