"""What presigned URLs are, and for how long they are signed."""

import math
from datetime import datetime, timedelta
from typing import Final, Self

from stagewright.duration import Duration, parse_duration
from stagewright.errors import InvalidDurationError, InvalidSettingError

__all__ = ["PresignedUrl", "seconds_to_sign"]

_LONGEST: Final = timedelta(days=7)
"""What version 4 of the signatures of S3 and Cloud Storage allows."""
_BOUNDS: Final = "must be more than nothing and no more than 7 days"


class PresignedUrl(str):
    """A URL by which anybody reads or writes one blob until it expires: a secret.

    It is a text like any other, but what shows it in passing, by `repr`, leaves out all that is signed.

    Attributes:
        expires_at: When it expires at the latest, as far as its signer knows.
    """

    __slots__ = ("expires_at",)

    expires_at: datetime

    def __new__(cls, url: str, expires_at: datetime) -> Self:
        made = super().__new__(cls, url)
        made.expires_at = expires_at
        return made

    def __repr__(self) -> str:
        return f"PresignedUrl('{self.partition('?')[0]}?***', expires_at={self.expires_at.isoformat()})"

    def __reduce__(self) -> tuple[type["PresignedUrl"], tuple[str, datetime]]:
        return (PresignedUrl, (str(self), self.expires_at))


def seconds_to_sign(expires: Duration, *, at_most: timedelta = _LONGEST) -> int:
    """For how many whole seconds a URL is signed: what was asked for, rounded up.

    Args:
        expires: What was asked for.
        at_most: What whoever signs can promise; it is rounded down.

    Raises:
        InvalidSettingError: If that is no duration, nothing, or more than seven days.
    """
    try:
        asked = parse_duration(expires, field="expires")
    except InvalidDurationError as error:
        raise InvalidSettingError("expires", expires, f"{error.problem}; {_BOUNDS}") from None
    if not timedelta(0) < asked <= _LONGEST:
        raise InvalidSettingError("expires", expires, _BOUNDS)
    return min(math.ceil(asked.total_seconds()), math.floor(at_most.total_seconds()))
