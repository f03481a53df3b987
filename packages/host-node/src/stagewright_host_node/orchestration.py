"""The upkeep of runs: at an interval, and whenever something is known to be due."""

import asyncio
import heapq
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from stagewright.hosting.maintenance import ALL_STEPS, TickReport, UpkeepStep, run_maintenance_tick
from stagewright.hosting.settings import HostSettings
from stagewright.kernel import Kernel
from stagewright.ports import ForeseesWork
from stagewright.records import WorkOutlook
from stagewright.runtime.failure import describe_exception
from stagewright_host_node.backoff import BackOff
from stagewright_host_node.unserved import UnservedRuns

__all__ = ["OrchestrationLoop"]

_LEAST_PAUSE: Final = 0.05
_STUCK_LOOKS: Final = 5
_UNSERVED_INTERVAL: Final = 60.0
_log: Final = logging.getLogger("stagewright.host")


class OrchestrationLoop:
    """Ticks at an interval, skips what is not needed, and wakes early for what is due.

    One look at the store says which steps are needed, so an idle host asks next to nothing; a store that can't be
    looked at that way gets every step. Ticks never overlap: one that comes late is skipped.

    Args:
        kernel: The kernel.
        settings: The host's settings.
        work_is_due: Called when there are jobs or runs to claim.
        events_are_due: Called when there are events to deliver.

    Attributes:
        ticks: How many there were.
        failure: Why the last look or a step of the last tick failed, or None.
        unserved: What this host leaves to others.
    """

    def __init__(
        self,
        kernel: Kernel,
        settings: HostSettings,
        *,
        work_is_due: Callable[[], None],
        events_are_due: Callable[[], None],
    ) -> None:
        self.ticks = 0
        self.failure: str | None = None
        self.unserved = UnservedRuns()
        self._kernel = kernel
        self._settings = settings
        self._work_is_due = work_is_due
        self._events_are_due = events_are_due
        persistence = kernel.ports.persistence
        self._foresees = persistence if isinstance(persistence, ForeseesWork) else None
        self._interval = settings.orchestration_interval.total_seconds()
        self._stuck_interval = settings.stuck_threshold.total_seconds() / _STUCK_LOOKS
        self._next_full = time.monotonic()
        self._next_stuck = time.monotonic()
        self._next_unserved = time.monotonic()
        self._known: list[datetime] = []
        self._foreseen: datetime | None = None
        self._bell = asyncio.Event()
        self._backoff = BackOff()
        self._overdue = BackOff(first=0.5, longest=self._interval)

    @property
    def foresees(self) -> bool:
        """Whether looks at the store say when there is something to claim."""
        return self._foresees is not None

    def look_soon(self) -> None:
        """Something will be due later that only the store knows: a retry, an event, a run of somebody else."""
        self._bell.set()

    def remember(self, moment: datetime) -> None:
        """A stage that was suspended here is due then."""
        heapq.heappush(self._known, moment)
        self._bell.set()

    async def run(self) -> None:
        """Tick until cancelled."""
        while True:
            await self._tick()
            await asyncio.sleep(_LEAST_PAUSE)
            try:
                async with asyncio.timeout(self._seconds_to_wait()):
                    await self._bell.wait()
            except TimeoutError:
                continue

    async def _tick(self) -> None:
        self._bell.clear()
        self.ticks += 1
        is_full = time.monotonic() >= self._next_full
        if is_full:
            self._next_full = time.monotonic() + self._interval
        asked_at = self._now()
        try:
            outlook = None if self._foresees is None else await self._foresees.outlook(asked_at)
        except Exception as error:
            self._note(str(describe_exception(error)))
            # What is due is found again by the next look that succeeds.
            self._foreseen = None
            await asyncio.sleep(self._backoff.failed())
            self._bell.set()
            return
        self._backoff.succeeded()
        steps = self._steps(outlook, asked_at, is_full=is_full)
        report = await run_maintenance_tick(self._kernel, self._settings, steps=steps)
        self._note(f"a step failed: {report.failed_steps[0].value}" if report.failed_steps else None)
        if UpkeepStep.FIND_UNSERVED in steps and UpkeepStep.FIND_UNSERVED not in report.failed_steps:
            self.unserved.note(report.unserved)
        self._plan(outlook, asked_at)
        if UpkeepStep.POLL_SUSPENDED in steps and outlook is not None:
            self._plan_polls(report.suspended_checked, asked_at)
        if report.made_work or outlook is None or _is_due(outlook.next_job_at, asked_at):
            self._work_is_due()
        if outlook is None or outlook.undelivered_events or replace(report, unserved=()) != TickReport():
            self._events_are_due()

    def _steps(
        self, outlook: WorkOutlook | None, asked_at: datetime, *, is_full: bool
    ) -> frozenset[UpkeepStep]:
        steps = set(ALL_STEPS - {UpkeepStep.FLUSH_OUTBOX})
        if not is_full:
            steps -= {UpkeepStep.REAP_LEASES, UpkeepStep.ENQUEUE_OWED}
        if not is_full or self._settings.retention is None:
            steps.discard(UpkeepStep.PURGE)
        if not is_full or time.monotonic() < self._next_stuck:
            steps.discard(UpkeepStep.REAP_STUCK)
        if not is_full or time.monotonic() < self._next_unserved:
            steps.discard(UpkeepStep.FIND_UNSERVED)
        else:
            self._next_unserved = time.monotonic() + _UNSERVED_INTERVAL
        if outlook is not None:
            if not outlook.pending_runs:
                steps.discard(UpkeepStep.CLAIM_RUNS)
            if not outlook.running_runs:
                steps -= {UpkeepStep.ENQUEUE_OWED, UpkeepStep.REAP_STUCK}
            if self._kernel.ports.transport_enlists and not outlook.held_jobs:
                steps.discard(UpkeepStep.REAP_LEASES)
            if not _is_due(outlook.next_poll_at, asked_at):
                steps.discard(UpkeepStep.POLL_SUSPENDED)
        if UpkeepStep.REAP_STUCK in steps:
            self._next_stuck = time.monotonic() + self._stuck_interval
        return frozenset(steps)

    def _plan(self, outlook: WorkOutlook | None, asked_at: datetime) -> None:
        """Note when something is due next, as of the moment of the look: what came due since is still to come."""
        while self._known and self._known[0] <= asked_at:
            heapq.heappop(self._known)
        later = [] if outlook is None else [outlook.next_poll_at, outlook.next_job_at]
        ahead = [moment for moment in later if moment is not None and moment > asked_at]
        self._foreseen = min(ahead, default=None)

    def _plan_polls(self, checked: int, asked_at: datetime) -> None:
        """After stages were due: look for the next ones at once, or again later if somebody else has to take them."""
        if checked:
            self._overdue.succeeded()
            self._bell.set()
            return
        again_at = asked_at + timedelta(seconds=self._overdue.failed())
        self._foreseen = again_at if self._foreseen is None else min(self._foreseen, again_at)

    def _seconds_to_wait(self) -> float:
        wait = self._next_full - time.monotonic()
        moments = [*self._known[:1], *([] if self._foreseen is None else [self._foreseen])]
        if moments:
            wait = min(wait, (min(moments) - self._now()).total_seconds())
        return max(0.0, wait)

    def _note(self, failure: str | None) -> None:
        if failure is not None and self.failure is None:
            _log.warning("the upkeep of runs fails: %s", failure)
        elif failure is None and self.failure is not None:
            _log.info("the upkeep of runs goes on")
        self.failure = failure

    def _now(self) -> datetime:
        return self._kernel.ports.clock.now()


def _is_due(moment: datetime | None, now: datetime) -> bool:
    return moment is not None and moment <= now
