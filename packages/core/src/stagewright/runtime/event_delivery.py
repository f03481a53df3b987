"""One delivery of an event, within its time limit."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from stagewright.errors import DeliveryTimeoutError, PartialDeliveryError
from stagewright.runtime.body_ending import what_came_of

__all__ = ["refusal_of"]


async def refusal_of(deliver: Callable[[], Awaitable[object]], limit: timedelta) -> BaseException | None:
    """Deliver an event, and give what it was refused with, whatever that is; None if it was accepted.

    Only what ends this task itself passes: its cancellation from outside, and Ctrl-C.

    Args:
        deliver: Gives the event to somebody.
        limit: After so long it is cancelled and has refused.
    """
    clock = asyncio.timeout(limit.total_seconds())

    async def within_limit() -> None:
        async with clock:
            await deliver()

    _, raised = await what_came_of(within_limit())
    if raised is None:
        return None
    if clock.expired() and not isinstance(raised, PartialDeliveryError):
        late = DeliveryTimeoutError(limit.total_seconds())
        late.__cause__ = None if type(raised) is TimeoutError else raised
        return late
    if isinstance(raised, asyncio.CancelledError):
        withdrawn = RuntimeError("it was cancelled from within")
        withdrawn.__cause__ = raised
        return withdrawn
    return raised
