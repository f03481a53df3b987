"""One delivered job while it is executed: told to stop, given a while, cut off, and settled."""

import asyncio
import logging
import time
from collections.abc import Callable
from contextvars import ContextVar
from datetime import timedelta
from functools import partial
from typing import Any, Final

from stagewright.commands import ExecuteJobResult
from stagewright.definitions import AbortReason
from stagewright.hosting.job_runner import give_up, hand_back, run_job
from stagewright.kernel import Kernel
from stagewright.records import DequeuedJob, ErrorRecord, HeldLease
from stagewright.runtime.abort import AbortSource

__all__ = ["CURRENT_EXECUTION", "JobExecution"]

CURRENT_EXECUTION: Final[ContextVar["JobExecution | None"]] = ContextVar(
    "stagewright_execution", default=None
)
"""The execution to which the running code belongs, also in tasks that a body starts."""

_LAST_MOMENTS: Final = 0.3
_log: Final = logging.getLogger("stagewright.host")


class JobExecution:
    """Executes one job, once.

    Args:
        kernel: The kernel.
        job: The job, as `ClaimJobs` gave it.
        abort_grace: How long the body may go on once it was told to stop because its run was cancelled or its lease
            lost; an async body is cancelled then, and a thread is left to itself.
        wakes_hosts: As of `ExecuteJob`.
        successor: As of `ExecuteJob`, asked with this execution.
        claimed_at: When the job was claimed, or the first of those that followed each other without a claim; by default
            now, on the monotonic clock.

    Attributes:
        job: The job.
        lease: What is renewed while the execution goes on.
        abort: Tells the body to stop; it may be set from any thread.
        began: When the execution was made, on the monotonic clock.
        claimed_at: As given.
    """

    def __init__(
        self,
        kernel: Kernel,
        job: DequeuedJob,
        *,
        abort_grace: timedelta,
        wakes_hosts: bool = True,
        successor: Callable[["JobExecution"], str | None] | None = None,
        claimed_at: float | None = None,
    ) -> None:
        self.job = job
        self.lease = HeldLease(job.job_id, job.fence)
        self.abort = AbortSource()
        self.began = time.monotonic()
        self.claimed_at = self.began if claimed_at is None else claimed_at
        self._kernel = kernel
        self._grace = abort_grace.total_seconds()
        self._wakes_hosts = wakes_hosts
        self._successor = None if successor is None else partial(successor, self)
        self._hurried = asyncio.Event()

    def __str__(self) -> str:
        return f"stage {self.job.stage_id!r} of run {self.job.run_id}"

    def tell(self, reason: AbortReason) -> None:
        """Tell the body to stop; with `shutdown` it is given no further grace. Called on the event loop."""
        self.abort.set(reason)
        if reason == "shutdown":
            self._hurried.set()

    async def run(self) -> ExecuteJobResult:
        """Execute the job to its end, or until it is cut off, and settle what the kernel didn't.

        Raises:
            Exception: Whatever kept the kernel from recording an outcome; the job is still this delivery's then.
        """
        CURRENT_EXECUTION.set(self)
        body = asyncio.create_task(
            run_job(
                self._kernel,
                self.job,
                abort=self.abort,
                wakes_hosts=self._wakes_hosts,
                successor=self._successor,
            )
        )
        told = self.abort.told()
        first: set[asyncio.Future[Any]] = {body, told}  # Any: one gives a result, the other nothing
        try:
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            if not body.done():
                await self._end(body)
        except asyncio.CancelledError:
            body.cancel()
            await asyncio.shield(self._settle())
            raise
        finally:
            told.cancel()
        if body.done() and not body.cancelled():
            return body.result()
        return await self.turn_down()

    async def turn_down(self) -> ExecuteJobResult:
        """Settle the job without its outcome, as the reason for which it was told to stop wants it."""
        await self._settle()
        why = f"the stage was told to stop ({self.abort.reason}) and cut off"
        return ExecuteJobResult(
            outcome="failed",
            error=ErrorRecord(code="ABORTED", message=why),
            ghost=True,
            ghost_reason="orphan" if self.abort.reason == "cancelled" else "race",
        )

    async def _end(self, body: "asyncio.Task[ExecuteJobResult]") -> None:
        """Give a body that was told to stop its grace, then cancel it, then leave it alone."""
        hurried = asyncio.create_task(self._hurried.wait())
        try:
            await asyncio.wait({body, hurried}, timeout=self._grace, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hurried.cancel()
        if body.done():
            return
        body.cancel()
        await asyncio.wait({body}, timeout=_LAST_MOMENTS)
        # A shutdown is its host's own doing, which says what it did with all of them.
        level = logging.INFO if self.abort.reason == "shutdown" else logging.WARNING
        _log.log(level, "%s was told to stop (%s) and is cut off", self, self.abort.reason)
        if not body.done():
            _abandoned.add(body)
            body.add_done_callback(_forget)
            _log.warning("%s doesn't let itself be cancelled; it is left to itself", self)

    async def _settle(self) -> None:
        match self.abort.reason:
            case "cancelled":
                try:
                    await give_up(self._kernel, self.job, "its run was cancelled")
                except Exception:  # the job's lease ends, and whoever finds it sees that its run has ended
                    _log.warning("the job of %s could not be settled", self, exc_info=True)
            case "lease-lost":
                pass  # somebody else owns the job
            case _:
                await hand_back(self._kernel, self.job)


_abandoned: Final[set["asyncio.Task[ExecuteJobResult]"]] = set()


def _forget(body: "asyncio.Task[ExecuteJobResult]") -> None:
    _abandoned.discard(body)
    if not body.cancelled() and body.exception() is not None:
        _log.warning("a body that was left to itself ended with an error", exc_info=body.exception())
