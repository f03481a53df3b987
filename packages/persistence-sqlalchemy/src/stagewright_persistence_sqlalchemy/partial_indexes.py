"""Indexes of some rows of a table, and conditions in the words that they are found by."""

from typing import Any, Final

from sqlalchemy import Column, ColumnClause, ColumnElement, Index
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateIndex
from sqlalchemy.sql.compiler import SQLCompiler

__all__ = ["FlagWhereIndexed", "index_of_some"]

_LED_BY: Final = "stagewright_led_by"


def index_of_some(
    name: str,
    *columns: ColumnElement[Any],
    where: ColumnElement[bool],
    led_by: Column[Any] | None = None,
) -> None:
    """An index of the rows that fit; on MariaDB, which has none such, one of all rows that `led_by` comes first in."""
    info = {} if led_by is None else {_LED_BY: led_by.name}
    Index(name, *columns, postgresql_where=where, sqlite_where=where, info=info)


@compiles(CreateIndex, "mariadb")
def _index_of_all(create: CreateIndex, compiler: Any, **options: Any) -> str:
    text: str = compiler.visit_create_index(create, **options)
    first = create.element.info.get(_LED_BY)
    return text if first is None else text.replace("(", f"({first}, ", 1)


class FlagWhereIndexed(ColumnClause[bool]):
    """A flag, in the words that each database's index is found by; of no type, or `= 1` would be added to it.

    Args:
        text: The column, with its table.
    """

    inherit_cache = True

    def __init__(self, text: str) -> None:
        super().__init__(text, is_literal=True)


@compiles(FlagWhereIndexed)
def _as_partial_indexes_say(flag: FlagWhereIndexed, _compiler: SQLCompiler, **_: Any) -> str:
    # `flag = 1`, as SQLite would get it, doesn't fit.
    return flag.name


@compiles(FlagWhereIndexed, "mariadb")
def _as_a_value(flag: FlagWhereIndexed, _compiler: SQLCompiler, **_: Any) -> str:
    return f"{flag.name} = 1"
