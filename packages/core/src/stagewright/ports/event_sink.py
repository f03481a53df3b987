"""Who receives events."""

from typing import Protocol, runtime_checkable

from stagewright.events import Event

__all__ = ["EventSink", "RetryBudget"]


class EventSink(Protocol):
    """Receives every committed event at least once, those of one run in order on first delivery."""

    async def emit(self, event: Event) -> None:
        """Accept an event; returning means that it is delivered.

        Raises:
            PartialDeliveryError: If some consumers have it and others don't; the next attempt's event names those
                that have it as `delivered_to`.
            Exception: Anything else is a refusal, and the event is offered again.
        """
        ...


@runtime_checkable
class RetryBudget(Protocol):
    """Optional for a sink: how often an event is offered again before it is given up."""

    @property
    def max_retries(self) -> int:
        """Refusals of one event until it becomes a dead letter; without this capability it is 3."""
        ...
