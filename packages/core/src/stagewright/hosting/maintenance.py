"""The upkeep of runs that no job does: one tick of it, each step with its own error boundary."""

import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Literal, TypeVar

from stagewright.commands import (
    ClaimPendingRuns,
    FlushOutbox,
    ListVersions,
    PollSuspendedStages,
    PurgeRuns,
    ReapStaleLeases,
    ReapStuckRuns,
    TransitionRun,
)
from stagewright.duration import subtract_within_calendar
from stagewright.hosting.settings import HOST_DEFAULTS, HostSettings
from stagewright.kernel import Kernel
from stagewright.kernel.commands.job_enqueue_owed import EnqueueOwedJobs
from stagewright.records import VersionSummary
from stagewright.runtime.failure import describe_exception

__all__ = ["ALL_STEPS", "TickReport", "UpkeepStep", "run_maintenance_tick"]

R = TypeVar("R")
_log: Final = logging.getLogger("stagewright.host")


class UpkeepStep(StrEnum):
    """One thing that a tick looks after, in this order."""

    CLAIM_RUNS = "claim pending runs"
    REAP_LEASES = "reap stale leases"
    POLL_SUSPENDED = "resume suspended stages"
    ENQUEUE_OWED = "enqueue owed jobs"
    FLUSH_OUTBOX = "deliver events"
    REAP_STUCK = "reap stuck runs"
    PURGE = "purge old runs"
    FIND_UNSERVED = "look for runs that are not served here"


ALL_STEPS: Final = frozenset(UpkeepStep)


@dataclass(frozen=True, slots=True, kw_only=True)
class TickReport:
    """What a tick did.

    Attributes:
        claimed: Runs that were set going.
        suspended_checked: Suspended stages that were due.
        suspended_resumed: Those of them that go on.
        suspended_failed: Those of them that failed.
        leases_released: Jobs whose worker was lost and that are claimable again.
        leases_expired: Jobs that ended for good with their lease.
        owed_enqueued: Jobs that had been owed and are in the queue now.
        events_published: Events that the sink accepted.
        events_failed: Events that are offered again.
        events_dead_lettered: Events that were given up.
        event_sink_status: `degraded` if the sink refused anything, or nothing could be delivered.
        event_sink_error: What was in the way first.
        stuck_failed: Runs that nothing could move any more and that failed.
        stuck_healed: Runs that were moved on.
        stuck_requeued: Jobs that were missing and are in the queue again.
        purged: Runs that were deleted because they ended long ago.
        unserved: Versions that have runs to do which this kernel doesn't serve; without a worker that does, they wait.
        failed_steps: Steps that raised; the others ran all the same.
    """

    claimed: int = 0
    suspended_checked: int = 0
    suspended_resumed: int = 0
    suspended_failed: int = 0
    leases_released: int = 0
    leases_expired: int = 0
    owed_enqueued: int = 0
    events_published: int = 0
    events_failed: int = 0
    events_dead_lettered: int = 0
    event_sink_status: Literal["healthy", "degraded"] = "healthy"
    event_sink_error: str | None = None
    stuck_failed: int = 0
    stuck_healed: int = 0
    stuck_requeued: int = 0
    purged: int = 0
    unserved: tuple[VersionSummary, ...] = ()
    failed_steps: tuple[UpkeepStep, ...] = ()

    @property
    def made_work(self) -> bool:
        """Whether there may be jobs to claim now that there weren't before."""
        return any((self.claimed, self.suspended_resumed, self.leases_released, self.owed_enqueued)) or bool(
            self.stuck_healed or self.stuck_requeued
        )


async def run_maintenance_tick(
    kernel: Kernel, options: HostSettings = HOST_DEFAULTS, *, steps: Collection[UpkeepStep] = ALL_STEPS
) -> TickReport:
    """Look once after what no job does: runs to claim, sleeps that are over, lost workers, events, stuck and old runs.

    A step that raises is logged, and the others run. Several processes may do this at once.

    Args:
        kernel: The kernel.
        options: How much at once, and how long a lease lasts.
        steps: Which steps; all by default.
    """
    tick = _Tick(kernel, options)
    for step in UpkeepStep:
        if step in steps:
            await tick.take(step)
    return tick.report


class _Tick:
    def __init__(self, kernel: Kernel, options: HostSettings) -> None:
        self.report = TickReport()
        self._kernel = kernel
        self._options = options
        self._work: dict[UpkeepStep, Callable[[], Awaitable[TickReport]]] = {
            UpkeepStep.CLAIM_RUNS: self._claim_runs,
            UpkeepStep.REAP_LEASES: self._reap_leases,
            UpkeepStep.POLL_SUSPENDED: self._poll_suspended,
            UpkeepStep.ENQUEUE_OWED: self._enqueue_owed,
            UpkeepStep.FLUSH_OUTBOX: self._flush_outbox,
            UpkeepStep.REAP_STUCK: self._reap_stuck,
            UpkeepStep.PURGE: self._purge,
            UpkeepStep.FIND_UNSERVED: self._find_unserved,
        }

    async def take(self, step: UpkeepStep) -> None:
        try:
            self.report = await self._work[step]()
        except Exception as error:  # one step must not keep the others from their work
            _log.warning("a step of the upkeep failed (%s): %s", step.value, describe_exception(error))
            _log.debug("its traceback", exc_info=True)
            self.report = replace(self.report, failed_steps=(*self.report.failed_steps, step))
            if step is UpkeepStep.FLUSH_OUTBOX:
                self.report = replace(
                    self.report,
                    event_sink_status="degraded",
                    event_sink_error=str(describe_exception(error)),
                )

    async def _claim_runs(self) -> TickReport:
        options = self._options
        done = await self._kernel.dispatch(
            ClaimPendingRuns(options.worker_id, max_claims=options.max_claims_per_tick, serves=options.serves)
        )
        return replace(self.report, claimed=len(done.claimed))

    async def _poll_suspended(self) -> TickReport:
        options = self._options
        done = await self._kernel.dispatch(
            PollSuspendedStages(max_checks=options.max_suspended_checks_per_tick, serves=options.serves)
        )
        for run_id in done.resumed_run_ids:
            await self._move_on(run_id)
        return replace(
            self.report,
            suspended_checked=done.checked,
            suspended_resumed=done.resumed,
            suspended_failed=done.failed,
        )

    async def _move_on(self, run_id: str) -> None:
        try:
            await self._kernel.dispatch(TransitionRun(run_id))
        except Exception as error:  # one run must not keep the others waiting
            _log.warning("run %s could not be moved on yet: %s", run_id, describe_exception(error))

    async def _reap_leases(self) -> TickReport:
        options = self._options
        done = await self._kernel.dispatch(
            ReapStaleLeases(options.stale_lease_threshold, absolute_timeout=options.absolute_timeout)
        )
        return replace(self.report, leases_released=done.released, leases_expired=done.expired)

    async def _enqueue_owed(self) -> TickReport:
        done = await self._kernel.dispatch(EnqueueOwedJobs())
        return replace(self.report, owed_enqueued=done.enqueued)

    async def _flush_outbox(self) -> TickReport:
        done = await self._kernel.dispatch(FlushOutbox(self._options.max_outbox_flush_per_tick))
        return replace(
            self.report,
            events_published=done.published,
            events_failed=done.failed,
            events_dead_lettered=done.dead_lettered,
            event_sink_status=done.event_sink_status,
            event_sink_error=done.event_sink_error,
        )

    async def _reap_stuck(self) -> TickReport:
        done = await self._kernel.dispatch(ReapStuckRuns(self._options.stuck_threshold))
        return replace(
            self.report, stuck_failed=done.failed, stuck_healed=done.healed, stuck_requeued=done.requeued
        )

    async def _purge(self) -> TickReport:
        retention = self._options.retention
        if retention is None:
            return self.report
        older_than = subtract_within_calendar(self._kernel.ports.clock.now(), retention.older_than)
        done = await self._kernel.dispatch(
            PurgeRuns(older_than, statuses=retention.statuses, limit=retention.limit)
        )
        return replace(self.report, purged=done.purged)

    async def _find_unserved(self) -> TickReport:
        listed = await self._kernel.dispatch(ListVersions(only_active=True))
        return replace(self.report, unserved=listed.unserved_here)
