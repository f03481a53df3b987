"""Learning that a body has to stop: after a notification at once, else with the next heartbeat on the loop."""

import asyncio
import logging
import time
from typing import Final

from stagewright.hosting.job_execution import JobExecution
from stagewright.hosting.job_heartbeat import beat, reason_of_ended_run
from stagewright.kernel import Kernel
from stagewright.runtime.failure import describe_exception
from stagewright_host_node.executions import Executions

__all__ = ["CancellationWatch"]

_GATHER: Final = 0.05
_LEAST_PAUSE: Final = 0.25
_log: Final = logging.getLogger("stagewright.host")


class CancellationWatch:
    """Tells executions whose run was cancelled, or whose job isn't theirs any more.

    Args:
        kernel: The kernel.
        executions: What is executed.
        interval: Seconds between two heartbeats on the loop.
    """

    def __init__(self, kernel: Kernel, executions: Executions, interval: float) -> None:
        self._kernel = kernel
        self._executions = executions
        self._interval = interval
        self._bell = asyncio.Event()
        self._rang_at = float("-inf")

    def wake(self) -> None:
        """Something was notified; it may have been a cancellation."""
        self._rang_at = time.monotonic()
        self._bell.set()

    async def run(self) -> None:
        """Watch until cancelled."""
        next_beat = time.monotonic() + self._interval
        while True:
            try:
                async with asyncio.timeout(max(0.0, next_beat - time.monotonic())):
                    await self._bell.wait()
            except TimeoutError:
                next_beat = time.monotonic() + self._interval
                await self._beat()
                continue
            # Notifications that come together cost one look, and short bodies, which end meanwhile, none.
            await asyncio.sleep(_GATHER)
            self._bell.clear()
            await self._look()
            await asyncio.sleep(_LEAST_PAUSE)

    async def _look(self) -> None:
        by_run: dict[str, list[JobExecution]] = {}
        for execution in self._executions.current:
            # What began after the bell rang was claimed from a run that was not cancelled by then.
            if not execution.abort.is_set and execution.began <= self._rang_at:
                by_run.setdefault(execution.job.run_id, []).append(execution)
        for run_id, executions in by_run.items():
            try:
                status = await self._kernel.ports.persistence.get_run_status(run_id)
            except Exception as error:  # the next heartbeat learns it too
                _log.debug("whether run %s was cancelled is unknown: %s", run_id, describe_exception(error))
                return
            reason = reason_of_ended_run(status)
            if reason is not None:
                for execution in executions:
                    execution.tell(reason)

    async def _beat(self) -> None:
        for execution in self._executions.current:
            if not execution.abort.is_set and time.monotonic() - execution.began >= self._interval / 2:
                await beat(self._kernel, execution)
