"""What a failed body means for its stage."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeAlias

from stagewright.definitions import RetryPolicy

__all__ = ["DEFAULT_RETRY_POLICY", "FailureVerdict", "GiveUp", "TryAgain", "judge_failure"]

DEFAULT_RETRY_POLICY: Final = RetryPolicy()
_LONGEST_PAUSE: Final = timedelta(days=36_525)
"""No clock of a transport gets out of the calendar by adding this."""


@dataclass(frozen=True, slots=True)
class TryAgain:
    """The stage gets another attempt.

    Attributes:
        failures: How many failures there are now, this one included.
        delay: How long to wait before the next attempt.
    """

    failures: int
    delay: timedelta


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The stage is FAILED.

    Attributes:
        failures: How many failures there are now, this one included.
    """

    failures: int


FailureVerdict: TypeAlias = TryAgain | GiveUp


def judge_failure(
    *,
    earlier_failures: int,
    max_attempts: int,
    retryable: bool,
    policy: RetryPolicy | None,
    jitter: Callable[[], float],
) -> FailureVerdict:
    """Decide whether a stage is tried again.

    Args:
        earlier_failures: Failures already spent from this stage's budget.
        max_attempts: How many failures end the stage.
        retryable: Whether another attempt can help.
        policy: The stage's own policy, for the delay.
        jitter: A number from 0 up to, not including, 1.
    """
    failures = earlier_failures + 1
    if not retryable or failures >= max_attempts:
        return GiveUp(failures)
    delay = (policy or DEFAULT_RETRY_POLICY).delay_before(failures, jitter=jitter)
    return TryAgain(failures, min(delay, _LONGEST_PAUSE))
