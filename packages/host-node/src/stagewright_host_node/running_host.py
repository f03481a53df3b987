"""The parts of a host, put together: what rings whose bell, and what is started and stopped when."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

from stagewright.commands import ExecuteJobResult
from stagewright.hosting import EventSinkMonitor
from stagewright.hosting.job_execution import JobExecution
from stagewright.hosting.job_runner import tell_others
from stagewright.hosting.settings import HostSettings
from stagewright.kernel import Kernel
from stagewright.ports import HeartbeatChannel, OpensHeartbeats
from stagewright_host_node.backoff import BackOff
from stagewright_host_node.cancellations import CancellationWatch
from stagewright_host_node.claim_loop import ClaimLoop
from stagewright_host_node.continuing import Continuing
from stagewright_host_node.delivery import DeliveryLoop
from stagewright_host_node.drain import Drain
from stagewright_host_node.executions import Executions
from stagewright_host_node.health import HostHealth
from stagewright_host_node.heartbeats import HeartbeatThread
from stagewright_host_node.left_jobs import LeftJobs
from stagewright_host_node.loop_watch import LoopWatch
from stagewright_host_node.orchestration import OrchestrationLoop
from stagewright_host_node.stats import HostStats
from stagewright_host_node.thread_cap import ThreadCap
from stagewright_host_node.wakeups import WakeUps

__all__ = ["RunningHost"]

_DEAD_AFTER: Final = 30.0
_LAST_MOMENT: Final = 0.5
_log: Final = logging.getLogger("stagewright.host")


class RunningHost:
    """One life of a host, from its start to the end of its drain.

    Args:
        kernel: The kernel.
        settings: The host's settings, whose `worker_id` names this incarnation.
    """

    def __init__(self, kernel: Kernel, settings: HostSettings) -> None:
        self._kernel = kernel
        self._settings = settings
        self._started_at: float | None = None
        self._ended_at: float | None = None
        self._draining = False
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._heartbeats: HeartbeatThread | None = None
        self._watch: LoopWatch | None = None
        interval = settings.job_heartbeat_interval.total_seconds()
        self._cap = ThreadCap(kernel.ports.executor)
        self._left = LeftJobs(self._tell_others)
        self._tellings: set[asyncio.Task[None]] = set()
        self._monitor = EventSinkMonitor(kernel.ports.clock.now)
        self._executions = Executions(kernel, settings, self._execution_ended, successor=self._successor)
        self._wakeups = WakeUps(kernel, self._notified)
        self._cancellations = CancellationWatch(kernel, self._executions, interval)
        self._delivery = DeliveryLoop(kernel, settings.max_outbox_flush_per_tick, self._monitor)
        self._claim_loop = ClaimLoop(
            kernel,
            settings,
            self._executions,
            look_every=self._look_every,
            cap=self._cap,
            left=self._left,
            claimed=self._delivery.wake,
        )
        self._continuing = Continuing(settings.worker_id, self._executions, self._claim_loop, self._cap)
        self._orchestration = OrchestrationLoop(
            kernel, settings, work_is_due=self._claim_loop.wake, events_are_due=self._delivery.wake
        )

    def start(self) -> None:
        """Begin, on the running event loop."""
        self._started_at = self._claim_loop.last_tick = time.monotonic()
        self._watch = LoopWatch()
        self._watch.start()
        channel = self._open_heartbeats()
        if channel is not None:
            interval = self._settings.job_heartbeat_interval.total_seconds()
            self._heartbeats = HeartbeatThread(channel, lambda: self._executions.current, interval)
            self._heartbeats.start()
        for name, work in (
            ("wake-ups", self._wakeups.run),
            ("claims", self._claim_loop.run),
            ("upkeep", self._orchestration.run),
            ("cancellations", self._cancellations.run),
            ("delivery", self._delivery.run),
        ):
            self._tasks[name] = asyncio.create_task(_kept_going(name, work), name=f"stagewright {name}")

    async def drain(self) -> None:
        """Stop as `Drain` does it, then end the threads."""
        self._draining = True
        try:
            await Drain(
                claim_loop=self._claim_loop,
                claiming=self._tasks["claims"],
                others=tuple(self._tasks[name] for name in ("wake-ups", "upkeep", "delivery")),
                executions=self._executions,
                delivery=self._delivery,
                timeout=self._settings.shutdown_timeout.total_seconds(),
            ).run()
            if self._tellings:
                await asyncio.wait(self._tellings, timeout=_LAST_MOMENT)
        finally:
            self._tasks["cancellations"].cancel()
            if self._heartbeats is not None:
                self._heartbeats.stop()
            if self._watch is not None:
                self._watch.stop()
            self._ended_at = time.monotonic()

    def stats(self) -> HostStats:
        """Counted since the start."""
        is_running = self._started_at is not None and self._ended_at is None
        uptime = time.monotonic() - self._started_at if is_running and self._started_at is not None else 0.0
        counts = self._executions.by_outcome
        return HostStats(
            worker_id=self._settings.worker_id,
            is_running=is_running,
            is_draining=self._draining and is_running,
            uptime=timedelta(seconds=uptime),
            executing=len(self._executions.current),
            concurrency=self._settings.concurrency,
            completed=counts["completed"],
            suspended=counts["suspended"],
            failed=counts["failed"],
            retried=counts["retried"],
            discarded=counts["discarded"],
            unsettled=counts["unsettled"],
            orchestration_ticks=self._orchestration.ticks,
            notifications=is_running and self._wakeups.are_healthy,
            abandoned_threads=self._cap.abandoned,
            longest_block=timedelta(seconds=0.0 if self._watch is None else self._watch.longest_block),
            event_sink=self._monitor.report(),
        )

    def health(self) -> HostHealth:
        """As of now, without asking anybody."""
        if self._started_at is None or self._ended_at is not None:
            return HostHealth(live=False, ready=False, problems=("the host doesn't run",))
        silent = time.monotonic() - self._claim_loop.last_tick
        live = self._draining or silent < _DEAD_AFTER
        problems = []
        if not live:
            problems.append(f"the claim loop has not gone round for {silent:.0f} s")
        if self._draining:
            problems.append("the host was told to stop")
        if self._claim_loop.failure is not None:
            problems.append(f"no work can be claimed: {self._claim_loop.failure}")
        obstacle = self._cap.obstacle()
        if obstacle is not None:
            problems.append(obstacle)
        return HostHealth(
            live=live, ready=not problems, problems=tuple(problems), degraded=tuple(self._degraded())
        )

    def _degraded(self) -> list[str]:
        found = []
        if not self._wakeups.are_healthy:
            found.append("notifications don't come through; work is looked for at the poll interval")
        if self._orchestration.failure is not None:
            found.append(f"the upkeep of runs fails: {self._orchestration.failure}")
        if self._heartbeats is not None and self._heartbeats.failure is not None:
            found.append(f"leases can't be renewed: {self._heartbeats.failure}")
        found += self._orchestration.unserved.waiting
        report = self._monitor.report()
        if report.status == "degraded":
            found.append(f"the event sink refuses events: {report.last_error}")
        if self._watch is not None and self._watch.blocked_for:
            found.append(f"the event loop is blocked by {self._watch.culprit or 'something'}")
        return found

    def _open_heartbeats(self) -> HeartbeatChannel | None:
        transport = self._kernel.ports.job_transport
        channel = transport.open_heartbeats() if isinstance(transport, OpensHeartbeats) else None
        if channel is None:
            _log.warning(
                "leases are renewed on the event loop, because %s opens no channel of its own for that here; code that "
                "blocks the loop for longer than %g s loses its lease",
                type(transport).__name__,
                self._settings.stale_lease_threshold.total_seconds(),
            )
        return channel

    def _look_every(self) -> float | None:
        """After how many seconds the claim loop looks by itself."""
        if not self._wakeups.are_healthy:
            return self._settings.poll_interval.total_seconds()
        if self._orchestration.foresees and self._kernel.ports.transport_enlists:
            return None
        return self._settings.orchestration_interval.total_seconds()

    async def _tell_others(self) -> None:
        # Where jobs are elsewhere, whatever makes them tells of them itself.
        if self._kernel.ports.transport_enlists:
            await tell_others(self._kernel)

    def _notified(self) -> None:
        self._claim_loop.wake()
        self._cancellations.wake()
        self._delivery.wake()

    def _successor(self, execution: JobExecution) -> str | None:
        return self._continuing.successor(execution)

    def _execution_ended(self, result: ExecuteJobResult | None) -> None:
        has_gone_on = result is not None and result.next_job is not None
        if result is None or result.outcome != "completed" or result.leaves_jobs:
            self._left.note()
        if self._draining:
            # Nothing is claimed any more, and the last execution may go on for long.
            telling = asyncio.create_task(self._left.tell_now())
            self._tellings.add(telling)
            telling.add_done_callback(self._tellings.discard)
        if not has_gone_on or self._left.wait is not None:
            self._claim_loop.wake_for_jobs()
        self._delivery.wake()
        if result is None or result.will_retry or result.ghost:
            self._orchestration.look_soon()
        elif result.next_poll_at is not None:
            self._orchestration.remember(result.next_poll_at)


async def _kept_going(name: str, work: Callable[[], Awaitable[None]]) -> None:
    """Run a loop, and begin it anew should it fail."""
    backoff = BackOff()
    while True:
        try:
            await work()
            return
        except Exception:
            _log.exception("the loop of the host that looks after %s failed; it begins anew", name)
            await asyncio.sleep(backoff.failed())
