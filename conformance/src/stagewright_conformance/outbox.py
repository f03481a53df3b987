"""The outbox, writing side: sequences without gaps."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from stagewright.errors import RecordNotFoundError
from stagewright.ports import Persistence, RunReader
from stagewright.records import EventRecord, RunPatch
from stagewright_conformance.samples import LATER, MOMENT, ODD_JSON, a_run, an_event, exactly
from stagewright_conformance.suite import Background, PersistenceSuite, Scale

__all__ = ["OutboxSuite"]


class OutboxSuite(PersistenceSuite):
    """`OutboxStore`: the writing side, and what waits.

    Fixtures: those of `PersistenceSuite`; events are read through `reader`.
    """

    async def test_an_event_comes_back_as_it_was_appended(
        self, persistence: Persistence, reader: RunReader
    ) -> None:
        """`append_outbox_events`: every field is kept exactly, and the first sequence of a run is 1."""
        run = a_run()
        await persistence.create_run(run)
        event = an_event(run.id, payload={"odd": ODD_JSON})
        await persistence.append_outbox_events([event])
        [stored] = await reader.list_events(run.id, after=0, limit=10)
        assert stored == EventRecord(
            id=event.id,
            run_id=run.id,
            sequence=1,
            type=event.type,
            payload=event.payload,
            occurred_at=event.occurred_at,
            causation_id=event.causation_id,
        )
        assert exactly(stored.payload) == exactly(event.payload)

    async def test_sequences_go_on_per_run_in_the_order_given(
        self, persistence: Persistence, reader: RunReader
    ) -> None:
        """`append_outbox_events`: each event gets the next sequence of its run, in the order given."""
        first, second = a_run(), a_run()
        await persistence.create_run(first)
        await persistence.create_run(second)
        order = [first.id, second.id, first.id, first.id, second.id]
        events = [
            an_event(run_id, occurred_at=MOMENT - timedelta(seconds=n)) for n, run_id in enumerate(order)
        ]
        await persistence.append_outbox_events(events[:2])
        async with persistence.transaction() as tx:
            await tx.append_outbox_events(events[2:3])
            await tx.append_outbox_events(events[3:])
        for run_id in (first.id, second.id):
            listed = await reader.list_events(run_id, after=0, limit=10)
            assert [each.id for each in listed] == [event.id for event in events if event.run_id == run_id]
            assert [event.sequence for event in listed] == list(range(1, order.count(run_id) + 1))

    async def test_what_a_caller_changes_later_does_not_reach_the_store(
        self, persistence: Persistence, reader: RunReader
    ) -> None:
        """`Persistence`: values that go in or come out are the caller's own."""
        run = a_run()
        await persistence.create_run(run)
        event = an_event(run.id, payload={"list": [1]})
        await persistence.append_outbox_events([event])
        event.payload["list"] = 2
        [first] = await reader.list_events(run.id, after=0, limit=9)
        first.payload["list"] = 3
        assert [each.payload for each in await reader.list_events(run.id, after=0, limit=9)] == [
            {"list": [1]}
        ]

    async def test_nothing_is_appended_for_nothing(self, persistence: Persistence) -> None:
        """`append_outbox_events`: no events are no error."""
        await persistence.append_outbox_events([])

    async def test_an_event_of_an_unknown_run_is_refused(
        self, persistence: Persistence, reader: RunReader
    ) -> None:
        """`append_outbox_events`: `RecordNotFoundError` if the run doesn't exist, and nothing is kept."""
        known = a_run()
        await persistence.create_run(known)
        with pytest.raises(RecordNotFoundError):
            await persistence.append_outbox_events([an_event(known.id), an_event("no such run")])
        assert await reader.list_events(known.id, after=0, limit=9) == []

    async def test_the_version_of_the_run_stays(self, persistence: Persistence) -> None:
        """`append_outbox_events`: the run's version stays as it is."""
        run = a_run()
        await persistence.create_run(run)
        async with persistence.transaction() as tx:
            await tx.update_run(run.id, RunPatch(updated_at=LATER), expected_version=1)
            await tx.append_outbox_events([an_event(run.id)])
            await tx.update_run(run.id, RunPatch(updated_at=LATER), expected_version=2)
        assert await persistence.get_run(run.id) == replace(run, updated_at=LATER, version=3)

    @pytest.mark.guarantee("stores.outbox-sequence-gap-free")
    async def test_sequences_have_no_gap_under_concurrent_writers_and_rollbacks(
        self, persistence: Persistence, competitor: Persistence, reader: RunReader, scale: Scale
    ) -> None:
        """`append_outbox_events`: rise by one without gaps or repetitions, and become visible in that order."""
        run = a_run()
        await persistence.create_run(run)
        writing = True

        async def append(store: Persistence, keep: bool) -> None:
            async with store.transaction() as tx:
                await tx.append_outbox_events([an_event(run.id)])
                await asyncio.sleep(0)
                await tx.append_outbox_events([an_event(run.id)])
                if not keep:
                    raise LookupError

        async def write(store: Persistence) -> None:
            for n in range(scale.events_each):
                try:
                    await append(store, keep=n % 3 != 2)
                except LookupError:
                    await store.append_outbox_events([an_event(run.id)])

        async def watch() -> None:
            while writing:
                seen = [event.sequence for event in await reader.list_events(run.id, after=0, limit=10_000)]
                assert seen == list(range(1, len(seen) + 1))
                await asyncio.sleep(0)

        watching = asyncio.create_task(watch())
        try:
            stores = [persistence if n % 2 else competitor for n in range(scale.contenders)]
            await scale.soon(asyncio.gather(*map(write, stores)))
        finally:
            writing = False
        await scale.soon(watching)
        events = await reader.list_events(run.id, after=0, limit=10_000)
        each = sum(1 if n % 3 == 2 else 2 for n in range(scale.events_each))
        assert [event.sequence for event in events] == list(range(1, scale.contenders * each + 1))
        assert len({event.id for event in events}) == len(events)

    async def test_whoever_appends_holds_the_run(
        self, persistence: Persistence, competitor: Persistence, background: Background, scale: Scale
    ) -> None:
        """`append_outbox_events`: whoever appends holds the run's row until the end of the transaction."""
        run = a_run()
        await persistence.create_run(run)
        async with persistence.transaction() as tx:
            await tx.append_outbox_events([an_event(run.id)])
            await tx.get_run(run.id)
            second = background.start(competitor.append_outbox_events([an_event(run.id)]))
            assert await scale.still_waits(second)
        await scale.soon(second)

    async def _append(
        self, persistence: Persistence, count: int, *, first: datetime, step: timedelta, run_id: str
    ) -> list[str]:
        await persistence.create_run(a_run(id=run_id))
        events = [an_event(run_id, occurred_at=first + n * step) for n in range(count)]
        await persistence.append_outbox_events(events)
        return [event.id for event in events]

    @pytest.mark.parametrize("limit", [0, 1, 2, 3, 4, 100])
    async def test_what_waits_is_seen_by_the_age_of_its_run_then_in_sequence(
        self, persistence: Persistence, limit: int
    ) -> None:
        """`get_unpublished_outbox_events`: up to `limit`, by run, the oldest first, of its events by sequence."""
        second = timedelta(seconds=1)
        last = await self._append(persistence, 1, first=MOMENT + 2 * second, step=second, run_id="c")
        old = await self._append(persistence, 3, first=MOMENT, step=9 * second, run_id="z")
        # A clock that was set back in between changes nothing.
        young = await self._append(persistence, 2, first=MOMENT + second, step=-9 * second, run_id="b")
        also_young = await self._append(persistence, 1, first=MOMENT + second, step=second, run_id="b2")
        seen = await persistence.get_unpublished_outbox_events(limit)
        assert [event.id for event in seen] == [*old, *young, *also_young, *last][:limit]
        assert [event.sequence for event in seen] == [1, 2, 3, 1, 2, 1, 1][:limit]

    async def test_what_waits_is_seen_claimed_or_not(self, persistence: Persistence) -> None:
        """`get_unpublished_outbox_events`: neither published nor dead-lettered, claimed or not, backed off or not."""
        ids = await self._append(persistence, 4, first=MOMENT, step=timedelta(0), run_id="a")
        claimed = await persistence.claim_unpublished_outbox_events(
            4, token="mine", now=LATER, claimed_until=LATER + timedelta(minutes=1)
        )
        assert await persistence.get_unpublished_outbox_events(9) == claimed
        published, dead, failed, _ = ids
        await persistence.mark_outbox_events_published([published], token="mine", now=LATER)
        said: dict[str, Any] = {"token": "mine", "error": "no", "delivered_to": frozenset(), "now": LATER}
        await persistence.move_outbox_event_to_dlq(dead, **said)
        await persistence.record_outbox_failure(failed, **said, retry_at=LATER + timedelta(days=1))
        seen = await persistence.get_unpublished_outbox_events(9)
        assert [event.id for event in seen] == ids[2:]
        assert [(event.retry_count, event.last_error) for event in seen] == [(1, "no"), (0, None)]
        await persistence.replay_dlq_events(9)
        assert [event.id for event in await persistence.get_unpublished_outbox_events(9)] == ids[1:]

    async def test_looking_at_what_waits_takes_nothing(
        self, persistence: Persistence, competitor: Persistence, background: Background, scale: Scale
    ) -> None:
        """`get_unpublished_outbox_events`: nothing is claimed, locked or changed by it."""
        ids = await self._append(persistence, 2, first=MOMENT, step=timedelta(0), run_id="a")
        before = await competitor.get_unpublished_outbox_events(9)
        async with persistence.transaction() as tx:
            assert await tx.get_unpublished_outbox_events(9) == before
            claiming = background.start(
                competitor.claim_unpublished_outbox_events(
                    9, token="mine", now=LATER, claimed_until=LATER + timedelta(minutes=1)
                )
            )
            # Where there is one writer at a time, the claim waits for its turn.
            await scale.still_waits(claiming)
        assert [event.id for event in await scale.soon(claiming)] == ids
