"""How often a stage may fail, and how long it waits in between."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeAlias, cast

from stagewright.definitions.backoff import growing_pause, is_factor
from stagewright.duration import Duration, duration_or_problem
from stagewright.errors import DefinitionError, NonRetryableError

__all__ = ["RetryOn", "RetryPolicy"]

RetryOn: TypeAlias = type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool]
"""The exceptions that are worth another attempt: a class, several, or a predicate."""

_MOST: Final = 1_000_000


@dataclass(frozen=True, slots=True, init=False)
class RetryPolicy:
    """The budgets of a stage, and the pauses between its attempts.

    Attributes:
        max_attempts: How often the body may fail, the first time included, before the stage fails.
        max_worker_losses: How often a worker may vanish with the stage in hand before the stage fails.
        delay: The pause after the first failure.
        factor: Each further pause is this many times the one before.
        max_delay: No pause is longer than this.
        jitter: Whether each pause is shortened by a random share of up to a half.
        retry_on: The exceptions that are worth another attempt.
    """

    max_attempts: int
    max_worker_losses: int
    delay: timedelta
    factor: float
    max_delay: timedelta
    jitter: bool
    retry_on: RetryOn

    def __init__(
        self,
        max_attempts: int = 3,
        max_worker_losses: int = 3,
        *,
        delay: Duration = "2s",
        factor: float = 2,
        max_delay: Duration = "1h",
        jitter: bool = True,
        retry_on: RetryOn = Exception,
    ) -> None:
        """Declare budgets and pauses.

        Raises:
            DefinitionError: Listing every argument that makes no sense.
        """
        problems = [
            f"{name}={count!r} must be a whole number from 1 to {_MOST:,}"
            for name, count in (("max_attempts", max_attempts), ("max_worker_losses", max_worker_losses))
            if not _is_count(count)
        ]
        if not is_factor(factor):
            problems.append(f"factor={factor!r} must be a finite number of at least 1")
        pauses = {
            name: duration_or_problem(value, name, problems)
            for name, value in (("delay", delay), ("max_delay", max_delay))
        }
        if not isinstance(cast(object, jitter), bool):
            problems.append(f"jitter={jitter!r} must be True or False")
        if not _is_retry_on(retry_on):
            problems.append(
                f"retry_on={retry_on!r} must be an exception class, a tuple of them, or a predicate"
            )
        if problems:
            raise DefinitionError("RetryPolicy", tuple(problems))
        fields = {"max_attempts": max_attempts, "max_worker_losses": max_worker_losses, **pauses}
        fields |= {"factor": float(factor), "jitter": jitter, "retry_on": retry_on}
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def delay_before(self, failures: int, *, jitter: Callable[[], float] | None = None) -> timedelta:
        """The pause before the next attempt.

        Args:
            failures: How often the body has failed so far; the first pause follows failure 1.
            jitter: A source of numbers from 0 up to, not including, 1; ignored when the policy has no jitter.
        """
        if failures < 1:
            return timedelta(0)
        pause = growing_pause(failures, first=self.delay, factor=self.factor, longest=self.max_delay)
        return pause * (1 - jitter() / 2) if self.jitter and jitter is not None else pause

    def allows(self, error: BaseException) -> bool:
        """Whether another attempt could help after this error, budgets aside.

        A predicate that raises counts as yes: the budget bounds what follows, and the error carries a note of it.
        """
        if isinstance(error, NonRetryableError) or not isinstance(error, Exception):
            return False
        if isinstance(self.retry_on, type | tuple):
            return isinstance(error, self.retry_on)
        try:
            return bool(self.retry_on(error))
        except Exception as problem:
            error.add_note(f"retry_on raised {type(problem).__name__}: {problem}")
            return True


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST


def _is_retry_on(value: object) -> bool:
    if isinstance(value, tuple):
        return all(isinstance(member, type) and issubclass(member, Exception) for member in value)
    if isinstance(value, type):
        return issubclass(value, Exception)
    return callable(value)
