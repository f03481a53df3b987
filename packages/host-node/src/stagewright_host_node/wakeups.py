"""Listening to those who have work: one task per notifier, and one bell."""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from stagewright.kernel import Kernel
from stagewright.ports import WorkNotifier
from stagewright.runtime.failure import describe_exception
from stagewright_host_node.backoff import BackOff

__all__ = ["WakeUps", "notifiers_of"]

_WAIT: Final = timedelta(seconds=60)
_log: Final = logging.getLogger("stagewright.host")


def notifiers_of(kernel: Kernel) -> tuple[WorkNotifier, ...]:
    """Who can wake a host of this kernel; a transport in the persistence's own database rings the same bell."""
    ports = kernel.ports
    found: list[WorkNotifier] = []
    if isinstance(ports.persistence, WorkNotifier):
        found.append(ports.persistence)
    if isinstance(ports.job_transport, WorkNotifier) and not (found and ports.transport_enlists):
        found.append(ports.job_transport)
    return tuple(found)


class WakeUps:
    """Waits for notifications, and rings whenever one comes.

    Args:
        kernel: The kernel.
        ring: Called on the event loop for every notification.
    """

    def __init__(self, kernel: Kernel, ring: Callable[[], None]) -> None:
        self._notifiers = notifiers_of(kernel)
        # Where jobs come from somewhere that can't notify, only looking finds them.
        ports = kernel.ports
        self._complete = ports.transport_enlists or isinstance(ports.job_transport, WorkNotifier)
        self._complete = self._complete and isinstance(ports.persistence, WorkNotifier)
        self._ring = ring
        self._failing: set[int] = set()

    @property
    def are_healthy(self) -> bool:
        """Whether everything that makes work would be heard at this moment."""
        return (
            self._complete
            and not self._failing
            and all(notifier.is_listening() for notifier in self._notifiers)
        )

    async def run(self) -> None:
        """Listen until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for notifier in self._notifiers:
                tasks.create_task(self._listen(notifier))

    async def _listen(self, notifier: WorkNotifier) -> None:
        backoff = BackOff()
        while True:
            try:
                rang = await notifier.wait_for_work(_WAIT)
            except Exception as error:
                if id(notifier) not in self._failing:
                    _log.warning("notifications can't be waited for: %s", describe_exception(error))
                self._failing.add(id(notifier))
                await asyncio.sleep(backoff.failed())
                continue
            self._failing.discard(id(notifier))
            backoff.succeeded()
            if rang:
                self._ring()
