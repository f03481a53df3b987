"""One execution of a step's function: what the function is told, and the renewal of its lease."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from datetime import datetime, timedelta
from typing import Any, Final

from stagewright.duration import add_duration
from stagewright.errors import StepLeaseLostError
from stagewright.ports import Clock
from stagewright.records import UNSET, ErrorRecord, StepPatch, StepRecord
from stagewright.runtime.abort import LinkedAbort
from stagewright.runtime.blocking_portal import LoopPortal
from stagewright.runtime.steps.endings import REOPENED
from stagewright.runtime.steps.ledger_calls import LedgerCalls

__all__ = ["Lease", "RunningStep", "StepExecution"]

_log: Final = logging.getLogger("stagewright.stage")


class Lease:
    """For how long an execution has its step, and how often that is renewed.

    Args:
        length: How long; None is for as long as its job is its worker's.
        interval: How often it is renewed; None is three times within its length.
    """

    def __init__(self, length: timedelta | None, interval: timedelta | None = None) -> None:
        self.length = length
        self.interval = (length or timedelta(0)) / 3 if interval is None else interval

    def end(self, now: datetime) -> datetime | None:
        """When it ends if it begins now; None without a time of its own."""
        return None if self.length is None else add_duration(now, self.length, field="lease")


class StepExecution:
    """An execution that has its step, until it is over.

    Attributes:
        row: The step as it was claimed.
        is_reclaim: Whether an earlier execution was lost in the middle.
        abort: Tells the function to stop.

    Args:
        on_lost: Called when its lease is known to be somebody else's, or to have ended.
    """

    def __init__(
        self,
        row: StepRecord,
        lease: Lease,
        *,
        is_reclaim: bool,
        ledger: LedgerCalls,
        clock: Clock,
        abort: LinkedAbort,
        on_lost: Callable[[], None],
    ) -> None:
        self.row = row
        self.is_reclaim = is_reclaim
        self.abort = abort
        self._lease = lease
        self._ledger = ledger
        self._clock = clock
        self._on_lost = on_lost
        self._end = row.lease_expires_at
        self._renewing: asyncio.Task[None] | None = None
        if lease.length is not None:
            self._renewing = asyncio.get_running_loop().create_task(self._renew())

    def is_over(self) -> None:
        """Renew no more."""
        if self._renewing is not None:
            self._renewing.cancel()

    async def heartbeat(self) -> None:
        """Extend the lease, if it has a time of its own; else make sure that the step is still this execution's.

        Raises:
            StepLeaseLostError: If it isn't.
            StepLedgerWriteError: If the ledger could not be asked.
        """
        now = self._clock.now()
        end = self._lease.end(now)
        patch = StepPatch(updated_at=now, lease_expires_at=UNSET if end is None else end)
        applied, _ = await self._ledger.change(
            self.row, patch, attempt=self.row.attempt, what="the extended lease"
        )
        if not applied:
            self.abort.set("lease-lost")
            raise StepLeaseLostError(self.row.step_id)
        self._end = end

    async def give_up(self) -> None:
        """Leave the step to whoever asks next: as one that nobody lost, unless this took over what was lost before."""
        patch = StepPatch(
            updated_at=self._clock.now(),
            owner=None,
            lease_expires_at=None,
            error=_lost_before() if self.is_reclaim else UNSET,
        )
        try:
            await self._ledger.change(self.row, patch, attempt=self.row.attempt, what="that it was given up")
        except Exception:  # it is taken over instead once its lease is void
            _log.warning("step %r could not be given up", self.row.step_id, exc_info=True)

    async def _renew(self) -> None:
        warned = False
        while True:
            await asyncio.sleep(self._lease.interval.total_seconds())
            try:
                await self.heartbeat()
                warned = False
            except StepLeaseLostError:
                break
            except Exception:
                if not warned:
                    _log.warning("the lease of step %r could not be renewed", self.row.step_id, exc_info=True)
                warned = True
                if self._end is not None and self._clock.now() >= self._end:
                    self.abort.set("lease-lost")
                    break
        self._on_lost()


def _lost_before() -> ErrorRecord:
    # The error on a running step tells its next execution that it is a reclaim.
    return ErrorRecord(
        code=REOPENED, message="an execution of it was lost, and the one that took over was cancelled"
    )


class RunningStep:
    """A `StepRun`.

    Args:
        execution: What is being executed.
        portal: Through which a plain function's heartbeat blocks; None for an `async def` one.
    """

    def __init__(self, execution: StepExecution, portal: LoopPortal | None) -> None:
        self._execution = execution
        self._portal = portal
        row = execution.row
        self.step_id = row.step_id
        self.external_key = row.external_key or ""
        self.attempt = row.attempt
        self.is_reclaim = execution.is_reclaim
        self.abort = execution.abort

    def heartbeat(self) -> Awaitable[None]:
        """Extend an explicit lease from now on."""
        if self._portal is None:
            return self._execution.heartbeat()
        self._portal.call(self._execution.heartbeat())
        return _Nothing()


class _Nothing:
    """An awaitable that is done."""

    def __await__(self) -> Generator[Any, None, None]:  # Any: whatever a loop sends
        return
        yield
