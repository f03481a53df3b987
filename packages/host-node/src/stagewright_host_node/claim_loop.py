"""Taking work: runs that wait to be set going, and jobs up to the free slots."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from stagewright.commands import ClaimJobs, ClaimPendingRuns
from stagewright.hosting.job_runner import hand_back
from stagewright.hosting.settings import HostSettings
from stagewright.kernel import Kernel
from stagewright.records import DequeuedJob
from stagewright.runtime.failure import describe_exception
from stagewright_host_node.backoff import BackOff
from stagewright_host_node.executions import Executions, is_last_chance
from stagewright_host_node.left_jobs import LeftJobs
from stagewright_host_node.thread_cap import ThreadCap

__all__ = ["ClaimLoop"]

_TICK: Final = 1.0
_log: Final = logging.getLogger("stagewright.host")


class ClaimLoop:
    """Claims whenever it is woken, and looks by itself where nothing else would wake it.

    Args:
        kernel: The kernel.
        settings: The host's settings.
        executions: Where claimed jobs are started.
        look_every: Says after how many seconds it has to look by itself; None while others do that.
        cap: Says how many executions there may be, and why nothing may be claimed now.
        left: Keeps in mind whether others have to be told of jobs.
        claimed: Called when runs were claimed.

    Attributes:
        last_tick: When it last went round, on the monotonic clock.
        failure: Why the last claim failed, or None.
    """

    def __init__(
        self,
        kernel: Kernel,
        settings: HostSettings,
        executions: Executions,
        *,
        look_every: Callable[[], float | None],
        cap: ThreadCap,
        left: LeftJobs,
        claimed: Callable[[], None],
    ) -> None:
        self.last_tick = time.monotonic()
        self.failure: str | None = None
        self._kernel = kernel
        self._settings = settings
        self._executions = executions
        self._look_every = look_every
        self._cap = cap
        self._left = left
        self._claimed = claimed
        self._bell = asyncio.Event()
        self._stopped = asyncio.Event()
        self._backoff = BackOff()
        self._wanted = True
        self._runs_wanted = True
        self._last_look = float("-inf")
        self._hindered: str | None = None
        # Whether the last look found fewer jobs than there was room for.
        self._took_all = False

    @property
    def knows_of_nothing(self) -> bool:
        """Whether no job and no run is known to wait for a free slot."""
        rung = self._bell.is_set() or self._wanted or self._runs_wanted
        return not rung and self._has_no_backlog and self._free > 0

    @property
    def _has_no_backlog(self) -> bool:
        return self._took_all and self._left.wait is None

    def wake(self) -> None:
        """There may be work."""
        self._runs_wanted = True
        self._bell.set()

    def wake_for_jobs(self) -> None:
        """An execution has ended: there may be jobs; of new runs others tell, where they are heard."""
        if self._look_every() is not None:
            self._runs_wanted = True
        self._bell.set()

    def stop(self) -> None:
        """Take nothing more; what a claim that is under way brings is handed back."""
        self._stopped.set()
        self._bell.set()

    async def run(self) -> None:
        """Go round until stopped."""
        while not self._stopped.is_set():
            self.last_tick = time.monotonic()
            if self._bell.is_set():
                self._bell.clear()
                self._wanted = True
            is_time = self._is_time_to_look()
            if self._may_claim() and (self._wanted or is_time):
                self._runs_wanted = self._runs_wanted or is_time
                self._wanted = False
                await self._look()
            else:
                await self._left.tell_when_due()
                await _within(self._time_to_look(), self._bell)

    async def _look(self) -> None:
        self._last_look = time.monotonic()
        try:
            self._wanted = await self._take()
        except Exception as error:
            if self.failure is None:
                _log.warning("no work can be claimed: %s", describe_exception(error))
                _log.debug("its traceback", exc_info=True)
            self.failure = str(describe_exception(error))
            self._wanted = self._runs_wanted = True
            # However often the bell rings meanwhile, a store that failed is left alone for this long.
            await _within(self._backoff.failed(), self._stopped)
            return
        if self.failure is not None:
            _log.info("work can be claimed again")
        self.failure = None
        self._backoff.succeeded()

    async def _take(self) -> bool:
        """Claim once, and say whether there may be more."""
        settings = self._settings
        opened = await self._claim_runs(self._free) if self._runs_wanted else 0
        free, made = self._free, self._left.made
        if self._stopped.is_set() or free <= 0:
            return opened > 0
        claim = ClaimJobs(settings.worker_id, limit=free, serves=settings.serves)
        jobs = (await self._kernel.dispatch(claim)).jobs
        self._took_all = len(jobs) < free
        if self._stopped.is_set():
            await asyncio.gather(*(hand_back(self._kernel, job) for job in jobs))
            return False
        if self._took_all:
            self._left.settle(made)
        await self._start(jobs)
        return self._runs_wanted or len(jobs) == free

    async def _claim_runs(self, free: int) -> int:
        """Set runs going, and say how many: where no job waits, those that there are slots for, with their jobs."""
        settings = self._settings
        takes_jobs = self._has_no_backlog and self._kernel.ports.delivers_at_once
        most = min(settings.max_claims_per_tick, free) if takes_jobs else settings.max_claims_per_tick
        # Whoever rings meanwhile may mean a run that this claim doesn't see.
        self._runs_wanted = False
        claim = ClaimPendingRuns(
            settings.worker_id,
            max_claims=most,
            serves=settings.serves,
            wakes_hosts=False,
            max_jobs=free if takes_jobs else 0,
        )
        result = await self._kernel.dispatch(claim)
        if self._stopped.is_set():
            await asyncio.gather(*(hand_back(self._kernel, job) for job in result.jobs))
        else:
            await self._start(result.jobs)
        opened = len(result.claimed)
        if sum(len(run.job_ids) for run in result.claimed) > len(result.jobs):
            self._left.note()
        if opened:
            self._claimed()
        if opened == most:
            self._runs_wanted = True
        return opened

    @property
    def _free(self) -> int:
        """How many jobs may be begun now."""
        executions = self._executions
        return min(executions.free, self._cap.room(self._settings.concurrency) - len(executions.current))

    async def _start(self, jobs: Sequence[DequeuedJob]) -> None:
        """Start jobs; of those that want to be alone one, once nobody else's lease can die with this process."""
        loners = [job for job in jobs if is_last_chance(job)]
        for job in jobs:
            if job not in loners:
                self._executions.start(job)
        await asyncio.gather(*(hand_back(self._kernel, job) for job in loners[1:]))
        for job in loners[:1]:
            self._executions.start(job)

    def _may_claim(self) -> bool:
        hindered = self._cap.obstacle()
        if hindered != self._hindered:
            if hindered is None:
                _log.warning("work is claimed again")
            else:
                _log.error("no more work is claimed: %s", hindered)
            self._hindered = hindered
        return hindered is None and self._free > 0

    def _is_time_to_look(self) -> bool:
        every = self._look_every()
        return every is not None and time.monotonic() - self._last_look >= every

    def _time_to_look(self) -> float:
        every, until_told = self._look_every(), self._left.wait
        tick = _TICK if until_told is None else min(_TICK, until_told)
        if every is None or self._hindered is not None or not self._free:
            return tick
        return min(tick, max(0.005, self._last_look + every - time.monotonic()))


async def _within(seconds: float, event: asyncio.Event) -> None:
    """Wait for an event, at most for so long."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
