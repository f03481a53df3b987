from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from stagewright.errors import DuplicateRecordError, RecordNotFoundError
from stagewright.memory.connection import Connection
from stagewright.memory.event_sequences import last_sequence
from stagewright.memory.rows import EventSequenceRow, OutboxRow
from stagewright.memory.transaction import Transaction
from stagewright.records import EventRecord, NewEvent
from stagewright.records.copies import detached

__all__ = ["InMemoryOutboxStore"]

_DELIVERY = "outbox delivery"
"""Locks by run: whoever claims or settles events of a run holds its delivery, apart from the run's row."""


class InMemoryOutboxStore(Connection):
    """The outbox, both sides; see `OutboxStore` and `OutboxDelivery`."""

    async def append_outbox_events(self, events: Sequence[NewEvent]) -> None:
        """Insert events, each with the next sequence of its run, under the run's lock."""
        sequences = self._database.event_sequences
        async with self._statement("append_outbox_events") as tx:
            for run_id in sorted({event.run_id for event in events}):
                if await tx.lock_row(self._database.runs, run_id) is None:
                    raise RecordNotFoundError("run", run_id)
            for event in events:
                sequence = last_sequence(tx, self._database, event.run_id) + 1
                await self._insert(tx, event, sequence)
                tx.put(sequences, EventSequenceRow(event.run_id, sequence))

    async def get_unpublished_outbox_events(self, limit: int) -> list[EventRecord]:
        """Up to `limit` pending events by run, the oldest first, and by sequence; nothing is claimed."""
        async with self._statement("get_unpublished_outbox_events") as tx:
            runs = self._runs_with_pending_events(tx)
            pending = [row.record for run_id in runs for row in self._pending(tx, run_id)]
        return [detached(record) for record in pending[: max(limit, 0)]]

    async def claim_unpublished_outbox_events(
        self, limit: int, *, token: str, now: datetime, claimed_until: datetime
    ) -> list[EventRecord]:
        """Claim up to `limit` pending events for `token`, run by run, skipping runs that somebody else has."""
        claimed: list[EventRecord] = []
        async with self._statement("claim_unpublished_outbox_events") as tx:
            for run_id in self._runs_with_pending_events(tx):
                if len(claimed) >= limit:
                    break
                if not tx.try_lock((_DELIVERY, run_id)):
                    continue
                for row in self._offered(tx, run_id, token, now)[: limit - len(claimed)]:
                    tx.put(self._database.outbox, replace(row, token=token, claimed_until=claimed_until))
                    claimed.append(detached(row.record))
        return claimed

    async def renew_outbox_claim(
        self, run_id: str, *, token: str, now: datetime, claimed_until: datetime
    ) -> bool:
        """Prolong the claim on a run's events; False if it has expired or is somebody else's."""
        async with self._statement("renew_outbox_claim") as tx:
            await tx.lock((_DELIVERY, run_id))
            held = [
                row for row in self._pending(tx, run_id) if row.token == token and not _has_expired(row, now)
            ]
            for row in held:
                tx.put(self._database.outbox, replace(row, claimed_until=claimed_until))
            return bool(held)

    async def release_outbox_events(self, event_ids: Sequence[str], *, token: str) -> None:
        """Give up the claim on these events."""
        async with self._statement("release_outbox_events") as tx:
            for row in await self._held(tx, event_ids, token):
                tx.put(self._database.outbox, replace(row, token=None, claimed_until=None))

    async def mark_outbox_events_published(
        self, event_ids: Sequence[str], *, token: str, now: datetime
    ) -> int:
        """Mark those of these events as published that the token holds, and return how many."""
        async with self._statement("mark_outbox_events_published") as tx:
            held = await self._held(tx, event_ids, token)
            for row in held:
                tx.put(self._database.outbox, OutboxRow(record=replace(row.record, published_at=now)))
            return len(held)

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
        async with self._statement("record_outbox_failure") as tx:
            for row in await self._held(tx, (event_id,), token):
                refused = _refused(row.record, error, delivered_to, now)
                tx.put(self._database.outbox, OutboxRow(record=refused, retry_at=retry_at))
                return True
            return False

    async def increment_outbox_retry_count(self, event_id: str) -> int:
        """Raise the event's retry count by one, and nothing else."""
        outbox = self._database.outbox
        async with self._statement("increment_outbox_retry_count") as tx:
            found = tx.get(outbox, event_id)
            if found is not None:
                await tx.lock((_DELIVERY, found.record.run_id))
            row = tx.get(outbox, event_id)
            if row is None:
                raise RecordNotFoundError("event", event_id)
            counted = _counted(row.record)
            tx.put(outbox, replace(row, record=counted))
            return counted.retry_count

    async def move_outbox_event_to_dlq(
        self, event_id: str, *, token: str, error: str, delivered_to: frozenset[str], now: datetime
    ) -> bool:
        """Keep what the sink said, and never offer the event again by itself."""
        async with self._statement("move_outbox_event_to_dlq") as tx:
            for row in await self._held(tx, (event_id,), token):
                refused = _refused(row.record, error, delivered_to, now)
                tx.put(self._database.outbox, OutboxRow(record=replace(refused, dead_lettered_at=now)))
                return True
            return False

    async def replay_dlq_events(self, limit: int) -> int:
        """Offer up to `limit` dead letters again, those that were given up first, and return how many."""
        outbox = self._database.outbox
        replayed = 0
        async with self._statement("replay_dlq_events") as tx:
            while replayed < limit:
                dead = sorted(tx.where(outbox, "dead", True), key=_given_up)[: limit - replayed]
                if not dead:
                    break
                for run_id in sorted({row.record.run_id for row in dead}):
                    await tx.lock((_DELIVERY, run_id))
                # Another replay may have been first by the time the runs are held.
                for row in (tx.get(outbox, row.record.id) for row in dead):
                    if row is not None and row.record.dead_lettered_at is not None:
                        record = replace(row.record, dead_lettered_at=None, retry_count=0)
                        tx.put(outbox, OutboxRow(record=record))
                        replayed += 1
        return replayed

    async def _insert(self, tx: Transaction, event: NewEvent, sequence: int) -> None:
        outbox = self._database.outbox
        await tx.lock((outbox.name, event.id))
        if tx.get(outbox, event.id) is not None:
            raise DuplicateRecordError("event", event.id)
        record = EventRecord(
            id=event.id,
            run_id=event.run_id,
            sequence=sequence,
            type=event.type,
            payload=event.payload,
            occurred_at=event.occurred_at,
            causation_id=event.causation_id,
        )
        tx.put(outbox, OutboxRow(record=detached(record)))

    def _runs_with_pending_events(self, tx: Transaction) -> list[str]:
        heads: dict[str, EventRecord] = {}
        for row in tx.where(self._database.outbox, "pending", True):
            record = row.record
            head = heads.get(record.run_id)
            if head is None or record.sequence < head.sequence:
                heads[record.run_id] = record
        return sorted(heads, key=lambda run_id: (heads[run_id].occurred_at, run_id))

    def _offered(self, tx: Transaction, run_id: str, token: str, now: datetime) -> list[OutboxRow]:
        offered: list[OutboxRow] = []
        pending = self._pending(tx, run_id)
        if any(row.token not in (None, token) and not _has_expired(row, now) for row in pending):
            return offered
        for row in pending:
            if row.retry_at is not None and row.retry_at > now:
                break
            offered.append(row)
        return offered

    def _pending(self, tx: Transaction, run_id: str) -> list[OutboxRow]:
        rows = [row for row in tx.where(self._database.outbox, "run", run_id) if row.is_pending]
        rows.sort(key=lambda row: row.record.sequence)
        return rows

    async def _held(self, tx: Transaction, event_ids: Iterable[str], token: str) -> list[OutboxRow]:
        """Those of the events that the token holds, under the lock of their delivery."""
        outbox = self._database.outbox
        run_of = {id: row.record.run_id for id in event_ids if (row := tx.get(outbox, id)) is not None}
        for run_id in sorted(set(run_of.values())):
            await tx.lock((_DELIVERY, run_id))
        rows = [tx.get(outbox, id) for id in run_of]
        return [row for row in rows if row is not None and row.is_pending and row.token == token]


def _given_up(row: OutboxRow) -> tuple[datetime | None, str, int]:
    return (row.record.dead_lettered_at, row.record.run_id, row.record.sequence)


def _has_expired(row: OutboxRow, now: datetime) -> bool:
    return row.claimed_until is None or row.claimed_until <= now


def _counted(record: EventRecord) -> EventRecord:
    return replace(record, retry_count=record.retry_count + 1)


def _refused(record: EventRecord, error: str, delivered_to: frozenset[str], now: datetime) -> EventRecord:
    return replace(
        _counted(record),
        last_error=error,
        last_error_at=now,
        delivered_to=record.delivered_to | delivered_to,
    )
