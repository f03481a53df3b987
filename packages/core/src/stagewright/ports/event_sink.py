"""Who receives events."""

from typing import Protocol, runtime_checkable

from stagewright.duration import Duration
from stagewright.events import Event

__all__ = ["DeliveryLimit", "EventSink", "RetryBudget"]


class EventSink(Protocol):
    """Receives every committed event at least once, those of one run in order on first delivery."""

    async def emit(self, event: Event) -> None:
        """Accept an event; returning means that it is delivered.

        A sink that doesn't return in time is cancelled and has refused the event; it has 30 seconds, or what it
        says as a `DeliveryLimit`.

        Raises:
            PartialDeliveryError: If some consumers have it and others don't; the next attempt's event names those
                that have it as `delivered_to`.
            BaseException: Anything else is a refusal, `SystemExit` too, and the event is offered again. Only Ctrl-C and
                the cancellation of whoever delivers end the delivery itself.
        """
        ...


@runtime_checkable
class RetryBudget(Protocol):
    """Optional for a sink: how often it may refuse an event before that is given up."""

    @property
    def max_retries(self) -> int:
        """Refusals of one event until it becomes a dead letter, 0 counting as 1; without this capability it is 3."""
        ...


@runtime_checkable
class DeliveryLimit(Protocol):
    """Optional for a sink: how long it may take over one event."""

    @property
    def delivery_timeout(self) -> Duration:
        """After so long `emit` is cancelled and counts as a refusal; without this capability it is 30 seconds."""
        ...
