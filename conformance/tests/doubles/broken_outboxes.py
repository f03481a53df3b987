"""Outboxes with one clause broken; collected by an inner run alone."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count

from stagewright.errors import RecordNotFoundError
from stagewright.memory import InMemoryDatabase, InMemoryPersistence
from stagewright.records import (
    EventRecord,
    NewEvent,
    RunPatch,
)
from stagewright_conformance import (
    OutboxDeliverySuite,
    OutboxSuite,
)
from stagewright_test_support.doubles import PersistenceDoubles


class _Numbering(InMemoryPersistence):
    def __init__(self, database: InMemoryDatabase | None = None) -> None:
        super().__init__(database)
        self.numbers: dict[str, int] = {}
        self.counter = count(1)

    async def list_events(self, run_id: str, *, after: int, limit: int) -> list[EventRecord]:
        events = await super().list_events(run_id, after=after, limit=limit)
        return [replace(event, sequence=self.numbers.get(event.id, event.sequence)) for event in events]


class LeavesGaps(_Numbering):
    """Sequences that were rolled back are used up."""

    async def append_outbox_events(self, events: Sequence[NewEvent]) -> None:
        await super().append_outbox_events(events)
        self.numbers |= {event.id: next(self.counter) for event in events}


class TestLeavesGaps(PersistenceDoubles, OutboxSuite):
    double = LeavesGaps


class GivesOneSequenceTwice(_Numbering):
    """Two writers read the last sequence before either holds the run."""

    async def append_outbox_events(self, events: Sequence[NewEvent]) -> None:
        for event in events:
            last = len(await super().list_events(event.run_id, after=0, limit=10_000))
            self.numbers[event.id] = last + 1
            await super().append_outbox_events([event])


class TestGivesOneSequenceTwice(PersistenceDoubles, OutboxSuite):
    double = GivesOneSequenceTwice


class RaisesTheRunsVersion(InMemoryPersistence):
    """Appending an event changes the version of its run."""

    async def append_outbox_events(self, events: Sequence[NewEvent]) -> None:
        await super().append_outbox_events(events)
        for event in events:
            await self.update_run(event.run_id, RunPatch(updated_at=event.occurred_at))


class TestRaisesTheRunsVersion(PersistenceDoubles, OutboxSuite):
    double = RaisesTheRunsVersion


class LetsTwoFlushersIn(InMemoryPersistence):
    """A claim of somebody else is no obstacle."""

    async def claim_unpublished_outbox_events(
        self, limit: int, *, token: str, now: datetime, claimed_until: datetime
    ) -> list[EventRecord]:
        future = now + timedelta(days=1)
        return await super().claim_unpublished_outbox_events(
            limit, token=token, now=future, claimed_until=claimed_until
        )


class TestLetsTwoFlushersIn(PersistenceDoubles, OutboxDeliverySuite):
    double = LetsTwoFlushersIn


class OffersAFailedEventAtOnce(InMemoryPersistence):
    """A run whose first event failed isn't backed off."""

    async def record_outbox_failure(
        self, event_id: str, *, token: str, error: str, delivered_to: frozenset[str], now: datetime, retry_at: datetime
    ) -> bool:  # fmt: skip
        return await super().record_outbox_failure(
            event_id, token=token, error=error, delivered_to=delivered_to, now=now, retry_at=now
        )


class TestOffersAFailedEventAtOnce(PersistenceDoubles, OutboxDeliverySuite):
    double = OffersAFailedEventAtOnce


class PublishesForAnybody(InMemoryPersistence):
    """Whoever says that an event is published is believed."""

    async def mark_outbox_events_published(
        self, event_ids: Sequence[str], *, token: str, now: datetime
    ) -> int:
        marked = 0
        async with self._statement("publish") as tx:
            for event_id in event_ids:
                row = tx.get(self.database.outbox, event_id)
                if row is not None and row.is_pending:
                    published = replace(row.record, published_at=now)
                    tx.put(self.database.outbox, replace(row, record=published, token=None))
                    marked += 1
        return marked


class TestPublishesForAnybody(PersistenceDoubles, OutboxDeliverySuite):
    double = PublishesForAnybody


class ReplaysAll(InMemoryPersistence):
    """Every dead letter is offered again, however few are asked for."""

    async def replay_dlq_events(self, limit: int) -> int:
        return await super().replay_dlq_events(1_000)


class TestReplaysAll(PersistenceDoubles, OutboxDeliverySuite):
    double = ReplaysAll


class ReplaysIntoAClaim(InMemoryPersistence):
    """A replayed event is handed out although somebody else delivers its run."""

    async def replay_dlq_events(self, limit: int) -> int:
        replayed = await super().replay_dlq_events(limit)
        async with self._statement("free") as tx:
            for row in tx.all(self.database.outbox):
                tx.put(self.database.outbox, replace(row, token=None, claimed_until=None))
        return replayed


class TestReplaysIntoAClaim(PersistenceDoubles, OutboxDeliverySuite):
    double = ReplaysIntoAClaim


class ShowsOnlyWhatIsFree(InMemoryPersistence):
    """Claimed events don't wait, in its view."""

    async def get_unpublished_outbox_events(self, limit: int) -> list[EventRecord]:
        events = await super().get_unpublished_outbox_events(limit)
        async with self._statement("look") as tx:
            rows = [tx.get(self.database.outbox, event.id) for event in events]
        return [row.record for row in rows if row is not None and row.token is None]


class TestShowsOnlyWhatIsFree(PersistenceDoubles, OutboxSuite):
    double = ShowsOnlyWhatIsFree


class SortsEventsByTime(InMemoryPersistence):
    """Events that wait come by their own times."""

    async def get_unpublished_outbox_events(self, limit: int) -> list[EventRecord]:
        events = await super().get_unpublished_outbox_events(1_000)
        return sorted(events, key=lambda event: (event.occurred_at, event.run_id, event.sequence))[:limit]


class TestSortsEventsByTime(PersistenceDoubles, OutboxSuite):
    double = SortsEventsByTime


class ClaimsToLook(InMemoryPersistence):
    """Who looks at what waits has it."""

    async def get_unpublished_outbox_events(self, limit: int) -> list[EventRecord]:
        events = await super().get_unpublished_outbox_events(limit)
        async with self._statement("look") as tx:
            for event in events:
                row = tx.get(self.database.outbox, event.id)
                assert row is not None
                until = datetime.max.replace(tzinfo=UTC)
                tx.put(self.database.outbox, replace(row, token="looking", claimed_until=until))
        return events


class TestClaimsToLook(PersistenceDoubles, OutboxSuite):
    double = ClaimsToLook


class GivesUpTheClaimToCount(InMemoryPersistence):
    """Whose retries are counted is offered to others."""

    async def increment_outbox_retry_count(self, event_id: str) -> int:
        retries = await super().increment_outbox_retry_count(event_id)
        async with self._statement("count") as tx:
            row = tx.get(self.database.outbox, event_id)
            assert row is not None
            tx.put(self.database.outbox, replace(row, token=None, claimed_until=None))
        return retries


class TestGivesUpTheClaimToCount(PersistenceDoubles, OutboxDeliverySuite):
    double = GivesUpTheClaimToCount


class LosesCounts(InMemoryPersistence):
    """The count is read first and written later."""

    async def increment_outbox_retry_count(self, event_id: str) -> int:
        async with self._statement("look") as tx:
            row = tx.get(self.database.outbox, event_id)
        if row is None:
            return await super().increment_outbox_retry_count(event_id)
        await asyncio.sleep(0)
        retries = row.record.retry_count + 1
        async with self._statement("count") as tx:
            tx.put(self.database.outbox, replace(row, record=replace(row.record, retry_count=retries)))
        return retries


class TestLosesCounts(PersistenceDoubles, OutboxDeliverySuite):
    double = LosesCounts


class CountsForNobody(InMemoryPersistence):
    """An event that isn't there has been retried once."""

    async def increment_outbox_retry_count(self, event_id: str) -> int:
        try:
            return await super().increment_outbox_retry_count(event_id)
        except RecordNotFoundError:
            return 1


class TestCountsForNobody(PersistenceDoubles, OutboxDeliverySuite):
    double = CountsForNobody
