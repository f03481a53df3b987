import threading
from typing import TypeVar, overload

from stagewright.errors import InvalidSettingError
from stagewright.events import Event

__all__ = ["CollectingEventSink"]

E = TypeVar("E", bound=Event)


class CollectingEventSink:
    """An event sink that keeps what it is given, and refuses events while it is told to."""

    def __init__(self, *, max_retries: int = 3) -> None:
        """Start empty and accepting.

        Args:
            max_retries: Refusals of one event until it becomes a dead letter.

        Raises:
            InvalidSettingError: If that is no number of times.
        """
        _require_times("max_retries", max_retries)
        self.max_retries = max_retries
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._refused: list[Event] = []
        self._failure: Exception | None = None
        self._failures_left: int | None = None

    @property
    def events(self) -> list[Event]:
        """What was accepted, in order."""
        with self._lock:
            return list(self._events)

    @property
    def refused(self) -> list[Event]:
        """What was refused, in order, each time it was."""
        with self._lock:
            return list(self._refused)

    async def emit(self, event: Event) -> None:
        """Keep the event, or raise what `fail_with` was given."""
        with self._lock:
            failure = self._next_failure()
            (self._events if failure is None else self._refused).append(event)
        if failure is not None:
            raise failure

    def fail_with(self, error: Exception, *, times: int | None = None) -> None:
        """Refuse the events to come.

        Args:
            error: What `emit` raises.
            times: How many events to refuse; None refuses all until `accept` is called.

        Raises:
            InvalidSettingError: If the error can't be raised, or `times` is no number of times.
        """
        given: object = error
        if not isinstance(given, Exception):
            raise InvalidSettingError("error", given, "must be an exception, such as ConnectionError('away')")
        if times is not None:
            _require_times("times", times)
        with self._lock:
            self._failure, self._failures_left = error, times

    def accept(self) -> None:
        """Accept the events to come."""
        with self._lock:
            self._failure = None

    def clear(self) -> None:
        """Forget all events, accepted and refused."""
        with self._lock:
            self._events.clear()
            self._refused.clear()

    @overload
    def by_type(self, wanted: type[E]) -> list[E]: ...
    @overload
    def by_type(self, wanted: str) -> list[Event]: ...
    def by_type(self, wanted: str | type[E]) -> list[Event] | list[E]:
        """The accepted events of one type, given as a class or as text such as `"stage:failed"`."""
        if isinstance(wanted, str):
            return [event for event in self.events if event.type == wanted]
        return [event for event in self.events if isinstance(event, wanted)]

    def types(self, run_id: str | None = None) -> list[str]:
        """The types of the accepted events, in order, of one run or of all."""
        return [event.type for event in self.events if run_id in (None, event.run_id)]

    def _next_failure(self) -> Exception | None:
        if self._failure is None or self._failures_left is None:
            return self._failure
        if self._failures_left <= 0:
            self._failure = None
            return None
        self._failures_left -= 1
        return self._failure


def _require_times(setting: str, number: object) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise InvalidSettingError(setting, number, "must be a whole number, not below 0")
