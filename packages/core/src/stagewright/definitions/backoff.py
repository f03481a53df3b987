"""Pauses that grow by a factor, up to a longest one."""

import math
from datetime import timedelta

__all__ = ["growing_pause", "is_factor"]


def growing_pause(number: int, *, first: timedelta, factor: float, longest: timedelta) -> timedelta:
    """The pause of this number, from 1; each is `factor` times the one before, and none is longer than `longest`."""
    base, most = first.total_seconds(), longest.total_seconds()
    if base <= 0 or most <= 0:
        return timedelta(0)
    # Compared as logarithms: the power itself overflows after about a thousand doublings.
    if math.log(base) + (number - 1) * math.log(factor) >= math.log(most):
        return longest
    return timedelta(seconds=min(base * factor ** (number - 1), most))


def is_factor(value: object) -> bool:
    """Whether a pause can grow by it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value) and value >= 1
    except OverflowError:
        return False
