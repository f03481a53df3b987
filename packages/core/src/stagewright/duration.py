"""Lengths of time as people write them, bounded so that no clock arithmetic can overflow."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from stagewright.errors import InvalidDurationError

__all__ = ["Duration", "add_duration", "parse_duration"]

Duration = timedelta | float | str
"""A `timedelta`, a number of seconds, or text such as `"250ms"`, `"30s"`, `"5m"`, `"6h"`, `"7d"`."""

_TEXT: Final = re.compile(r"\s*(\d+(?:\.\d+)?)(ms|s|m|h|d)\s*", re.ASCII)
_SECONDS_PER_UNIT: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_LAST_MOMENT: Final = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
_LONGEST: Final = _LAST_MOMENT - datetime(1, 1, 1, tzinfo=UTC)


def parse_duration(value: Duration, *, field: str) -> timedelta:
    """Read a duration.

    Args:
        value: A `timedelta`, a number of seconds, or a number with one of the units ms, s, m, h and d as text.
        field: The argument it was given for; the error names it.

    Raises:
        InvalidDurationError: If it is negative, not a number, longer than the calendar, or not a duration at all.
    """
    if isinstance(value, timedelta):
        return _bounded(value.total_seconds(), value, field)
    if isinstance(value, str):
        match = _TEXT.fullmatch(value)
        if match is None:
            raise InvalidDurationError(
                field, value, 'is not a duration; write for instance "250ms", "30s", "5m", "6h" or "7d"'
            )
        return _bounded(float(match[1]) * _SECONDS_PER_UNIT[match[2]], value, field)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidDurationError(
            field, value, "is not a duration; give a timedelta, a number of seconds, or text"
        )
    return _bounded(value, value, field)


def add_duration(moment: datetime, duration: timedelta, *, field: str) -> datetime:
    """Add a duration to a moment, within the calendar.

    Raises:
        InvalidDurationError: If the sum lies beyond the year 9999.
    """
    if duration > _LAST_MOMENT - moment:
        raise InvalidDurationError(field, duration, "ends beyond the year 9999")
    return moment + duration


def _bounded(seconds: float, value: Duration, field: str) -> timedelta:
    if seconds != seconds:  # math.isnan overflows on a huge integer
        raise InvalidDurationError(field, value, "is not a number")
    if seconds < 0:
        raise InvalidDurationError(field, value, "is negative; a duration is zero or more")
    if seconds > _LONGEST.total_seconds():
        raise InvalidDurationError(field, value, "is longer than the calendar, which ends with the year 9999")
    return value if isinstance(value, timedelta) else timedelta(seconds=seconds)
