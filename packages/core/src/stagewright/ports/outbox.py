"""Where events wait for their sink."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from stagewright.records import EventRecord, NewEvent

__all__ = ["OutboxDelivery", "OutboxStore"]


class OutboxStore(Protocol):
    """The writing side of the outbox."""

    async def append_outbox_events(self, events: Sequence[NewEvent]) -> None:
        """Insert events, each with the next sequence of its run, in the order given.

        Sequences of a run start at 1, rise by one without gaps or repetitions, and become visible in that order:
        whoever appends holds the run's row until the end of the transaction. The run's version stays as it is.

        Raises:
            RecordNotFoundError: If the run doesn't exist, at the latest at commit.
        """
        ...


class OutboxDelivery(Protocol):
    """The delivering side: claims are leases with a token, one run at a time.

    An event is pending while it is neither published nor dead-lettered. Of a run whose first pending event is backed
    off nothing is offered, so that a run's events stay in order.
    """

    async def claim_unpublished_outbox_events(
        self, limit: int, *, token: str, now: datetime, claimed_until: datetime
    ) -> list[EventRecord]:
        """Claim up to `limit` pending events for `token`.

        A run under another token's claim that hasn't expired is left out, so that two flushers never hold events
        of one run; a claim has expired when `claimed_until` is `now` or earlier. A token may claim more events of a
        run that it holds. Runs are taken by the time of their first pending event, the oldest first.

        Returns:
            The claimed events, grouped by run, by sequence within a run.
        """
        ...

    async def renew_outbox_claim(
        self, run_id: str, *, token: str, now: datetime, claimed_until: datetime
    ) -> bool:
        """Prolong the claim on a run's events; False if it has expired or belongs to another token."""
        ...

    async def release_outbox_events(self, event_ids: Sequence[str], *, token: str) -> None:
        """Give up the claim on these events; those that the token doesn't hold are left alone."""
        ...

    async def mark_outbox_events_published(
        self, event_ids: Sequence[str], *, token: str, now: datetime
    ) -> int:
        """Mark these events as published and give up their claim; those that the token doesn't hold are left alone.

        Returns:
            How many were marked.
        """
        ...

    async def record_outbox_failure(
        self,
        event_id: str,
        *,
        token: str,
        error: str,
        delivered_to: frozenset[str],
        now: datetime,
        retry_at: datetime,
    ) -> bool:
        """Raise the event's retry count by one, keep what the sink said, and offer it again from `retry_at`.

        Returns:
            False, with nothing written, if the token doesn't hold the event any more.
        """
        ...

    async def move_outbox_event_to_dlq(
        self, event_id: str, *, token: str, error: str, delivered_to: frozenset[str], now: datetime
    ) -> bool:
        """Give the event up: raise its retry count, keep what the sink said, and never offer it again by itself.

        Returns:
            False, with nothing written, if the token doesn't hold the event any more.
        """
        ...
