"""The outbox, both sides."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from stagewright.records import EventRecord, NewEvent
from stagewright_persistence_sqlalchemy import tables
from stagewright_persistence_sqlalchemy.connection import Connection
from stagewright_persistence_sqlalchemy.rows import event_of
from stagewright_persistence_sqlalchemy.statements import outbox as statements

__all__ = ["OutboxStores"]


class OutboxStores(Connection):
    """`OutboxStore` and `OutboxDelivery`."""

    async def append_outbox_events(self, events: Sequence[NewEvent]) -> None:
        """Insert events, each with the next sequence of its run, under the run's lock."""
        if not events:
            return
        async with self._writing() as tx:
            last = await tx.next_sequences(Counter(event.run_id for event in events))
            for event in events:
                last[event.run_id] += 1
                tx.pending.insert(tables.outbox, _new_row(event, last[event.run_id]))

    async def claim_unpublished_outbox_events(
        self, limit: int, *, token: str, now: datetime, claimed_until: datetime
    ) -> list[EventRecord]:
        """Claim up to `limit` pending events for `token`, run by run, passing over runs that somebody else has."""
        if limit < 1:
            return []
        async with self._writing() as tx:
            heads = await tx.fetch(
                statements.first_pending_events(), {"now": now, "token": token, "limit": limit}
            )
            if not heads:
                return []
            runs = [row["run_id"] for row in heads]
            wanted = _ids(runs) | {"limit": limit}
            rows = await tx.fetch(statements.pending_events_of_runs(len(runs)), wanted)
            place = {run_id: number for number, run_id in enumerate(runs)}
            events = sorted(
                (event_of(row) for row in rows), key=lambda one: (place[one.run_id], one.sequence)
            )
            claimed = events[:limit]
            if claimed:
                ids = _ids([event.id for event in claimed])
                await tx.execute(
                    statements.claim_events(len(claimed)), ids | {"token": token, "until": claimed_until}
                )
        return claimed

    async def renew_outbox_claim(
        self, run_id: str, *, token: str, now: datetime, claimed_until: datetime
    ) -> bool:
        """Prolong the claim on a run's events; False if it has expired or belongs to another token."""
        parameters = {"of_run": run_id, "token": token, "now": now, "until": claimed_until}
        async with self._writing() as tx:
            return await tx.execute(statements.renew_claim(), parameters) > 0

    async def release_outbox_events(self, event_ids: Sequence[str], *, token: str) -> None:
        """Give up the claim on these events."""
        if event_ids:
            async with self._writing() as tx:
                await tx.execute(
                    statements.release_events(len(event_ids)), _ids(event_ids) | {"token": token}
                )

    async def mark_outbox_events_published(
        self, event_ids: Sequence[str], *, token: str, now: datetime
    ) -> int:
        """Mark those of these events as published that the token holds, and return how many."""
        if not event_ids:
            return 0
        parameters = _ids(event_ids) | {"token": token, "now": now}
        async with self._writing() as tx:
            return await tx.execute(statements.mark_published(len(event_ids)), parameters)

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
        """Keep what the sink said, and offer the event again from `retry_at`."""
        parameters = _refusal(event_id, token, error, delivered_to, now) | {"again_at": retry_at}
        async with self._writing() as tx:
            return await tx.execute(statements.record_refusal(for_good=False), parameters) > 0

    async def move_outbox_event_to_dlq(
        self, event_id: str, *, token: str, error: str, delivered_to: frozenset[str], now: datetime
    ) -> bool:
        """Keep what the sink said, and never offer the event again by itself."""
        parameters = _refusal(event_id, token, error, delivered_to, now)
        async with self._writing() as tx:
            return await tx.execute(statements.record_refusal(for_good=True), parameters) > 0


def _ids(ids: Sequence[str]) -> dict[str, Any]:
    return {f"item_{number}": id for number, id in enumerate(ids)}


def _refusal(
    event_id: str, token: str, error: str, delivered_to: frozenset[str], now: datetime
) -> dict[str, Any]:
    return {
        "item_0": event_id,
        "token": token,
        "error": error,
        "delivered": sorted(delivered_to),
        "now": now,
    }


def _new_row(event: NewEvent, sequence: int) -> dict[str, Any]:
    return {
        "id": event.id,
        "run_id": event.run_id,
        "sequence": sequence,
        "type": event.type,
        "payload": event.payload,
        "causation_id": event.causation_id,
        "occurred_at": event.occurred_at,
        "pending": True,
        "published_at": None,
        "retry_count": 0,
        "retry_at": None,
        "last_error": None,
        "last_error_at": None,
        "delivered_to": [],
        "dead_lettered_at": None,
        "claim_token": None,
        "claimed_until": None,
    }
