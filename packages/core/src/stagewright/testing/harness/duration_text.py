"""Lengths of time for people."""

from datetime import timedelta
from typing import Final

__all__ = ["duration_text"]

_UNITS: Final = (("d", 86_400), ("h", 3_600), ("m", 60))


def duration_text(duration: timedelta) -> str:
    """All of a length of time that is not negative: `7d`, `1h30m`, `250ms`, `0s`."""
    whole, rest = divmod(round(duration.total_seconds() * 1_000), 1_000)
    parts = []
    for name, seconds in _UNITS:
        count, whole = divmod(whole, seconds)
        if count:
            parts.append(f"{count}{name}")
    if whole:
        parts.append(f"{whole}s")
    if rest:
        parts.append(f"{rest}ms")
    return "".join(parts) or "0s"
