"""How long a host keeps runs that have ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Final, Self, cast

from stagewright.duration import Duration, parse_duration
from stagewright.errors import InvalidDurationError, InvalidSettingError
from stagewright.status import TERMINAL_RUN_STATUSES, Status

__all__ = ["Retention"]

MOST_AT_ONCE: Final = 1_000_000
"""How much a host may be told to do at once."""
_ALL: Final = tuple(sorted(TERMINAL_RUN_STATUSES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Which runs a host deletes, with everything of them.

    Attributes:
        older_than: Runs that ended so long ago; a number is seconds, as in every duration.
        statuses: Of these statuses: COMPLETED, FAILED and CANCELLED unless given.
        limit: At most so many at once.
    """

    older_than: timedelta
    statuses: Sequence[Status] = _ALL
    limit: int = 100

    def __post_init__(self) -> None:
        """Refuse what no host could work with.

        Raises:
            InvalidSettingError, InvalidDurationError: Naming the setting, what was given, and the fix.
        """
        older_than = parse_duration(cast(Duration, self.older_than), field="retention.older_than")
        object.__setattr__(self, "older_than", older_than)
        object.__setattr__(self, "statuses", _terminal(self.statuses))
        if isinstance(self.limit, bool) or not isinstance(self.limit, int) or self.limit < 1:
            raise InvalidSettingError("retention.limit", self.limit, "must be a whole number of at least 1")
        if self.limit > MOST_AT_ONCE:
            raise InvalidSettingError("retention.limit", self.limit, f"must be at most {MOST_AT_ONCE:,}")

    @classmethod
    def of(
        cls, given: "Retention | Mapping[str, Any] | timedelta | str"
    ) -> Self:  # Any: each field has its own type
        """A retention out of any form: one, a dict of its fields, or how old runs may become.

        How old is a `timedelta` or text with a unit. A bare number is refused: who writes 30 means days, and seconds
        would delete what was to be kept.

        Raises:
            InvalidSettingError, InvalidDurationError: Naming the setting, what was given, and the fix.
        """
        if isinstance(given, Retention):
            given = {one.name: getattr(given, one.name) for one in fields(given)}
        if not isinstance(given, Mapping):
            if _is_bare_number(given):
                problem = 'has no unit; write for instance "30d" for thirty days, or give a timedelta'
                raise InvalidDurationError("retention", given, problem)
            return cls(older_than=parse_duration(given, field="retention"))
        known = {one.name for one in fields(cls)}
        unknown = sorted(map(str, given.keys() - known))
        if unknown or "older_than" not in given:
            problem = f"has no {unknown[0]!r}" if unknown else "needs older_than"
            raise InvalidSettingError("retention", given, f"{problem}; it takes {', '.join(sorted(known))}")
        return cls(**given)


def _terminal(statuses: object) -> tuple[Status, ...]:
    if not isinstance(statuses, Sequence) or isinstance(statuses, str) or not statuses:
        raise InvalidSettingError("retention.statuses", statuses, f"must be a list of {', '.join(_ALL)}")
    for status in statuses:
        if status not in _ALL:
            raise InvalidSettingError("retention.statuses", status, f"can be {', '.join(_ALL)} alone")
    return tuple(Status(status) for status in statuses)


def _is_bare_number(given: object) -> bool:
    if not isinstance(given, str):
        return isinstance(given, int | float) and not isinstance(given, bool)
    try:
        float(given)
    except ValueError:
        return False
    return True
