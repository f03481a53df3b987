"""What a host has done and is doing."""

from dataclasses import dataclass
from datetime import timedelta

from stagewright.hosting import EventSinkReport

__all__ = ["HostStats"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStats:
    """Counted since the host was started.

    Attributes:
        worker_id: The name of this incarnation, as jobs and errors have it.
        is_running: Whether it was started and has not stopped.
        is_draining: Whether it was told to stop and finishes what it has.
        uptime: Since when it runs; zero while it doesn't.
        executing: How many bodies run now.
        concurrency: How many may run at a time.
        completed: How many stages completed here.
        suspended: How often a body suspended.
        failed: How many stages failed for good.
        retried: How many attempts failed that are made again.
        discarded: How many outcomes nobody wanted: of cancelled runs, lost leases, jobs handed back.
        unsettled: How many outcomes could not be recorded.
        orchestration_ticks: How often the upkeep of runs was looked after.
        notifications: Whether notifications get through, so that work is found at once.
        abandoned_threads: How many threads run bodies that nobody waits for any more.
        longest_block: For how long the event loop was blocked at most.
        event_sink: How the event sink is.
    """

    worker_id: str
    is_running: bool
    is_draining: bool
    uptime: timedelta
    executing: int
    concurrency: int
    completed: int
    suspended: int
    failed: int
    retried: int
    discarded: int
    unsettled: int
    orchestration_ticks: int
    notifications: bool
    abandoned_threads: int
    longest_block: timedelta
    event_sink: EventSinkReport

    @property
    def executed(self) -> int:
        """How many executions have ended, however they did."""
        return self.completed + self.suspended + self.failed + self.retried + self.discarded + self.unsettled
