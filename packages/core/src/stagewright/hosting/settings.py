"""What a host can be told, and the only copy of each default."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import Any, Final, Literal, Self, cast

from stagewright.duration import LONGEST_DURATION, parse_duration
from stagewright.errors import InvalidDurationError, InvalidSettingError
from stagewright.hosting.retention import MOST_AT_ONCE, Retention
from stagewright.records import ServedDefinition

__all__ = ["HOST_DEFAULTS", "HostSettings"]

_LONGEST_WORKER_ID: Final = 255
_LEAST_STUCK: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """Everything that a host can be told.

    Attributes:
        worker_id: Who claims runs and jobs; stored with every job, for people to read.
        concurrency: How many bodies run at a time.
        orchestration_interval: How often the upkeep of runs is looked after: sleeps that are over, lost workers.
        poll_interval: How often work is looked for while notifications don't come through.
        stale_lease_threshold: A job whose lease was not renewed for so long is given to another worker.
        job_absolute_timeout: A job that was delivered so long ago fails, renewed or not; zero is no limit.
        job_heartbeat_interval: How often leases are renewed.
        max_claims_per_tick: How many runs are set going at once.
        max_suspended_checks_per_tick: How many suspended stages are resumed at once.
        max_outbox_flush_per_tick: How many events are delivered at once.
        shutdown_timeout: How long bodies may go on once the host was told to stop.
        abort_grace: How long a body may go on once it was told to stop.
        retention: Which runs that have ended are deleted; None keeps all of them.
        serves: Which definitions; None is what the kernel's registry lists, `"all"` is every one.
    """

    worker_id: str = "worker"
    concurrency: int = 8
    orchestration_interval: timedelta = timedelta(seconds=10)
    poll_interval: timedelta = timedelta(seconds=1)
    stale_lease_threshold: timedelta = timedelta(seconds=45)
    job_absolute_timeout: timedelta = timedelta(hours=1)
    job_heartbeat_interval: timedelta = timedelta(seconds=10)
    max_claims_per_tick: int = 10
    max_suspended_checks_per_tick: int = 10
    max_outbox_flush_per_tick: int = 100
    shutdown_timeout: timedelta = timedelta(seconds=10)
    abort_grace: timedelta = timedelta(seconds=5)
    retention: Retention | None = None
    serves: Sequence[ServedDefinition] | Literal["all"] | None = field(default=None)

    def __post_init__(self) -> None:
        """Refuse what no host could work with.

        Raises:
            InvalidSettingError, InvalidDurationError: Naming the setting, what was given, and the fix.
        """
        if not isinstance(self.worker_id, str) or not 0 < len(self.worker_id) <= _LONGEST_WORKER_ID:
            raise InvalidSettingError(
                "worker_id", self.worker_id, f"must be a text of 1 to {_LONGEST_WORKER_ID} characters"
            )
        for name in _NUMBERS:
            number: object = getattr(self, name)
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise InvalidSettingError(name, number, "must be a whole number of at least 1")
            if number > MOST_AT_ONCE:
                raise InvalidSettingError(name, number, f"must be at most {MOST_AT_ONCE:,}")
        for name in _INTERVALS:
            if not getattr(self, name):
                raise InvalidDurationError(name, str(getattr(self, name)), "must be longer than nothing")
        if self.job_heartbeat_interval * 2 > self.stale_lease_threshold:
            raise InvalidSettingError(
                "job_heartbeat_interval",
                str(self.job_heartbeat_interval),
                f"must be at most half of stale_lease_threshold, which is {self.stale_lease_threshold}",
            )
        if not isinstance(self.retention, Retention | None):
            raise InvalidSettingError("retention", self.retention, "must be None or a Retention")
        _check_served(self.serves)

    @property
    def stuck_threshold(self) -> timedelta:
        """For how long nothing may have happened to a run that nothing can move, until it is looked into."""
        return min(max(self.stale_lease_threshold * 3, _LEAST_STUCK), LONGEST_DURATION)

    @property
    def absolute_timeout(self) -> timedelta | None:
        """`job_absolute_timeout`, None without a limit."""
        return self.job_absolute_timeout or None

    def having(self, given: Mapping[str, Any]) -> Self:
        """These settings with others in their place, durations in any form.

        Args:
            given: Settings by name; None stands for the one there is.

        Raises:
            InvalidSettingError, InvalidDurationError: Naming the setting, what was given, and the fix.
        """
        known = {one.name for one in fields(self)}
        changed: dict[str, Any] = {}  # Any: each setting has its own type, which __post_init__ looks at
        for name, value in given.items():
            if name not in known:
                raise InvalidSettingError(
                    name, value, f"is no setting of a host; there are {', '.join(sorted(known))}"
                )
            if value is not None:
                changed[name] = _read(value, name)
        return replace(self, **changed)


def _check_served(serves: object) -> None:
    if serves is None or serves == "all":
        return
    is_list = isinstance(serves, Sequence) and not isinstance(serves, str | bytes)
    if not is_list or not all(isinstance(one, ServedDefinition) for one in cast("Sequence[object]", serves)):
        problem = 'must be None, "all" or a list of ServedDefinition(workflow_id, version)'
        raise InvalidSettingError("serves", serves, problem)


def _read(value: Any, name: str) -> object:  # Any: whatever a caller gives
    if name == "retention":
        return Retention.of(value)
    return parse_duration(value, field=name) if name in _DURATIONS else value


_NUMBERS: Final = (
    "concurrency",
    "max_claims_per_tick",
    "max_suspended_checks_per_tick",
    "max_outbox_flush_per_tick",
)
_INTERVALS: Final = (
    "orchestration_interval",
    "poll_interval",
    "stale_lease_threshold",
    "job_heartbeat_interval",
)
_DURATIONS: Final = frozenset((*_INTERVALS, "job_absolute_timeout", "shutdown_timeout", "abort_grace"))

HOST_DEFAULTS: Final = HostSettings()
