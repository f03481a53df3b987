"""The outbox, delivering side: claims are leases, one run at a time."""

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from stagewright.errors import RecordNotFoundError
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

    async def test_a_retry_is_counted_and_nothing_else_is_changed(
        self, persistence: Persistence, reader: RunReader
    ) -> None:
        """`increment_outbox_retry_count`: the count alone, as it is now; claim, back-off and words stay."""
        events = await _run_with_events(persistence, 2)
        [claimed] = await _claim(persistence, "mine", limit=1)
        assert [await persistence.increment_outbox_retry_count(claimed.id) for _ in range(2)] == [1, 2]
        listed = await reader.list_events(claimed.run_id, after=0, limit=9)
        assert [event.retry_count for event in listed] == [2, 0]
        assert listed[0] == replace(claimed, retry_count=2)
        assert await _claim(persistence, "other") == []
        retry_at = LATER + 10 * _MINUTE
        assert await self._fail(persistence, claimed.id, "mine", retry_at)
        assert await persistence.increment_outbox_retry_count(claimed.id) == 4
        assert await _claim(persistence, "other", now=LATER + 5 * _MINUTE) == []
        offered = await _claim(persistence, "other", now=retry_at)
        assert _ids(offered) == events
        head = offered[0]
        assert (head.retry_count, head.last_error, head.delivered_to) == (
            4,
            "sink says no",
            frozenset({"mail"}),
        )

    async def test_a_retry_of_no_event_is_refused(self, persistence: Persistence) -> None:
        """`increment_outbox_retry_count`: `RecordNotFoundError` if there is no such event."""
        with pytest.raises(RecordNotFoundError):
            await persistence.increment_outbox_retry_count("no such event")

    async def test_of_many_retries_at_once_each_is_counted(
        self, persistence: Persistence, competitor: Persistence, scale: Scale
    ) -> None:
        """`increment_outbox_retry_count`: none of several counts at once is lost."""
        [event] = await _run_with_events(persistence, 1)
        stores = [persistence if n % 2 else competitor for n in range(scale.contenders)]
        counts = await scale.soon(
            asyncio.gather(*(store.increment_outbox_retry_count(event) for store in stores))
        )
        assert sorted(counts) == [n + 1 for n in range(scale.contenders)]

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

    async def _give_up(
        self, persistence: Persistence, run_count: int, *, minutes: int = 0
    ) -> list[EventRecord]:
        """The first events of new runs with two events each, given up one after the other; all events are pending."""
        for number in range(run_count):
            moment = MOMENT + number * _MINUTE
            await _run_with_events(persistence, 2, occurred_at=moment)
        claimed = await _claim(persistence, "giving up", minutes=9)
        heads = [event for event in claimed if event.sequence == 1]
        for number, event in enumerate(heads):
            now = LATER + (minutes + number) * _MINUTE
            assert await persistence.move_outbox_event_to_dlq(
                event.id, token="giving up", error="never", delivered_to=frozenset({"mail"}), now=now
            )
        behind = [event.id for event in claimed if event.sequence > 1]
        await persistence.release_outbox_events(behind, token="giving up")
        return heads

    @pytest.mark.guarantee("stores.outbox-dead-letters-replayed")
    async def test_dead_letters_are_offered_again_those_first_given_up_first(
        self, persistence: Persistence, reader: RunReader
    ) -> None:
        """`replay_dlq_events`: up to `limit`, those given up first; the retry count begins anew, the words stay."""
        heads = await self._give_up(persistence, 3)
        for given_up in heads:
            behind = await reader.list_events(given_up.run_id, after=1, limit=9)
            await _claim(persistence, "other")
            await persistence.mark_outbox_events_published(
                [event.id for event in behind], token="other", now=LATER
            )
        assert await persistence.replay_dlq_events(0) == 0
        assert await persistence.replay_dlq_events(2) == 2
        offered = await _claim(persistence, "next")
        assert _ids(offered) == _ids(heads[:2])
        for event in offered:
            assert (event.retry_count, event.dead_lettered_at, event.sequence) == (0, None, 1)
            assert (event.last_error, event.delivered_to) == ("never", frozenset({"mail"}))
        assert await persistence.replay_dlq_events(9) == 1
        assert await persistence.replay_dlq_events(9) == 0
        assert _ids(await _claim(persistence, "next")) == _ids(heads)

    @pytest.mark.guarantee("stores.outbox-dead-letters-replayed")
    async def test_replays_at_the_same_time_share_the_dead_letters(self, persistence: Persistence) -> None:
        """`replay_dlq_events`: what another replay has taken is made up for; below `limit` none was left."""
        await self._give_up(persistence, 5)
        answers = await asyncio.gather(*(persistence.replay_dlq_events(2) for _ in range(4)))
        assert sorted(answers) == [0, 1, 2, 2]

    async def test_a_replayed_event_goes_before_later_ones_that_wait(self, persistence: Persistence) -> None:
        """`replay_dlq_events`: each takes its place by its sequence again."""
        [head] = await self._give_up(persistence, 1)
        assert await persistence.replay_dlq_events(9) == 1
        assert [event.sequence for event in await _claim(persistence, "next")] == [1, 2]
        assert head.sequence == 1

    @pytest.mark.parametrize("limit", [1, 100])
    async def test_a_replayed_event_waits_for_the_end_of_a_claim_on_its_run(
        self, persistence: Persistence, limit: int
    ) -> None:
        """`replay_dlq_events`: under somebody's claim on the run it waits for the end of that claim."""
        [head] = await self._give_up(persistence, 1)
        [behind] = await _claim(persistence, "holder")
        assert await persistence.replay_dlq_events(9) == 1
        assert await _claim(persistence, "other", limit=limit) == []
        assert await persistence.mark_outbox_events_published([behind.id], token="holder", now=LATER) == 1
        assert _ids(await _claim(persistence, "other", limit=limit)) == [head.id]

    @pytest.mark.guarantee("stores.outbox-one-flusher-per-run")
    @pytest.mark.parametrize("limit", [1, 100])
    async def test_a_replayed_event_waits_for_the_end_of_a_claim_that_is_being_made(
        self,
        persistence: Persistence,
        competitor: Persistence,
        background: Background,
        scale: Scale,
        limit: int,
    ) -> None:
        """`replay_dlq_events`: whoever is claiming is waited for; two flushers never hold events of one run."""
        [head] = await self._give_up(persistence, 1)

        async def replay_and_claim() -> list[EventRecord]:
            assert await competitor.replay_dlq_events(9) == 1
            return await _claim(competitor, "other", limit=limit)

        async with persistence.transaction() as tx:
            [behind] = await _claim(tx, "holder")
            claiming = background.start(replay_and_claim())
            await scale.still_waits(claiming)
        assert await scale.soon(claiming) == []
        assert await persistence.mark_outbox_events_published([behind.id], token="holder", now=LATER) == 1
        assert _ids(await _claim(persistence, "other", limit=limit)) == [head.id]

    async def test_what_is_appended_beside_a_replay_is_claimed_by_one_flusher_with_it(
        self, persistence: Persistence, competitor: Persistence, background: Background, scale: Scale
    ) -> None:
        """`replay_dlq_events`: each takes its place before later events; two flushers never hold one run's."""
        [head] = await self._give_up(persistence, 1)
        [behind] = await _claim(persistence, "first")
        await persistence.mark_outbox_events_published([behind.id], token="first", now=LATER)
        claimed, go = asyncio.Event(), asyncio.Event()

        async def append_and_claim() -> list[EventRecord]:
            await competitor.append_outbox_events([an_event(head.run_id)])
            async with competitor.transaction() as tx:
                got = await _claim(tx, "holder", limit=1)
                claimed.set()
                await go.wait()
                return got

        async with persistence.transaction() as tx:
            assert await tx.replay_dlq_events(9) == 1
            holding = background.start(append_and_claim())
            await scale.still_waits(holding)
        await scale.soon(claimed.wait())
        claiming = background.start(_claim(persistence, "other", limit=1))
        await scale.still_waits(claiming)
        go.set()
        held, others = await scale.soon(holding), await scale.soon(claiming)
        assert len(held + others) == 1

    async def test_nothing_behind_an_event_that_is_backed_off_is_offered_after_a_replay(
        self, persistence: Persistence
    ) -> None:
        """`OutboxDelivery`: a run's events stay in order, whatever is replayed before them."""
        [head] = await self._give_up(persistence, 1)
        await persistence.append_outbox_events([an_event(head.run_id)])
        second = (await _claim(persistence, "mine"))[0]
        assert await self._fail(persistence, second.id, "mine", LATER + 5 * _MINUTE)
        await persistence.replay_dlq_events(9)
        assert _ids(await _claim(persistence, "next", now=LATER + 2 * _MINUTE)) == [head.id]

    async def test_of_many_replays_each_dead_letter_is_counted_once(
        self, persistence: Persistence, competitor: Persistence, scale: Scale
    ) -> None:
        """`replay_dlq_events`: returns how many; another replay is waited for, and none counts what the other did."""
        heads = await self._give_up(persistence, 6)
        stores = [persistence if n % 2 else competitor for n in range(scale.contenders)]
        replayed = await scale.soon(asyncio.gather(*(store.replay_dlq_events(2) for store in stores)))
        replayed += [await persistence.replay_dlq_events(9)]
        assert sum(replayed) == len(heads)
