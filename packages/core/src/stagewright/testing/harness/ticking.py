"""One tick of a harness: what all hosts of a deployment would do at this moment, then time passes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from stagewright.commands import (
    ClaimJobs,
    ClaimPendingRuns,
    ExecuteJobResult,
    FlushOutbox,
    PollSuspendedStages,
    TransitionRun,
)
from stagewright.errors import HarnessBusyError
from stagewright.hosting.job_execution import JobExecution
from stagewright.hosting.job_heartbeat import run_with_heartbeat
from stagewright.kernel import Kernel
from stagewright.records import DequeuedJob
from stagewright.testing.fake_clock import FakeClock
from stagewright.testing.harness.report import HarnessTickReport, StageOutcome
from stagewright.testing.harness.time_travel import next_moment

__all__ = ["Ticker"]

_WORKER_ID: Final = "harness"
_AT_ONCE: Final = 100
_EVENTS_AT_ONCE: Final = 500
_ABORT_GRACE: Final = timedelta(seconds=1)
# By a beat a body learns that its run has ended; the machine's time, since a body waits in it too.
_HEARTBEAT: Final = 0.05


@dataclass(slots=True, eq=False)
class _Turn:
    """One tick, as what runs inside of it knows it."""

    ticker: "Ticker"
    is_over: bool = False


_TURNS: ContextVar[tuple[_Turn, ...]] = ContextVar("stagewright_harness_turns", default=())


class Ticker:
    """Moves all runs of a kernel on, tick by tick.

    Args:
        kernel: The kernel.
        clock: The kernel's clock.
    """

    def __init__(self, kernel: Kernel, clock: FakeClock) -> None:
        self._kernel = kernel
        self._clock = clock
        self._turn = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def tick(self) -> HarnessTickReport:
        """Claim runs, execute every job that is due, resume what is due, deliver events.

        If there was nothing of this to do, the clock is moved to when there is. Ticks of several tasks wait for each
        other: nobody moves the clock while another one's bodies are at work.

        Raises:
            HarnessBusyError: If a body or an event sink of this very tick asks, or another loop is in a tick.
        """
        async with self._turn_of_caller():
            report = await self._work()
            if report != HarnessTickReport():
                return report
            moment = await next_moment(self._kernel)
            if moment is None:
                return replace(report, idle=True)
            before = self._clock.now()
            return replace(report, advanced=self._clock.advance(moment - before) - before)

    async def deliver_events(self) -> int:
        """Hand to the sink what it takes, and say how much that was."""
        delivered = 0
        while published := (await self._kernel.dispatch(FlushOutbox(_EVENTS_AT_ONCE))).published:
            delivered += published
        return delivered

    def refuse_inside(self) -> None:
        """Refuse who runs inside of a tick of this very ticker, which would wait for itself.

        Raises:
            HarnessBusyError: If the caller does.
        """
        if any(turn.ticker is self and not turn.is_over for turn in _TURNS.get()):
            raise HarnessBusyError(
                "what runs in it, such as a body, can't tick its own harness; let the test do it, or make another one"
            )

    @asynccontextmanager
    async def _turn_of_caller(self) -> AsyncIterator[None]:
        self.refuse_inside()
        async with self._turn_in_this_loop():
            turn = _Turn(self)
            token = _TURNS.set((*_TURNS.get(), turn))
            try:
                yield
            finally:
                turn.is_over = True
                _TURNS.reset(token)

    def _turn_in_this_loop(self) -> asyncio.Lock:
        """A lock that was waited for belongs to its loop, and a test may have one after the other."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None and self._loop.is_running() and self._turn.locked():
                raise HarnessBusyError("another event loop makes it; use a harness from one loop at a time")
            self._loop, self._turn = loop, asyncio.Lock()
        return self._turn

    async def _work(self) -> HarnessTickReport:
        dispatch = self._kernel.dispatch
        claimed = await dispatch(ClaimPendingRuns(_WORKER_ID, max_claims=_AT_ONCE))
        outcomes = await self._execute((await dispatch(ClaimJobs(_WORKER_ID, limit=_AT_ONCE))).jobs)
        polled = await dispatch(PollSuspendedStages(max_checks=_AT_ONCE))
        for run_id in polled.resumed_run_ids:
            await dispatch(TransitionRun(run_id))
        return HarnessTickReport(
            claimed=len(claimed.claimed),
            executed=len(outcomes),
            outcomes=outcomes,
            suspended_checked=polled.checked,
            resumed=polled.resumed,
            events_flushed=await self.deliver_events(),
        )

    async def _execute(self, jobs: tuple[DequeuedJob, ...]) -> tuple[StageOutcome, ...]:
        executions = [JobExecution(self._kernel, job, abort_grace=_ABORT_GRACE) for job in jobs]
        running = [run_with_heartbeat(self._kernel, execution, _HEARTBEAT) for execution in executions]
        # All end before this does, also if one of them can't be recorded.
        results = await asyncio.gather(*running, return_exceptions=True)
        return tuple(_outcome(job, result) for job, result in zip(jobs, results, strict=True))


def _outcome(job: DequeuedJob, result: ExecuteJobResult | BaseException) -> StageOutcome:
    if isinstance(result, BaseException):
        raise result
    return StageOutcome(
        run_id=job.run_id,
        stage_id=job.stage_id,
        outcome=result.outcome,
        error=result.error,
        will_retry=result.will_retry,
    )
