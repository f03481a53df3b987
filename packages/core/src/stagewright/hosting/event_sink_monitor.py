"""Watching whether events get out: one log line when that changes, and a report for whoever asks."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, TypeAlias

from stagewright.commands import FlushOutboxResult
from stagewright.runtime.failure import describe_exception

__all__ = ["EventSinkMonitor", "EventSinkReport", "EventSinkStatus"]

EventSinkStatus: TypeAlias = Literal["unknown", "healthy", "degraded"]
_log: Final = logging.getLogger("stagewright.host")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSinkReport:
    """How the event sink is.

    Attributes:
        status: `unknown` before the first delivery.
        since: Since when, in UTC; None before the first delivery.
        consecutive_failures: How many deliveries in a row were refused at least in part.
        dead_lettered: How many events were given up since this host began.
        last_error: What the sink said last; None once it is healthy again.
    """

    status: EventSinkStatus = "unknown"
    since: datetime | None = None
    consecutive_failures: int = 0
    dead_lettered: int = 0
    last_error: str | None = None


class EventSinkMonitor:
    """Follows what flushes of the outbox say about the event sink.

    Args:
        now: The time, aware.
        name: What the log lines call the sink.
    """

    def __init__(self, now: Callable[[], datetime], *, name: str = "the event sink") -> None:
        self._now = now
        self._name = name
        self._report = EventSinkReport()

    def report(self) -> EventSinkReport:
        """How it is now."""
        return self._report

    def observe(self, result: FlushOutboxResult) -> None:
        """Take note of a flush. One that had nothing to deliver says nothing about a sink that refused before."""
        if result.dead_lettered:
            _log.error(
                "%s: %d %s given up; ReplayDeadLetters (plugin.replayDLQ) offers what was given up again: %s",
                self._name,
                result.dead_lettered,
                "event was" if result.dead_lettered == 1 else "events were",
                result.event_sink_error,
            )
        if result.event_sink_status == "degraded":
            self._degraded(result.event_sink_error or "it refused an event", result.dead_lettered)
        elif result.published or self._report.status == "unknown":
            self._healthy()

    def observe_error(self, error: BaseException) -> None:
        """Take note of a flush that raised: nothing was delivered, whoever is to blame."""
        self._degraded(str(describe_exception(error)), 0)

    def _healthy(self) -> None:
        before = self._report
        since = before.since if before.status == "healthy" else self._now()
        self._report = EventSinkReport(status="healthy", since=since, dead_lettered=before.dead_lettered)
        if before.status == "degraded":
            _log.info("%s accepts events again", self._name)

    def _degraded(self, error: str, dead_lettered: int) -> None:
        before = self._report
        since = before.since if before.status == "degraded" else self._now()
        self._report = EventSinkReport(
            status="degraded",
            since=since,
            consecutive_failures=before.consecutive_failures + 1,
            dead_lettered=before.dead_lettered + dead_lettered,
            last_error=error,
        )
        if before.status != "degraded":
            _log.warning("%s refuses events, which stay in the outbox meanwhile: %s", self._name, error)
