"""Outboxes with one clause broken; collected by an inner run alone."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count
from typing import ClassVar

import pytest

from stagewright.memory import InMemoryDatabase, InMemoryPersistence
from stagewright.ports import Persistence
from stagewright.records import (
    EventRecord,
    NewEvent,
    RunPatch,
)
from stagewright_conformance import (
    OutboxDeliverySuite,
    OutboxSuite,
    Scale,
)


class Doubles:
    """Runs a suite on the double that the test class names."""

    double: ClassVar[type[InMemoryPersistence]]

    @pytest.fixture
    def scale(self) -> Scale:
        return Scale(contenders=4, rows=40, events_each=4, patience=0.5)

    @pytest.fixture
    def persistence(self) -> Persistence:
        return self.double(InMemoryDatabase())


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


class TestLeavesGaps(Doubles, OutboxSuite):
    double = LeavesGaps


class GivesOneSequenceTwice(_Numbering):
    """Two writers read the last sequence before either holds the run."""

    async def append_outbox_events(self, events: Sequence[NewEvent]) -> None:
        for event in events:
            last = len(await super().list_events(event.run_id, after=0, limit=10_000))
            self.numbers[event.id] = last + 1
            await super().append_outbox_events([event])


class TestGivesOneSequenceTwice(Doubles, OutboxSuite):
    double = GivesOneSequenceTwice


class RaisesTheRunsVersion(InMemoryPersistence):
    """Appending an event changes the version of its run."""

    async def append_outbox_events(self, events: Sequence[NewEvent]) -> None:
        await super().append_outbox_events(events)
        for event in events:
            await self.update_run(event.run_id, RunPatch(updated_at=event.occurred_at))


class TestRaisesTheRunsVersion(Doubles, OutboxSuite):
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


class TestLetsTwoFlushersIn(Doubles, OutboxDeliverySuite):
    double = LetsTwoFlushersIn


class OffersAFailedEventAtOnce(InMemoryPersistence):
    """A run whose first event failed isn't backed off."""

    async def record_outbox_failure(
        self, event_id: str, *, token: str, error: str, delivered_to: frozenset[str], now: datetime, retry_at: datetime
    ) -> bool:  # fmt: skip
        return await super().record_outbox_failure(
            event_id, token=token, error=error, delivered_to=delivered_to, now=now, retry_at=now
        )


class TestOffersAFailedEventAtOnce(Doubles, OutboxDeliverySuite):
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


class TestPublishesForAnybody(Doubles, OutboxDeliverySuite):
    double = PublishesForAnybody
