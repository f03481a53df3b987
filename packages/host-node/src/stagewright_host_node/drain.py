"""Stopping: nothing new, finish what can be finished, hand back the rest, leave on time."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from stagewright_host_node.claim_loop import ClaimLoop
from stagewright_host_node.delivery import DeliveryLoop
from stagewright_host_node.executions import Executions

__all__ = ["Drain"]

_HAND_BACK_PATIENCE: Final = 0.6
_LAST_MOMENT: Final = 0.2
_log: Final = logging.getLogger("stagewright.host")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """What is to be stopped, in this order.

    Attributes:
        claim_loop: Claims nothing from now on.
        claiming: The task of the claim loop.
        others: The tasks that are ended next: the upkeep, the wake-ups.
        executions: Bodies that may end by themselves for `timeout` seconds; the rest is handed back.
        delivery: Delivers what was emitted until now, for the rest of the time.
        timeout: Seconds.
    """

    claim_loop: ClaimLoop
    claiming: "asyncio.Task[None]"
    others: "tuple[asyncio.Task[None], ...]"
    executions: Executions
    delivery: DeliveryLoop
    timeout: float

    async def run(self) -> None:
        """Do it; it ends within the timeout and about a second more, and raises nothing."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self.timeout
        self.claim_loop.stop()
        self.executions.stop()
        for task in self.others:
            task.cancel()
        # A claim that is under way is answered first, so that its jobs are not left RUNNING with nobody at them.
        await asyncio.wait({self.claiming}, timeout=max(0.1, self.timeout))
        if not self.claiming.done():
            _log.warning("a claim was not answered in time; leases bring its jobs to others")
            self.claiming.cancel()
        await asyncio.wait({self.claiming, *self.others}, timeout=_LAST_MOMENT)
        if not await self.executions.wait_until_idle(max(0.0, until - loop.time())):
            await self._hand_back()
        await self._deliver(max(_LAST_MOMENT, until - loop.time()))

    async def _hand_back(self) -> None:
        count = await self.executions.hand_back_rest(_HAND_BACK_PATIENCE)
        if count:
            _log.warning("%d jobs were still running after %g s and are handed back", count, self.timeout)

    async def _deliver(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.delivery.deliver_all()
        except TimeoutError:
            _log.warning("not all events could be delivered before stopping; they stay in the outbox")
