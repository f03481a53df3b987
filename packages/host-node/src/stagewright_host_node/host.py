"""`NodeHost`: a worker that runs until it is told to stop."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Literal, Self

from stagewright.duration import Duration
from stagewright.errors import InvalidSettingError
from stagewright.hosting import HOST_DEFAULTS, Retention
from stagewright.hosting.settings import HostSettings
from stagewright.kernel import Kernel
from stagewright.records import ServedDefinition
from stagewright.system import HomeProcess
from stagewright_host_node.deadline import ExitDeadline
from stagewright_host_node.health import HostHealth
from stagewright_host_node.identity import incarnation_of
from stagewright_host_node.running_host import RunningHost
from stagewright_host_node.signals import LEFT_WORK, StopSignals
from stagewright_host_node.stats import HostStats

__all__ = ["NodeHost"]

_BEYOND_TIMEOUT: Final = 1.0
_log: Final = logging.getLogger("stagewright.host")


class NodeHost:
    """Claims runs and jobs, executes bodies, keeps leases, wakes sleepers, recovers lost work, delivers events.

    Any number of hosts, in any number of processes, work on one store. Use it as `async with NodeHost(kernel):` beside
    other code, or `await NodeHost(kernel).run()` as all that a process does.

    Args:
        kernel: The kernel whose runs it works on.
        worker_id: What to call it; machine, process and start time are appended, so that every incarnation has an
            id of its own.
        concurrency: How many bodies run at a time.
        orchestration_interval: How often the upkeep of runs is looked after.
        poll_interval: How often work is looked for while notifications don't come through.
        stale_lease_threshold: A job whose lease was not renewed for so long is given to another worker.
        job_absolute_timeout: A job that was delivered so long ago fails, renewed or not; zero is no limit.
        job_heartbeat_interval: How often leases are renewed.
        max_claims_per_tick: How many runs are set going at once.
        max_suspended_checks_per_tick: How many suspended stages are resumed at once.
        max_outbox_flush_per_tick: How many events are delivered at once.
        shutdown_timeout: How long bodies may go on after `stop()`; what still runs then is handed back.
        abort_grace: How long a body may go on once it was told to stop because its run was cancelled or its lease
            lost.
        retention: Which runs that have ended are deleted, with everything of them: how old they may become,
            as `"30d"` or a timedelta, or a `Retention`; None keeps all of them.
        serves: Which definitions; None is what the kernel's registry lists, `"all"` is every one.
        handle_signals: Whether `run()` takes SIGTERM and SIGINT as the order to stop. The second leaves at once.

    Raises:
        InvalidSettingError, InvalidDurationError: Naming the setting, what was given, and the fix.
    """

    def __init__(
        self,
        kernel: Kernel,
        *,
        worker_id: str | None = None,
        concurrency: int = HOST_DEFAULTS.concurrency,
        orchestration_interval: Duration = HOST_DEFAULTS.orchestration_interval,
        poll_interval: Duration = HOST_DEFAULTS.poll_interval,
        stale_lease_threshold: Duration = HOST_DEFAULTS.stale_lease_threshold,
        job_absolute_timeout: Duration = HOST_DEFAULTS.job_absolute_timeout,
        job_heartbeat_interval: Duration = HOST_DEFAULTS.job_heartbeat_interval,
        max_claims_per_tick: int = HOST_DEFAULTS.max_claims_per_tick,
        max_suspended_checks_per_tick: int = HOST_DEFAULTS.max_suspended_checks_per_tick,
        max_outbox_flush_per_tick: int = HOST_DEFAULTS.max_outbox_flush_per_tick,
        shutdown_timeout: Duration = HOST_DEFAULTS.shutdown_timeout,
        abort_grace: Duration = HOST_DEFAULTS.abort_grace,
        retention: Retention | Mapping[str, Any] | timedelta | str | None = HOST_DEFAULTS.retention,
        serves: Sequence[ServedDefinition] | Literal["all"] | None = HOST_DEFAULTS.serves,
        handle_signals: bool = True,
    ) -> None:
        """Make a host; nothing happens until it is started."""
        if kernel.ports.is_borrowed:
            problem = "works in a transaction of yours; give the kernel itself, not what its `using` gave"
            raise InvalidSettingError("kernel", kernel, problem)
        label = HOST_DEFAULTS.worker_id if worker_id is None else worker_id
        self._settings = HOST_DEFAULTS.having(
            {
                "worker_id": incarnation_of(label),
                "concurrency": concurrency,
                "orchestration_interval": orchestration_interval,
                "poll_interval": poll_interval,
                "stale_lease_threshold": stale_lease_threshold,
                "job_absolute_timeout": job_absolute_timeout,
                "job_heartbeat_interval": job_heartbeat_interval,
                "max_claims_per_tick": max_claims_per_tick,
                "max_suspended_checks_per_tick": max_suspended_checks_per_tick,
                "max_outbox_flush_per_tick": max_outbox_flush_per_tick,
                "shutdown_timeout": shutdown_timeout,
                "abort_grace": abort_grace,
                "retention": retention,
                "serves": serves,
            }
        )
        self._kernel = kernel
        self._handle_signals = handle_signals
        self._home = HomeProcess()
        self._life = RunningHost(kernel, self._settings)
        self._is_running = False
        self._stopping: asyncio.Task[None] | None = None

    @classmethod
    def with_settings(cls, kernel: Kernel, settings: HostSettings, *, handle_signals: bool = True) -> Self:
        """A host with all its settings in one object, whose `worker_id` is the label."""
        given = {one.name: getattr(settings, one.name) for one in fields(settings)}
        return cls(kernel, handle_signals=handle_signals, **given)

    @property
    def worker_id(self) -> str:
        """The name of this incarnation, as jobs and errors have it."""
        return self._settings.worker_id

    @property
    def settings(self) -> HostSettings:
        """What it was told."""
        return self._settings

    async def start(self) -> None:
        """Begin to work, on the running event loop. Starting what runs does nothing.

        Raises:
            ForkedProcessError: If the process was forked since the host was made.
        """
        self._home.require("this NodeHost")
        if self._stopping is not None:
            await self.stop()
            self._life = RunningHost(self._kernel, self._settings)
        if not self._is_running:
            self._is_running = True
            self._life.start()
            _log.info("worker %s takes up to %d jobs at a time", self.worker_id, self._settings.concurrency)

    async def stop(self) -> None:
        """Claim nothing more, let bodies end for `shutdown_timeout`, hand back the rest, deliver events, and end.

        A job that is handed back can be claimed by others at once and spends nothing. A second call waits for the same
        end; stopping what doesn't run does nothing.

        Raises:
            ForkedProcessError: If the process was forked since the host was made.
        """
        self._home.require("this NodeHost")
        if self._stopping is None:
            if not self._is_running:
                return
            self._stopping = asyncio.create_task(self._drain(), name="stagewright drain")
        await asyncio.shield(self._stopping)

    async def run(self, *, signals: StopSignals | None = None) -> None:
        """Work until SIGTERM or SIGINT, or until cancelled, then stop.

        After a signal this returns within `shutdown_timeout` and a second. If a body blocks the event loop beyond that,
        the process leaves without any more clean-up, and leases bring its jobs to others.

        Args:
            signals: Signals that somebody watches already; by default they are watched from here on.
        """
        if signals is not None:
            await self._run_until_told(signals)
        elif self._handle_signals:
            with StopSignals() as watched:
                await self._run_until_told(watched)
        else:
            await self._run_until_told(None)

    def stats(self) -> HostStats:
        """What it has done since it was started, and what it is doing."""
        return self._life.stats()

    def health(self) -> HostHealth:
        """Whether it lives, and whether it is ready for work."""
        return self._life.health()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    async def _drain(self) -> None:
        try:
            await self._life.drain()
        finally:
            self._is_running = False
            _log.info("worker %s has stopped", self.worker_id)

    async def _run_until_told(self, signals: StopSignals | None) -> None:
        if signals is None:
            async with self:
                await asyncio.Event().wait()
            return
        loop, told = asyncio.get_running_loop(), asyncio.Event()
        timeout = self._settings.shutdown_timeout.total_seconds()
        why = f"the event loop is blocked {timeout:g} s after the order to stop; leases bring its jobs to others"
        deadline = ExitDeadline(timeout + _BEYOND_TIMEOUT, LEFT_WORK, why)

        def tell() -> None:
            deadline.arm()
            loop.call_soon_threadsafe(told.set)

        try:
            async with self:
                signals.tell(tell)
                await told.wait()
        finally:
            signals.tell(None)
            deadline.call_off()
