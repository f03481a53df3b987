"""Column types that give back exactly what was put in, the same on every database."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import DateTime, Table, Text
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

__all__ = ["ExactDecimal", "ExactJson", "Moment", "encoded", "read_json", "wire_type", "write_json"]


def write_json(value: object) -> str:
    """The text of a JSON value, as stores keep it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def read_json(text: str) -> Any:
    """The value of a stored text."""
    return json.loads(text)


class ExactJson(TypeDecorator[Any]):  # Any: a column holds whatever JSON its record's field has
    """JSON kept as its text, so that 1.0 stays a float, and JSON null differs from SQL NULL.

    It is text on PostgreSQL too: `jsonb` rewrites numbers and the order of keys, and drivers read `json` each in a way
    of their own. To look inside a column by hand, cast it: `input::json ->> 'order_id'`.
    """

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str:
        """Write a value; None is JSON null."""
        return write_json(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        """Read a value."""
        return None if value is None else read_json(value)


class Moment(TypeDecorator[datetime]):
    """An aware time in UTC with microseconds: `timestamptz`, or text that sorts as times do on SQLite."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """The database's own type."""
        if dialect.name == "sqlite":
            return dialect.type_descriptor(Text())
        return dialect.type_descriptor(DateTime(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        """Write a time."""
        if value is None:
            return None
        moment = value.astimezone(UTC)
        return moment.isoformat(timespec="microseconds") if dialect.name == "sqlite" else moment

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        """Read a time, in UTC."""
        if value is None:
            return None
        return (datetime.fromisoformat(value) if isinstance(value, str) else value).astimezone(UTC)


class ExactDecimal(TypeDecorator[Decimal]):
    """A decimal number kept as its text, with every digit that it had."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> str | None:
        """Write a number."""
        return None if value is None else str(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Decimal | None:
        """Read a number."""
        return None if value is None else Decimal(value)


def encoded(table: Table, values: Mapping[str, Any]) -> dict[str, Any]:
    """A row's values as they are sent: what a caller changes afterwards changes nothing in them."""
    return {name: _encoded(table.c[name].type, value) for name, value in values.items()}


def wire_type(kind: TypeEngine[Any]) -> TypeEngine[Any]:
    """The type of an encoded value."""
    return Text() if isinstance(kind, ExactJson | ExactDecimal) else kind


def _encoded(kind: TypeEngine[Any], value: Any) -> Any:
    if isinstance(kind, ExactJson):
        return write_json(value)
    if isinstance(kind, ExactDecimal):
        return None if value is None else str(value)
    return value
