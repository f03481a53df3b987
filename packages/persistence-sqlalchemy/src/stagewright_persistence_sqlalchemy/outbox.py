"""The outbox, both sides."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import takewhile
from typing import Any, Final

from stagewright.errors import RecordNotFoundError
from stagewright.records import EventRecord, NewEvent
from stagewright_persistence_sqlalchemy.connection import Connection
from stagewright_persistence_sqlalchemy.id_lists import id_list
from stagewright_persistence_sqlalchemy.rows import Row, event_of
from stagewright_persistence_sqlalchemy.statements import outbox as statements
from stagewright_persistence_sqlalchemy.statements import reads
from stagewright_persistence_sqlalchemy.tables import PLAIN_TABLES, Tables
from stagewright_persistence_sqlalchemy.transaction import Transaction

__all__ = ["OutboxStores"]


_AT_ONCE: Final = 5_000
"""No statement has room for any number of ids."""


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
                tx.pending.insert(PLAIN_TABLES.outbox, _new_row(event, last[event.run_id]))

    async def get_unpublished_outbox_events(self, limit: int) -> list[EventRecord]:
        """Up to `limit` pending events by run, the oldest first, and by sequence; nothing is claimed."""
        if limit < 1:
            return []
        rows = await self._fetch(statements.pending_events(self._tables), {"limit": limit})
        return [event_of(row) for row in rows]

    async def claim_unpublished_outbox_events(
        self, limit: int, *, token: str, now: datetime, claimed_until: datetime
    ) -> list[EventRecord]:
        """Claim up to `limit` pending events for `token`, run by run, passing over runs that somebody else has."""
        return await self._undisturbed(
            lambda: self._claim(limit, token=token, now=now, claimed_until=claimed_until)
        )

    async def _claim(
        self, limit: int, *, token: str, now: datetime, claimed_until: datetime
    ) -> list[EventRecord]:
        limit = min(limit, _AT_ONCE)
        if limit < 1:
            return []
        async with self._writing() as tx:
            heads = await tx.fetch(
                statements.first_pending_events(self._tables), {"now": now, "token": token, "limit": limit}
            )
            if not heads:
                return []
            head_of = {row["run_id"]: row["id"] for row in heads}
            run_ids = id_list(list(head_of))
            of_runs = statements.pending_events_of_runs(self._tables, len(run_ids))
            rows = await tx.fetch(of_runs, run_ids | {"limit": limit})
            offered = _offered(head_of, rows, token, now)[:limit]
            if not offered:
                return []
            ids = id_list([row["id"] for row in offered])
            parameters = ids | {"token": token, "now": now, "until": claimed_until}
            taken = await tx.take(statements.claim_events(self._tables, len(ids)), parameters)
            claimed = {row["id"] for row in taken}
        return [event_of(row) for row in offered if row["id"] in claimed]

    async def renew_outbox_claim(
        self, run_id: str, *, token: str, now: datetime, claimed_until: datetime
    ) -> bool:
        """Prolong the claim on a run's events; False if it has expired or belongs to another token."""
        parameters = {"of_run": run_id, "token": token, "now": now, "until": claimed_until}
        async with self._writing() as tx:
            return await tx.execute(statements.renew_claim(self._tables), parameters) > 0

    async def release_outbox_events(self, event_ids: Sequence[str], *, token: str) -> None:
        """Give up the claim on these events."""
        ids = id_list(event_ids)
        if ids:
            async with self._writing() as tx:
                await tx.execute(statements.release_events(self._tables, len(ids)), ids | {"token": token})

    async def mark_outbox_events_published(
        self, event_ids: Sequence[str], *, token: str, now: datetime
    ) -> int:
        """Mark those of these events as published that the token holds, and return how many."""
        ids = id_list(event_ids)
        if not ids:
            return 0

        async def mark() -> int:
            async with self._writing() as tx:
                marking = statements.mark_published(self._tables, len(ids))
                return await tx.execute(marking, ids | {"token": token, "now": now})

        return await self._undisturbed(mark)

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
            return await tx.execute(statements.record_refusal(self._tables, for_good=False), parameters) > 0

    async def increment_outbox_retry_count(self, event_id: str) -> int:
        """Raise the event's retry count by one, and nothing else."""
        async with self._writing() as tx:
            rows = await tx.take(statements.count_retry(self._tables), {"of_id": event_id})
            if not rows:
                raise RecordNotFoundError("event", event_id)
        return int(rows[0]["retry_count"])

    async def move_outbox_event_to_dlq(
        self, event_id: str, *, token: str, error: str, delivered_to: frozenset[str], now: datetime
    ) -> bool:
        """Keep what the sink said, and never offer the event again by itself."""
        parameters = _refusal(event_id, token, error, delivered_to, now)
        async with self._writing() as tx:
            return await tx.execute(statements.record_refusal(self._tables, for_good=True), parameters) > 0

    async def replay_dlq_events(self, limit: int) -> int:
        """Offer up to `limit` dead letters again, those that were given up first, and return how many."""
        replayed = 0
        async with self._writing() as tx:
            while replayed < limit:
                some = {"limit": min(limit - replayed, _AT_ONCE)}
                dead = await tx.fetch(statements.dead_letters(self._tables), some)
                if not dead:
                    break
                await _hold(self._tables, tx, sorted({row["run_id"] for row in dead}))
                ids = id_list([row["id"] for row in dead])
                # Another replay may have been first by the time the runs are held.
                replayed += await tx.execute(statements.replay_dead_letters(self._tables, len(ids)), ids)
        return replayed


async def _hold(tables: Tables, tx: Transaction, run_ids: Sequence[str]) -> None:
    """Let nobody claim events of these runs, or append any, until this transaction ends.

    A claim that isn't committed can't be seen; whoever makes it holds the first pending event of its run.
    """
    runs = id_list(run_ids)
    await tx.fetch(reads.lock_runs(tables, len(runs)), runs)
    held: set[str] = set()
    while True:
        heads = await tx.fetch(statements.heads_of_runs(tables, len(runs)), runs)
        others = id_list(sorted({row["id"] for row in heads} - held))
        if not others:
            return
        await tx.fetch(statements.lock_events(tables, len(others)), others)
        held.update(others.values())


def _offered(head_of: Mapping[str, str], rows: Sequence[Row], token: str, now: datetime) -> list[Row]:
    """The events of runs that nobody else has, run by run and in sequence, up to the first that is backed off.

    A dead letter that is offered again may stand before events that are claimed or backed off. If it came after a run's
    first event was looked for, the run isn't held by who holds that one.
    """
    of_run: dict[str, list[Row]] = {run_id: [] for run_id in head_of}
    for row in sorted(rows, key=lambda row: row["sequence"]):
        of_run[row["run_id"]].append(row)
    free = [
        pending
        for run_id, pending in of_run.items()
        if pending and pending[0]["id"] == head_of[run_id] and not _is_held(pending, token, now)
    ]
    return [row for pending in free for row in takewhile(lambda row: _is_due(row, now), pending)]


def _is_due(row: Row, now: datetime) -> bool:
    return row["retry_at"] is None or row["retry_at"] <= now


def _is_held(pending: Sequence[Row], token: str, now: datetime) -> bool:
    return any(row["claim_token"] not in (None, token) and row["claimed_until"] > now for row in pending)


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
    """The row of a new event; columns that are left out are NULL until something happens to it."""
    return {
        "id": event.id,
        "run_id": event.run_id,
        "sequence": sequence,
        "type": event.type,
        "payload": event.payload,
        "causation_id": event.causation_id,
        "occurred_at": event.occurred_at,
        "pending": True,
        "retry_count": 0,
        "delivered_to": [],
    }
