import threading
from datetime import UTC, datetime
from typing import Final

from stagewright.duration import Duration, add_duration, parse_duration
from stagewright.errors import InvalidDurationError

__all__ = ["FakeClock"]

_START: Final = datetime(2025, 1, 1, tzinfo=UTC)


class FakeClock:
    """A clock that moves only when a test moves it; several threads may use it."""

    def __init__(self, start: datetime = _START) -> None:
        """Stop at a moment.

        Args:
            start: Where it stands: aware, in any time zone.

        Raises:
            InvalidDurationError: If it is no moment, has no time zone, or lies beyond the calendar.
        """
        self._lock = threading.Lock()
        self._now = _in_utc(start, "start")

    def now(self) -> datetime:
        """Where it stands, in UTC."""
        with self._lock:
            return self._now

    def advance(self, duration: Duration) -> datetime:
        """Move forward and return where it stands now.

        Raises:
            InvalidDurationError: If the duration is negative, not a number, or leads beyond the year 9999.
        """
        step = parse_duration(duration, field="duration")
        with self._lock:
            self._now = add_duration(self._now, step, field="duration")
            return self._now

    def set(self, moment: datetime) -> None:
        """Move to a moment, also to an earlier one.

        Raises:
            InvalidDurationError: If it is no moment, has no time zone, or lies beyond the calendar.
        """
        moved = _in_utc(moment, "moment")
        with self._lock:
            self._now = moved


def _in_utc(moment: datetime, field: str) -> datetime:
    if not isinstance(moment, datetime):
        raise InvalidDurationError(
            field, moment, "is no moment; write for instance datetime(2025, 1, 1, tzinfo=UTC)"
        )
    if moment.utcoffset() is None:
        raise InvalidDurationError(
            field, moment, "has no time zone; write for instance datetime(2025, 1, 1, tzinfo=UTC)"
        )
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise InvalidDurationError(field, moment, "lies beyond the calendar in UTC") from error
