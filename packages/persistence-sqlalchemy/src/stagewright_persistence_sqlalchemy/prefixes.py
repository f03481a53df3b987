"""Literal prefixes, as ranges that an index can serve."""

from typing import Any, Final

from sqlalchemy import ColumnElement, and_, true

__all__ = ["starts_with"]

_LAST: Final = 0x10FFFF


def starts_with(column: ColumnElement[Any], prefix: str) -> ColumnElement[bool]:
    """Whether a text column, compared by code points, starts with a prefix; nothing in it is a wildcard."""
    if not prefix:
        return true()
    end = _next_text(prefix)
    return column >= prefix if end is None else and_(column >= prefix, column < end)


def _next_text(prefix: str) -> str | None:
    """The first text after all that start with the prefix, or None when there is none."""
    while prefix and ord(prefix[-1]) == _LAST:
        prefix = prefix[:-1]
    if not prefix:
        return None
    code = ord(prefix[-1]) + 1
    # Surrogates are no characters; the next one stands behind them.
    return prefix[:-1] + chr(0xE000 if 0xD800 <= code <= 0xDFFF else code)
