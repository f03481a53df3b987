"""Lengths of time as people write them, bounded so that no clock arithmetic can overflow."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from stagewright.errors import InvalidDurationError

__all__ = [
    "LONGEST_DURATION",
    "Duration",
    "add_duration",
    "add_within_calendar",
    "duration_or_problem",
    "parse_duration",
    "subtract_within_calendar",
    "within_calendar",
]

Duration = timedelta | float | str
"""A `timedelta`, a number of seconds, or text such as `"250ms"`, `"30s"`, `"5m"`, `"6h"`, `"7d"`."""

_TEXT: Final = re.compile(r"\s*(\d+(?:\.\d+)?)(ms|s|m|h|d)\s*", re.ASCII)
_SECONDS_PER_UNIT: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_LAST_MOMENT: Final = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
_FIRST_MOMENT: Final = datetime(1, 1, 1, tzinfo=UTC)
LONGEST_DURATION: Final = _LAST_MOMENT - _FIRST_MOMENT
"""No duration that is given is longer."""


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


def duration_or_problem(value: Duration, field: str, problems: list[str]) -> timedelta:
    """Read a duration; what is wrong with it is added to `problems`, and the answer is zero."""
    try:
        return parse_duration(value, field=field)
    except InvalidDurationError as error:
        problems.append(str(error))
        return timedelta(0)


def add_duration(moment: datetime, duration: timedelta, *, field: str) -> datetime:
    """Add a duration to a moment, within the calendar.

    Raises:
        InvalidDurationError: If the sum lies beyond the year 9999.
    """
    if duration > _LAST_MOMENT - moment:
        raise InvalidDurationError(field, duration, "ends beyond the year 9999")
    return moment + duration


def add_within_calendar(moment: datetime, duration: timedelta) -> datetime:
    """Add a duration of the engine's own to a moment; a sum beyond the calendar is its end."""
    return moment + min(duration, max(_LAST_MOMENT - moment, timedelta(0)))


def subtract_within_calendar(moment: datetime, age: timedelta) -> datetime:
    """The moment that lies so long before another; one before the calendar is its beginning."""
    return moment - min(age, max(moment - _FIRST_MOMENT, timedelta(0)))


def within_calendar(moment: datetime) -> datetime:
    """An aware moment in UTC; one whose offset leads out of the calendar is the calendar's beginning or end."""
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        return _FIRST_MOMENT if moment.year == 1 else _LAST_MOMENT


def _bounded(seconds: float, value: Duration, field: str) -> timedelta:
    if seconds != seconds:  # math.isnan overflows on a huge integer
        raise InvalidDurationError(field, value, "is not a number")
    if seconds < 0:
        raise InvalidDurationError(field, value, "is negative; a duration is zero or more")
    if seconds > LONGEST_DURATION.total_seconds():
        raise InvalidDurationError(field, value, "is longer than the calendar, which ends with the year 9999")
    return value if isinstance(value, timedelta) else timedelta(seconds=seconds)
