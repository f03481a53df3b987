"""What a stage's body, and the check of an asynchronous batch, may return besides a plain output."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Generic

from typing_extensions import TypeVar

from stagewright.duration import Duration, parse_duration
from stagewright.json_values import Json

__all__ = ["NotReady", "Ready", "StageResult", "Suspend"]

Out = TypeVar("Out", covariant=True)


@dataclass(frozen=True, kw_only=True)
class StageResult(Generic[Out]):
    """An output with what was measured and made on the way.

    Attributes:
        output: The stage's output.
        metrics: Numbers and other JSON kept on the stage's record.
        artifacts: Values written to the blob store, by name.
    """

    output: Out
    metrics: Mapping[str, Json] = field(default_factory=dict)
    artifacts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, init=False)
class Suspend:
    """The work goes on elsewhere; ask `check_completion` about it later. For `mode="async-batch"` only.

    Attributes:
        state: What `check_completion` and `ctx.resume_state` get: JSON, or what `check_completion` declares.
        poll_interval: Time between two checks.
        max_wait: After this long the stage fails.
    """

    state: object
    poll_interval: timedelta
    max_wait: timedelta

    def __init__(self, state: object, *, poll_interval: Duration = "30s", max_wait: Duration = "24h") -> None:
        """Suspend the stage.

        Args:
            state: What identifies the work, such as a batch id.
            poll_interval: Time between two checks.
            max_wait: After this long the stage fails.

        Raises:
            InvalidDurationError: If a duration is negative, not a number or beyond the calendar.
        """
        object.__setattr__(self, "state", state)
        object.__setattr__(self, "poll_interval", parse_duration(poll_interval, field="poll_interval"))
        object.__setattr__(self, "max_wait", parse_duration(max_wait, field="max_wait"))


@dataclass(frozen=True)
class Ready(Generic[Out]):
    """The work is done; `output` is the stage's output, plain or as a `StageResult`."""

    output: Out


@dataclass(frozen=True, slots=True, init=False)
class NotReady:
    """The work isn't done.

    Attributes:
        next_check_in: When to ask again; None means after the stage's poll interval.
    """

    next_check_in: timedelta | None

    def __init__(self, next_check_in: Duration | None = None) -> None:
        """Say when to ask again.

        Raises:
            InvalidDurationError: If the duration is negative, not a number or beyond the calendar.
        """
        parsed = None if next_check_in is None else parse_duration(next_check_in, field="next_check_in")
        object.__setattr__(self, "next_check_in", parsed)
