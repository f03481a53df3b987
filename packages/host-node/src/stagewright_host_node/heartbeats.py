"""Renewing the leases of all executions from a thread of its own, whatever the event loop is busy with."""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final

from stagewright.hosting.job_execution import JobExecution
from stagewright.ports import HeartbeatChannel
from stagewright.runtime.failure import describe_exception

__all__ = ["HeartbeatThread"]

_LONGEST_RETRY: Final = 1.0
_log: Final = logging.getLogger("stagewright.host")


class HeartbeatThread:
    """Renews what is executed at the moment, every interval; a beat that failed is repeated sooner.

    An execution whose lease is lost is told to stop.

    Args:
        channel: How leases are renewed; it is closed when this ends.
        current: Says what is executed at the moment.
        interval: Seconds between two beats.
    """

    def __init__(
        self, channel: HeartbeatChannel, current: Callable[[], Sequence[JobExecution]], interval: float
    ) -> None:
        self._channel = channel
        self._current = current
        self._interval = interval
        self._left = threading.Event()
        self._failure: str | None = None
        self._thread = threading.Thread(target=self._run, name="stagewright-heartbeats", daemon=True)

    @property
    def failure(self) -> str | None:
        """Why leases couldn't be renewed the last time, or None."""
        return self._failure

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and with it the channel; it is not waited for."""
        self._left.set()

    def join(self, timeout: float) -> None:
        """Wait for the thread to end; it blocks."""
        self._thread.join(timeout)

    def _run(self) -> None:
        try:
            pause = self._interval
            while not self._left.wait(pause):
                executions = self._current()
                if not executions or self._renewed(executions):
                    pause = self._interval
                else:
                    pause = min(_LONGEST_RETRY, self._interval / 4)
        finally:
            self._channel.close()

    def _renewed(self, executions: Sequence[JobExecution]) -> bool:
        try:
            held = self._channel.renew_many([execution.lease for execution in executions])
        except Exception as error:
            if self._failure is None:
                _log.warning("leases can't be renewed: %s", describe_exception(error))
            self._failure = str(describe_exception(error))
            return False
        if self._failure is not None:
            _log.info("leases are renewed again")
        self._failure = None
        for execution, is_held in zip(executions, held, strict=True):
            if not is_held:
                # One that is just being settled owns its job no more either; it takes no notice of this.
                execution.abort.set("lease-lost")
        return True
