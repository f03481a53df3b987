"""Core statements as a driver takes them, each compiled once: its text, its arguments, and its rows."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, cast

from sqlalchemy import Executable
from sqlalchemy.engine import Dialect

from stagewright_persistence_sqlalchemy.column_types import reader_of, writer_of
from stagewright_persistence_sqlalchemy.rows import Row

__all__ = ["PreparedStatement", "PreparedStatements"]

_MOST_STATEMENTS: Final = 512


class PreparedStatement:
    """A statement with what turns values into arguments and a driver's records into rows.

    Args:
        statement: The statement.
        dialect: The database and its driver; its parameters are positional.

    Attributes:
        sql: The text.
    """

    def __init__(self, statement: Executable, dialect: Dialect) -> None:
        # Any: Executable doesn't say that it compiles, and what comes out is untyped where it is interesting.
        compiled: Any = cast(Any, statement).compile(
            dialect=dialect, compile_kwargs={"render_postcompile": True}
        )
        self.sql: str = compiled.string
        defaults: Mapping[str, Any] = compiled.params
        self._arguments: list[tuple[str, Any, Callable[[Any], Any] | None]] = [
            (name, defaults[name], writer_of(compiled.binds[name].type, dialect))
            for name in compiled.positiontup or ()
        ]
        columns: Any = getattr(statement, "exported_columns", ())
        self._names = tuple(column.name for column in columns)
        readers = [(column.name, reader_of(column.type, dialect)) for column in columns]
        self._readers = [(name, read) for name, read in readers if read is not None]

    def arguments(self, parameters: Mapping[str, Any]) -> list[Any]:
        """The arguments in their order."""
        return [
            parameters.get(name, default) if write is None else write(parameters.get(name, default))
            for name, default, write in self._arguments
        ]

    def rows(self, records: Iterable[Iterable[Any]]) -> list[Row]:
        """The rows of a driver's records."""
        rows: list[Row] = []
        for record in records:
            row = dict(zip(self._names, record, strict=True))
            for name, read in self._readers:
                value = row[name]
                if value is not None:
                    row[name] = read(value)
            rows.append(row)
        return rows


class PreparedStatements:
    """Compiles each statement once; the least used are forgotten.

    Args:
        dialect: The database and its driver.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._known: OrderedDict[Executable, PreparedStatement] = OrderedDict()

    def of(self, statement: Executable) -> PreparedStatement:
        """The statement, compiled."""
        known = self._known.get(statement)
        if known is None:
            known = self._known[statement] = PreparedStatement(statement, self._dialect)
            if len(self._known) > _MOST_STATEMENTS:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(statement)
        return known
