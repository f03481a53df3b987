"""The arguments of a step, checked before anything is done."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final, cast

from stagewright.definitions import Backoff, OnReclaim
from stagewright.definitions.backoff import growing_pause, is_factor
from stagewright.duration import Duration, duration_or_problem
from stagewright.errors import DefinitionError
from stagewright.json_values import text_problem

__all__ = [
    "SignalOptions",
    "StepOptions",
    "WaitOptions",
    "check_step_id",
    "read_options",
    "read_signal_options",
    "read_wait_options",
]

_LONGEST_ID: Final = 255
_MOST_RETRIES: Final = 1_000_000
_LONGEST_PAUSE: Final = timedelta(days=36_525)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """How a step is executed, again executed and leased.

    Attributes:
        retries: How often it is executed again after a failure.
        retry_delay: The pause before the first of those.
        factor: Each further pause is this many times the one before.
        max_delay: No pause is longer than this.
        jitter: Whether a pause is a random part of its length.
        lease: For how long an execution has the step; None for as long as its job is its own.
        heartbeat: How often an explicit lease is renewed; None is a third of it.
        on_reclaim: Whether what a lost execution began is executed again.
    """

    retries: int
    retry_delay: timedelta
    factor: float
    max_delay: timedelta
    jitter: bool
    lease: timedelta | None
    heartbeat: timedelta | None
    on_reclaim: OnReclaim

    def pause_after(self, attempt: int, uniform: Callable[[], float]) -> timedelta:
        """The pause after this execution has failed."""
        pause = growing_pause(attempt, first=self.retry_delay, factor=self.factor, longest=self.max_delay)
        return pause * uniform() if self.jitter else pause


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitOptions:
    """How a wait asks.

    Attributes:
        every: The pause after an answer that won't do.
        timeout: How long it waits in all.
        backoff: The pause after it asked in vain; None is `every`.
    """

    every: timedelta
    timeout: timedelta
    backoff: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalOptions:
    """How a wait for a signal waits.

    Attributes:
        timeout: How long it waits in all.
        keepalive: How often it looks by itself, should it not have been woken.
    """

    timeout: timedelta
    keepalive: timedelta


def check_step_id(step_id: object) -> None:
    """Make sure that this can be a step's id.

    Raises:
        DefinitionError: If it can't.
    """
    if not isinstance(step_id, str) or not step_id:
        problem: str | None = "an id is text that isn't empty"
    elif len(step_id) > _LONGEST_ID:
        problem = f"an id has at most {_LONGEST_ID} characters, and this has {len(step_id)}"
        step_id = f"{step_id[:40]}…"
    else:
        problem = text_problem(step_id)
    if problem is not None:
        raise DefinitionError(f"step {step_id!r}", (problem,))


def read_options(
    step_id: str,
    *,
    retries: int,
    retry_delay: Duration,
    backoff: float | Backoff | None,
    lease: Duration | None,
    heartbeat: Duration | None,
    on_reclaim: OnReclaim,
) -> StepOptions:
    """Check the options of a step.

    Raises:
        DefinitionError: Listing all that make no sense.
    """
    # What is no key of a dict, or makes no sense, is read anew.
    given: Any = backoff  # Any: a dict has no hash, which is what is tried
    try:
        return _usual_options(retries, retry_delay, given, lease, heartbeat, on_reclaim)
    except (TypeError, DefinitionError):
        pass
    return _options(step_id, retries, retry_delay, backoff, lease, heartbeat, on_reclaim)


def read_wait_options(
    step_id: str, *, every: Duration, timeout: Duration, poll_backoff: Duration | None
) -> WaitOptions:
    """Check the options of a wait.

    Raises:
        DefinitionError: Listing all that make no sense.
    """
    problems: list[str] = []
    options = WaitOptions(
        every=_positive(every, "every", problems),
        timeout=_positive(timeout, "timeout", problems),
        backoff=None if poll_backoff is None else _positive(poll_backoff, "poll_backoff", problems),
    )
    _refuse(step_id, problems)
    return options


def read_signal_options(step_id: str, *, timeout: Duration, keepalive: Duration) -> SignalOptions:
    """Check the options of a wait for a signal.

    Raises:
        DefinitionError: Listing all that make no sense.
    """
    problems: list[str] = []
    options = SignalOptions(
        timeout=_positive(timeout, "timeout", problems),
        keepalive=_positive(keepalive, "keepalive", problems),
    )
    _refuse(step_id, problems)
    return options


@lru_cache(maxsize=256, typed=True)
def _usual_options(
    retries: int,
    retry_delay: Duration,
    backoff: float | Backoff | None,
    lease: Duration | None,
    heartbeat: Duration | None,
    on_reclaim: OnReclaim,
) -> StepOptions:
    """The options, read once for all steps that are given the same."""
    return _options("", retries, retry_delay, backoff, lease, heartbeat, on_reclaim)


def _options(
    step_id: str,
    retries: int,
    retry_delay: Duration,
    backoff: float | Backoff | None,
    lease: Duration | None,
    heartbeat: Duration | None,
    on_reclaim: OnReclaim,
) -> StepOptions:
    problems: list[str] = []
    if isinstance(retries, bool) or not isinstance(retries, int) or not 0 <= retries <= _MOST_RETRIES:
        problems.append(f"retries={retries!r} must be a whole number from 0 to {_MOST_RETRIES:,}")
    if on_reclaim not in ("rerun", "fail"):
        problems.append(f"on_reclaim={on_reclaim!r} must be 'rerun' or 'fail'")
    pause = duration_or_problem(retry_delay, "retry_delay", problems)
    rule = _read_backoff(backoff, problems)
    max_delay = duration_or_problem(rule.get("max_delay", _LONGEST_PAUSE), "backoff.max_delay", problems)
    held = None if lease is None else _positive(lease, "lease", problems)
    beat = None if heartbeat is None else _positive(heartbeat, "heartbeat", problems)
    if held is not None and beat is not None and beat >= held > timedelta(0):
        problems.append(
            f"heartbeat={heartbeat!r} must be shorter than lease={lease!r}, or the lease ends in between"
        )
    _refuse(step_id, problems)
    return StepOptions(
        retries=retries,
        retry_delay=pause,
        factor=float(rule.get("factor", 1)),
        max_delay=min(max_delay, _LONGEST_PAUSE),
        jitter=rule.get("jitter", False),
        lease=held,
        heartbeat=beat,
        on_reclaim=on_reclaim,
    )


def _refuse(step_id: str, problems: list[str]) -> None:
    if problems:
        raise DefinitionError(f"step {step_id!r}", tuple(problems))


def _read_backoff(backoff: object, problems: list[str]) -> Backoff:
    if backoff is None:
        return {}
    given: object = backoff if isinstance(backoff, Mapping) else {"factor": backoff}
    rule = dict(cast("Mapping[object, object]", given))
    unknown = [name for name in rule if name not in Backoff.__annotations__]
    if unknown:
        known = ", ".join(Backoff.__annotations__)
        problems.append(f"backoff has no {unknown[0]!r}; it is a factor, or a dict of {known}")
    factor = rule.get("factor", 1)
    if not is_factor(factor):
        problems.append(f"backoff={factor!r} must have a finite factor of at least 1")
    if not isinstance(rule.get("jitter", False), bool):
        problems.append(f"backoff.jitter={rule['jitter']!r} must be True or False")
    return cast(Backoff, rule)


def _positive(value: Duration, field: str, problems: list[str]) -> timedelta:
    before = len(problems)
    duration = duration_or_problem(value, field, problems)
    if not duration and len(problems) == before:
        problems.append(f"{field}={value!r} must be longer than nothing")
    return duration
