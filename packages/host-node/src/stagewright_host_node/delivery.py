"""Delivering events, apart from everything else, so that a slow sink holds up nobody."""

import asyncio
import logging
from typing import Final

from stagewright.commands import FlushOutbox
from stagewright.hosting.event_sink_monitor import EventSinkMonitor
from stagewright.kernel import Kernel
from stagewright_host_node.backoff import BackOff

__all__ = ["DeliveryLoop"]

_GATHER: Final = 0.05
_log: Final = logging.getLogger("stagewright.host")


class DeliveryLoop:
    """Hands events to the sink whenever there may be some, page by page.

    Args:
        kernel: The kernel.
        page: How many events at once.
        monitor: Is told how it went.
    """

    def __init__(self, kernel: Kernel, page: int, monitor: EventSinkMonitor) -> None:
        self._kernel = kernel
        self._page = page
        self._monitor = monitor
        self._bell = asyncio.Event()
        self._backoff = BackOff()

    def wake(self) -> None:
        """There may be events."""
        self._bell.set()

    async def run(self) -> None:
        """Deliver until cancelled."""
        while True:
            await self._bell.wait()
            # What happens together is delivered together.
            await asyncio.sleep(_GATHER)
            self._bell.clear()
            if not await self.deliver_all():
                await asyncio.sleep(self._backoff.failed())
            else:
                self._backoff.succeeded()

    async def deliver_all(self) -> bool:
        """Deliver what there is, and say whether the sink and the store did their part."""
        while True:
            try:
                done = await self._kernel.dispatch(FlushOutbox(self._page))
            except Exception as error:
                self._monitor.observe_error(error)
                return False
            self._monitor.observe(done)
            if done.event_sink_status == "degraded":
                return False
            if done.published < self._page:
                return True
