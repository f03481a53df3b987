"""The outbox, delivering side: claims are leases, one run at a time."""

import asyncio
from collections import Counter
from datetime import datetime, timedelta

import pytest

from stagewright.ports import Persistence, RunReader
from stagewright.records import EventRecord
from stagewright_conformance.samples import LATER, MOMENT, a_run, an_event
from stagewright_conformance.suite import Background, PersistenceSuite, Scale

__all__ = ["OutboxDeliverySuite"]

_MINUTE = timedelta(minutes=1)


async def _run_with_events(
    persistence: Persistence, count: int, *, occurred_at: datetime = MOMENT
) -> list[str]:
    """The ids of the events of a new run, in order."""
    run = a_run()
    events = [an_event(run.id, occurred_at=occurred_at) for _ in range(count)]
    await persistence.create_run(run)
    await persistence.append_outbox_events(events)
    return [event.id for event in events]


async def _claim(
    persistence: Persistence, token: str, *, limit: int = 100, now: datetime = LATER, minutes: int = 1
) -> list[EventRecord]:
    return await persistence.claim_unpublished_outbox_events(
        limit, token=token, now=now, claimed_until=now + minutes * _MINUTE
    )


def _ids(events: list[EventRecord]) -> list[str]:
    return [event.id for event in events]


class OutboxDeliverySuite(PersistenceSuite):
    """`OutboxDelivery`: the delivering side.

    Fixtures: those of `PersistenceSuite`; `competitor` is a second flusher.
    """

    async def test_events_are_claimed_by_the_age_of_their_run_then_in_sequence(
        self, persistence: Persistence
    ) -> None:
        """`claim_unpublished_outbox_events`: grouped by run, the oldest first, by sequence within a run."""
        young = await _run_with_events(persistence, 2, occurred_at=MOMENT + _MINUTE)
        old = await _run_with_events(persistence, 3, occurred_at=MOMENT)
        assert _ids(await _claim(persistence, "t")) == old + young

    async def test_a_limit_counts_events_and_keeps_their_order(self, persistence: Persistence) -> None:
        """`claim_unpublished_outbox_events`: up to `limit` pending events; the run's rest stays with the token."""
        old = await _run_with_events(persistence, 2, occurred_at=MOMENT)
        young = await _run_with_events(persistence, 2, occurred_at=MOMENT + _MINUTE)
        assert _ids(await _claim(persistence, "mine", limit=3)) == [*old, young[0]]
        assert await _claim(persistence, "other") == []

    @pytest.mark.guarantee("stores.outbox-one-flusher-per-run")
    async def test_a_claimed_run_is_left_out_until_the_claim_expires(self, persistence: Persistence) -> None:
        """`claim_unpublished_outbox_events`: a run under another token's claim that hasn't expired is left out."""
        [event] = await _run_with_events(persistence, 1)
        assert _ids(await _claim(persistence, "first")) == [event]
        assert await _claim(persistence, "second", now=LATER + _MINUTE / 2) == []
        assert _ids(await _claim(persistence, "second", now=LATER + 2 * _MINUTE)) == [event]

    async def test_new_events_of_a_claimed_run_are_left_out_too(self, persistence: Persistence) -> None:
        """`claim_unpublished_outbox_events`: two flushers never hold events of one run."""
        run = a_run()
        await persistence.create_run(run)
        await persistence.append_outbox_events([an_event(run.id)])
        assert len(await _claim(persistence, "first")) == 1
        await persistence.append_outbox_events([an_event(run.id)])
        assert await _claim(persistence, "second") == []

    @pytest.mark.guarantee("stores.outbox-one-flusher-per-run")
    async def test_under_contention_each_event_is_claimed_once_and_each_run_by_one(
        self, persistence: Persistence, competitor: Persistence, scale: Scale
    ) -> None:
        """`claim_unpublished_outbox_events`: claims are leases with a token, one run at a time."""
        wanted = [tuple(await _run_with_events(persistence, 3)) for _ in range(scale.rows // 5)]

        claimed: list[tuple[str, EventRecord]] = []

        async def claim_all(store: Persistence, token: str) -> None:
            while len(claimed) < 3 * len(wanted):
                got = await _claim(store, token, limit=6)
                claimed.extend((token, event) for event in got)
                published = await store.mark_outbox_events_published(_ids(got), token=token, now=LATER)
                assert published == len(got)
                await asyncio.sleep(0)

        stores = (persistence, competitor)
        flushers = [claim_all(stores[n % 2], f"token {n}") for n in range(scale.contenders)]
        await scale.soon(asyncio.gather(*flushers))
        assert Counter(event.id for _, event in claimed) == Counter(event for run in wanted for event in run)
        for run_id in {event.run_id for _, event in claimed}:
            assert [event.sequence for _, event in claimed if event.run_id == run_id] == [1, 2, 3]

    async def test_a_claim_is_renewed_by_its_holder_alone(self, persistence: Persistence) -> None:
        """`renew_outbox_claim`: prolongs the claim; False if the token doesn't hold it any more."""
        await _run_with_events(persistence, 1)
        [event] = await _claim(persistence, "mine")
        until = LATER + 10 * _MINUTE
        run_id = event.run_id
        assert await persistence.renew_outbox_claim(run_id, token="mine", now=LATER, claimed_until=until)
        assert not await persistence.renew_outbox_claim(run_id, token="other", now=LATER, claimed_until=until)
        assert not await persistence.renew_outbox_claim("none", token="mine", now=LATER, claimed_until=until)
        assert await _claim(persistence, "other", now=LATER + 5 * _MINUTE) == []
        assert len(await _claim(persistence, "other", now=until + _MINUTE)) == 1
        late = until + _MINUTE
        assert not await persistence.renew_outbox_claim(
            run_id, token="mine", now=late, claimed_until=late + _MINUTE
        )

    async def test_a_released_event_is_offered_again_at_once(self, persistence: Persistence) -> None:
        """`release_outbox_events`: gives up the claim; those that the token doesn't hold are left alone."""
        events = await _run_with_events(persistence, 2)
        await _claim(persistence, "mine")
        await persistence.release_outbox_events(events, token="other")
        assert await _claim(persistence, "other") == []
        await persistence.release_outbox_events([*events, "none"], token="mine")
        await persistence.release_outbox_events([], token="mine")
        assert _ids(await _claim(persistence, "other")) == events

    async def test_a_published_event_is_never_offered_again(
        self, persistence: Persistence, reader: RunReader
    ) -> None:
        """`mark_outbox_events_published`: marks them, gives up their claim, and tells how many were marked."""
        events = await _run_with_events(persistence, 3)
        run_id = (await _claim(persistence, "mine", limit=2))[0].run_id
        assert await persistence.mark_outbox_events_published(events[:2], token="mine", now=LATER) == 2
        assert _ids(await _claim(persistence, "other", now=LATER + 5 * _MINUTE)) == events[2:]
        listed = await reader.list_events(run_id, after=0, limit=10)
        assert [event.published_at for event in listed] == [LATER, LATER, None]

    async def test_only_the_holder_of_a_claim_marks_events_published(self, persistence: Persistence) -> None:
        """`mark_outbox_events_published`: those that the token doesn't hold are left alone."""
        events = await _run_with_events(persistence, 1)
        mark = persistence.mark_outbox_events_published
        assert await mark(events, token="nobody", now=LATER) == 0
        await _claim(persistence, "first")
        assert _ids(await _claim(persistence, "second", now=LATER + 2 * _MINUTE)) == events
        assert await mark(events, token="first", now=LATER) == 0
        assert await mark([*events, "none"], token="second", now=LATER) == 1
        assert await mark(events, token="second", now=LATER) == 0
        assert await mark([], token="second", now=LATER) == 0

    async def _fail(self, persistence: Persistence, event_id: str, token: str, retry_at: datetime) -> bool:
        return await persistence.record_outbox_failure(
            event_id,
            token=token,
            error="sink says no",
            delivered_to=frozenset({"mail"}),
            now=LATER,
            retry_at=retry_at,
        )

    @pytest.mark.guarantee("stores.outbox-order-survives-failures")
    async def test_a_run_whose_first_event_is_backed_off_is_hidden(self, persistence: Persistence) -> None:
        """`OutboxDelivery`: of a run whose first pending event is backed off nothing is offered."""
        events = await _run_with_events(persistence, 3)
        others = await _run_with_events(persistence, 1, occurred_at=MOMENT + _MINUTE)
        await _claim(persistence, "mine", limit=3)
        retry_at = LATER + 10 * _MINUTE
        assert await self._fail(persistence, events[0], "mine", retry_at)
        await persistence.release_outbox_events(events, token="mine")
        assert _ids(await _claim(persistence, "other", now=LATER + 5 * _MINUTE)) == others
        offered = await _claim(persistence, "other", now=retry_at)
        assert _ids(offered)[:3] == events
        head, second = offered[:2]
        failed = (head.retry_count, head.last_error, head.last_error_at, head.delivered_to, head.published_at)
        assert failed == (1, "sink says no", LATER, frozenset({"mail"}), None)
        assert (second.retry_count, second.last_error, second.delivered_to) == (0, None, frozenset())

    async def test_every_failure_is_counted_and_only_its_holders(self, persistence: Persistence) -> None:
        """`record_outbox_failure`: raises the retry count by one; False if the token doesn't hold the event."""
        [event] = await _run_with_events(persistence, 1)
        assert not await self._fail(persistence, event, "nobody", LATER)
        for count in range(3):
            now = LATER + 5 * count * _MINUTE
            [claimed] = await _claim(persistence, f"token {count}", now=now)
            assert claimed.retry_count == count
            assert not await self._fail(persistence, event, "other", now)
            assert await self._fail(persistence, event, f"token {count}", now + _MINUTE)
        assert not await self._fail(persistence, "none", "token 2", LATER)

    async def test_a_dead_letter_is_kept_and_gives_way_to_the_next_event(
        self, persistence: Persistence, reader: RunReader
    ) -> None:
        """`move_outbox_event_to_dlq`: gives the event up, keeps what the sink said, never offers it by itself."""
        events = await _run_with_events(persistence, 2)
        [claimed] = await _claim(persistence, "mine", limit=1)

        async def give_up(token: str) -> bool:
            return await persistence.move_outbox_event_to_dlq(
                events[0], token=token, error="never", delivered_to=frozenset({"mail"}), now=LATER
            )

        assert not await give_up("other")
        assert await give_up("mine")
        assert _ids(await _claim(persistence, "next", now=LATER + 5 * _MINUTE)) == events[1:]
        dead = (await reader.list_events(claimed.run_id, after=0, limit=1))[0]
        assert (dead.dead_lettered_at, dead.published_at, dead.retry_count) == (LATER, None, 1)
        assert (dead.last_error, dead.last_error_at, dead.delivered_to) == (
            "never",
            LATER,
            frozenset({"mail"}),
        )

    async def test_events_of_an_uncommitted_transaction_are_not_offered(
        self, persistence: Persistence, competitor: Persistence, background: Background, scale: Scale
    ) -> None:
        """`transaction`: others never see what isn't committed; a flusher may wait for it or pass it by."""
        run = a_run()
        await persistence.create_run(run)
        async with persistence.transaction() as tx:
            await tx.append_outbox_events([an_event(run.id)])
            await tx.get_run(run.id)
            claiming = background.start(_claim(competitor, "t"))
            waited = await scale.still_waits(claiming)
            assert waited or claiming.result() == []
        assert len(await scale.soon(claiming) or await _claim(competitor, "t")) == 1
