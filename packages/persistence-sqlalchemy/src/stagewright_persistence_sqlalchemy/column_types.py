"""Column types that give back exactly what was put in, the same on every database."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from typing import Any, Final

from sqlalchemy import ARRAY, DateTime, LargeBinary, Table, Text
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

from stagewright_persistence_sqlalchemy import mariadb_types

__all__ = [
    "BlobKey",
    "ExactDecimal",
    "ExactJson",
    "LongBytes",
    "LongText",
    "Moment",
    "Name",
    "Topic",
    "encoded",
    "read_json",
    "reader_of",
    "wire_type",
    "write_json",
    "writer_of",
]


_BY_CODE_POINTS: Final = postgresql.TEXT(collation="C")

Name: Final = Text().with_variant(mariadb_types.NAME, "mariadb").with_variant(_BY_CODE_POINTS, "postgresql")
"""A name, an id or a key: compared and ordered by code points, whatever the database's own collation is."""

Topic: Final = Text().with_variant(mariadb_types.TOPIC, "mariadb").with_variant(_BY_CODE_POINTS, "postgresql")
"""The topic of a model call, which is a longer name."""

LongText: Final = Text().with_variant(mariadb_types.LONG_TEXT, "mariadb")
"""A text of any length."""

LongBytes: Final = LargeBinary().with_variant(mariadb_types.LONG_BYTES, "mariadb")
"""Bytes, however many."""

_WRITER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
# What most JSON columns hold, most of the time.
_USUAL: Final[Mapping[str, Callable[[], Any]]] = {"null": lambda: None, "{}": dict, "[]": list}


def write_json(value: object) -> str:
    """The text of a JSON value, as stores keep it."""
    if not value:
        # An encoder is made for each value, which is more than these are worth.
        if value is None:
            return "null"
        if type(value) is dict:
            return "{}"
    return _WRITER.encode(value)


def read_json(text: str) -> Any:
    """The value of a stored text."""
    usual = _USUAL.get(text)
    return json.loads(text) if usual is None else usual()


class ExactJson(TypeDecorator[Any]):  # Any: a column holds whatever JSON its record's field has
    """JSON kept as its text, so that 1.0 stays a float, and JSON null differs from SQL NULL.

    It is text on PostgreSQL too: `jsonb` rewrites numbers and the order of keys, and drivers read `json` each in a way
    of their own. To look inside a column by hand, cast it: `input::json ->> 'order_id'`.
    """

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """The database's own type."""
        return mariadb_types.LONG_TEXT if dialect.name == "mariadb" else super().load_dialect_impl(dialect)

    def process_bind_param(self, value: Any, dialect: Dialect) -> str:
        """Write a value; None is JSON null."""
        return write_json(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        """Read a value."""
        return None if value is None else read_json(value)


class Moment(TypeDecorator[datetime]):
    """An aware time in UTC with microseconds: `timestamptz`, `datetime(6)`, or text that is in the order of times."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """The database's own type."""
        if dialect.name == "sqlite":
            return dialect.type_descriptor(Text())
        if dialect.name == "mariadb":
            return dialect.type_descriptor(mariadb_types.MOMENT)
        return dialect.type_descriptor(DateTime(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        """Write a time."""
        if value is None:
            return None
        moment = value.astimezone(UTC)
        if dialect.name == "mariadb":
            return moment.replace(tzinfo=None)
        return moment.isoformat(timespec="microseconds") if dialect.name == "sqlite" else moment

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        """Read a time, in UTC."""
        if value is None:
            return None
        moment: datetime = datetime.fromisoformat(value) if isinstance(value, str) else value
        # MariaDB's times have no zone.
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


class ExactDecimal(TypeDecorator[Decimal]):
    """A decimal number kept as its text, with every digit that it had."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """The database's own type."""
        return mariadb_types.LONG_TEXT if dialect.name == "mariadb" else super().load_dialect_impl(dialect)

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> str | None:
        """Write a number."""
        return None if value is None else str(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Decimal | None:
        """Read a number."""
        return None if value is None else Decimal(value)


class BlobKey(TypeDecorator[str]):
    """The key of a blob, which is longer than a name."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """The database's own type."""
        if dialect.name == "mariadb":
            return mariadb_types.BLOB_KEY
        return _BY_CODE_POINTS if dialect.name == "postgresql" else super().load_dialect_impl(dialect)

    def process_bind_param(self, value: str | None, dialect: Dialect) -> Any:
        """Write a key."""
        return value.encode() if value is not None and dialect.name == "mariadb" else value

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:
        """Read a key."""
        return value.decode() if isinstance(value, bytes) else value


def encoded(table: Table, values: Mapping[str, Any]) -> dict[str, Any]:
    """A row's values as they are sent: what a caller changes afterwards changes nothing in them."""
    row = dict(values)
    for name, write in _encoders(table):
        if name in row:
            row[name] = write(row[name])
    return row


def wire_type(kind: TypeEngine[Any]) -> TypeEngine[Any]:
    """The type of an encoded value."""
    return Text() if isinstance(kind, ExactJson | ExactDecimal) else kind


def reader_of(kind: TypeEngine[Any], dialect: Dialect) -> Callable[[Any], Any] | None:
    """What makes a value of a driver's own; None where that is the value already, and it is never asked about NULL."""
    if isinstance(kind, ExactJson):
        return read_json
    if isinstance(kind, ExactDecimal):
        return Decimal
    if isinstance(kind, Moment) and dialect.driver == "asyncpg":
        return None  # asyncpg reads every timestamptz as an aware time in UTC
    return kind.dialect_impl(dialect).result_processor(dialect, None)


def writer_of(kind: TypeEngine[Any], dialect: Dialect) -> Callable[[Any], Any] | None:
    """What makes a value what a driver takes; None where it takes it as it is."""
    if isinstance(kind, ExactJson):
        return write_json
    if isinstance(kind, Moment | ARRAY) and dialect.driver == "asyncpg":
        return None  # asyncpg takes aware times of any zone; members of arrays are encoded already
    return kind.dialect_impl(dialect).bind_processor(dialect)


@cache
def _encoders(table: Table) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    encoders: list[tuple[str, Callable[[Any], Any]]] = []
    for column in table.c:
        if isinstance(column.type, ExactJson):
            encoders.append((column.name, write_json))
        elif isinstance(column.type, ExactDecimal):
            encoders.append((column.name, lambda value: None if value is None else str(value)))
    return tuple(encoders)
