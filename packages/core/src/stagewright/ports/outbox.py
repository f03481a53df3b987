"""Where events wait for their sink."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from stagewright.records import EventRecord, NewEvent

__all__ = ["OutboxDelivery", "OutboxStore"]


class OutboxStore(Protocol):
    """The writing side of the outbox, and a look at what waits in it."""

    async def append_outbox_events(self, events: Sequence[NewEvent]) -> None:
        """Insert events, each with the next sequence of its run, in the order given.

        Sequences of a run start at 1, rise by one without gaps or repetitions, and become visible in that order:
        whoever appends holds the run's row until the end of the transaction. The run's version stays as it is.

        Raises:
            RecordNotFoundError: If the run doesn't exist, at the latest at commit.
        """
        ...

    async def get_unpublished_outbox_events(self, limit: int) -> list[EventRecord]:
        """Up to `limit` events that are neither published nor dead-lettered, claimed or not, backed off or not.

        Runs come by the time of their first such event, the oldest first, of the same time the smaller run id; the
        events of a run by sequence. Nothing is claimed, locked or changed by it.
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

    async def increment_outbox_retry_count(self, event_id: str) -> int:
        """Raise the event's retry count by one, as `record_outbox_failure` does, for anybody and nothing else.

        Its claim, when it is offered again and what the sink said stay as they are. None of several counts at once is
        lost.

        Returns:
            The count as it is now.

        Raises:
            RecordNotFoundError: If there is no such event.
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

    async def replay_dlq_events(self, limit: int) -> int:
        """Offer up to `limit` dead letters again, those that were given up first, and return how many.

        Their retry counts begin anew; what the sink said last and who has accepted them stays. Each takes its place by
        its sequence again, before later events of its run that wait. Under somebody's claim on the run it waits for the
        end of that claim. Whoever is claiming or replaying events of the run at this moment is waited for, so that two
        flushers never hold events of one run. What another replay has taken meanwhile is made up for by the next ones:
        an answer below `limit` says that none was left.
        """
        ...
