"""Runs that are deleted for good, and what is remembered of them."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from stagewright.errors import RecordNotFoundError
from stagewright.ports import Persistence, RunReader
from stagewright.records import (
    AnnotationQuery,
    KeyAcquired,
    KeyCompleted,
    KeyInProgress,
    RunRecord,
    Tombstone,
)
from stagewright.status import TERMINAL_RUN_STATUSES, Status
from stagewright_conformance.samples import (
    LATER,
    MOMENT,
    ODD_TEXTS,
    a_log_line,
    a_run,
    a_signal,
    a_stage,
    an_annotation,
    an_event,
    new_id,
)
from stagewright_conformance.suite import PersistenceSuite

__all__ = ["PurgeSuite"]

_SECOND = timedelta(seconds=1)


async def _ended(
    persistence: Persistence,
    *,
    status: Status = Status.COMPLETED,
    completed_at: datetime | None = MOMENT,
    updated_at: datetime = MOMENT,
    id: str | None = None,
) -> RunRecord:
    run = replace(a_run(id=id, status=status), completed_at=completed_at, updated_at=updated_at)
    await persistence.create_run(run)
    return run


async def _listed(
    persistence: Persistence,
    older_than: datetime = LATER,
    *,
    statuses: Sequence[Status] = tuple(TERMINAL_RUN_STATUSES),
    limit: int = 100,
) -> list[str]:
    runs = await persistence.list_runs_for_purge(older_than, statuses=statuses, limit=limit)
    return [run.id for run in runs]


async def _publish(persistence: Persistence, event_id: str, *, dead: bool = False) -> None:
    until = LATER + _SECOND
    await persistence.claim_unpublished_outbox_events(99, token="t", now=LATER, claimed_until=until)
    if dead:
        await persistence.move_outbox_event_to_dlq(
            event_id, token="t", error="no", delivered_to=frozenset(), now=LATER
        )
    else:
        await persistence.mark_outbox_events_published([event_id], token="t", now=LATER)


def _tombstone(*, run_id: str | None = None, created_at: datetime = MOMENT) -> Tombstone:
    return Tombstone(
        run_id=new_id("run") if run_id is None else run_id,
        blob_prefixes=("a/b/", *ODD_TEXTS),
        stage_ids=("price", "ship"),
        stage_record_ids=(),
        created_at=created_at,
    )


class PurgeSuite(PersistenceSuite):
    """`PurgeStore`.

    Fixtures: those of `PersistenceSuite`; `competitor` removes the same tombstone.
    """

    async def test_runs_come_the_first_to_end_first(self, persistence: Persistence) -> None:
        """`list_runs_for_purge`: the first to end first, of the same time the smaller id; a limit counts from there."""
        stem = new_id("run")
        late = await _ended(persistence, completed_at=MOMENT + _SECOND)
        second = await _ended(persistence, id=f"{stem}b")
        first = await _ended(persistence, id=f"{stem}a", updated_at=LATER)
        early = await _ended(persistence, completed_at=MOMENT - _SECOND, updated_at=LATER)
        expected = [early.id, first.id, second.id, late.id]
        assert await _listed(persistence) == expected
        assert await _listed(persistence, limit=2) == expected[:2]
        assert await _listed(persistence, limit=0) == []

    async def test_only_what_ended_by_then_comes(self, persistence: Persistence) -> None:
        """`list_runs_for_purge`: ended at `older_than` or earlier, to the microsecond."""
        run = await _ended(persistence, completed_at=LATER, updated_at=MOMENT)
        assert await _listed(persistence, LATER) == [run.id]
        assert await _listed(persistence, LATER - timedelta(microseconds=1)) == []

    async def test_a_run_without_an_end_counts_by_its_last_change(self, persistence: Persistence) -> None:
        """`list_runs_for_purge`: a run without a `completed_at` counts as ended at its `updated_at`."""
        late = await _ended(persistence, completed_at=None, updated_at=LATER)
        early = await _ended(persistence, completed_at=None, updated_at=MOMENT)
        between = await _ended(persistence, completed_at=MOMENT + _SECOND, updated_at=LATER)
        assert await _listed(persistence) == [early.id, between.id, late.id]
        assert await _listed(persistence, MOMENT) == [early.id]

    async def test_only_runs_of_these_statuses_come(self, persistence: Persistence) -> None:
        """`list_runs_for_purge`: of these statuses and no other; none for none."""
        runs = {status: await _ended(persistence, status=status) for status in Status}
        failed, cancelled = runs[Status.FAILED], runs[Status.CANCELLED]
        listed = await _listed(persistence, statuses=[Status.FAILED, Status.CANCELLED])
        assert sorted(listed) == sorted([failed.id, cancelled.id])
        assert await _listed(persistence, statuses=[]) == []

    @pytest.mark.parametrize("dead", [False, True])
    async def test_a_run_with_a_pending_event_is_left_out(self, persistence: Persistence, dead: bool) -> None:
        """`list_runs_for_purge`, `has_pending_events`: neither published nor dead-lettered; it takes no place."""
        held = await _ended(persistence, completed_at=MOMENT - _SECOND)
        other = await _ended(persistence)
        first, second = an_event(held.id), an_event(held.id, occurred_at=MOMENT + _SECOND)
        await persistence.append_outbox_events([first, second])
        assert await _listed(persistence, limit=1) == [other.id]
        await _publish(persistence, first.id, dead=dead)
        assert await persistence.has_pending_events(held.id)
        assert await _listed(persistence) == [other.id]
        await _publish(persistence, second.id, dead=dead)
        assert not await persistence.has_pending_events(held.id)
        assert await _listed(persistence) == [held.id, other.id]
        assert not await persistence.has_pending_events("no such run")

    async def test_a_run_is_deleted_with_all_that_is_its_own(
        self, persistence: Persistence, reader: RunReader
    ) -> None:
        """`delete_run`: with its stages, signals, log lines, annotations and events; another run keeps its own."""
        gone, stays = await _ended(persistence), await _ended(persistence)
        for run in (gone, stays):
            stage = a_stage(run.id)
            await persistence.create_stage(stage)
            annotation = replace(an_annotation(run.id), stage_record_id=stage.id)
            await persistence.append_annotations([annotation])
            await persistence.append_logs([a_log_line(run.id)])
            await persistence.append_outbox_events([an_event(run.id)])
            await persistence.insert_signal_if_absent(a_signal(run.id))
        await persistence.delete_run(gone.id)
        for run, count in ((gone, 0), (stays, 1)):
            found = await persistence.get_run(run.id)
            assert (found is not None) is bool(count)
            assert len(await persistence.get_stages_by_run(run.id)) == count
            assert len(await persistence.list_annotations(run.id, AnnotationQuery())) == count
            logs = await reader.list_logs(run.id, level=None, limit=9, cursor=None)
            assert len(logs.items) == count
            assert len(await persistence.list_signals(run.id)) == count
            assert len(await reader.list_events(run.id, after=0, limit=9)) == count
            assert await persistence.has_pending_events(run.id) is bool(count)
        with pytest.raises(RecordNotFoundError):
            await persistence.append_outbox_events([an_event(gone.id)])

    async def test_a_run_that_is_made_anew_begins_anew(
        self, persistence: Persistence, reader: RunReader
    ) -> None:
        """`delete_run`: nothing of it is found by a run that has its id."""
        run = await _ended(persistence)
        await persistence.append_outbox_events([an_event(run.id), an_event(run.id)])
        await persistence.delete_run(run.id)
        await persistence.create_run(run)
        await persistence.append_outbox_events([an_event(run.id)])
        assert [event.sequence for event in await reader.list_events(run.id, after=0, limit=9)] == [1]

    async def test_deleting_an_unknown_run_is_no_error(self, persistence: Persistence) -> None:
        """`delete_run`: nothing happens if there is none."""
        await persistence.delete_run("no such run")

    async def test_keys_that_name_a_run_go_with_it(self, persistence: Persistence) -> None:
        """`delete_run`: the idempotency keys that name it, by their taking or by their completion."""
        gone, stays = await _ended(persistence), await _ended(persistence)

        async def take(key: str, run_id: str | None = None) -> object:
            return await persistence.acquire_idempotency_key(
                key, "run.create", fingerprint="f", now=MOMENT, stale_after=None, run_id=run_id
            )

        for key, run_id in (
            ("taken", gone.id),
            ("renamed", stays.id),
            ("created", None),
            ("other", stays.id),
        ):
            await take(key, run_id)
        await take("nameless")
        for key in ("renamed", "created"):
            await persistence.complete_idempotency_key(
                key, "run.create", taken_at=MOMENT, result=key, run_id=gone.id
            )
        await persistence.complete_idempotency_key("other", "run.create", taken_at=MOMENT, result=None)
        await persistence.complete_idempotency_key("nameless", "run.create", taken_at=MOMENT, result=None)
        await persistence.delete_run(gone.id)
        for key in ("taken", "renamed", "created"):
            assert await take(key) == KeyAcquired()
        assert await take("other") == KeyCompleted("f", None)
        assert await take("nameless") == KeyCompleted("f", None)
        await persistence.delete_run(stays.id)
        assert await take("other") == KeyAcquired()
        assert await take("taken") == KeyInProgress("f")

    async def test_a_tombstone_comes_back_as_it_was_put(self, persistence: Persistence) -> None:
        """`put_tombstone`: every field is kept exactly, in the place of the one that its run had."""
        tombstone = _tombstone()
        await persistence.put_tombstone(tombstone)
        assert await persistence.list_tombstones(9) == [tombstone]
        other = replace(tombstone, blob_prefixes=(), stage_record_ids=("s",), created_at=LATER)
        await persistence.put_tombstone(other)
        assert await persistence.list_tombstones(9) == [other]

    async def test_tombstones_come_the_oldest_first(self, persistence: Persistence) -> None:
        """`list_tombstones`: the oldest first, of the same time the smaller run id, up to the limit."""
        stem = new_id("run")
        made = [
            _tombstone(run_id=f"{stem}c", created_at=LATER),
            _tombstone(run_id=f"{stem}b"),
            _tombstone(run_id=f"{stem}a"),
            _tombstone(run_id=f"{stem}d", created_at=MOMENT - _SECOND),
        ]
        for tombstone in made:
            await persistence.put_tombstone(tombstone)
        listed = [one.run_id.removeprefix(stem) for one in await persistence.list_tombstones(9)]
        assert listed == ["d", "a", "b", "c"]
        assert len(await persistence.list_tombstones(2)) == 2
        assert await persistence.list_tombstones(0) == []

    async def test_a_tombstone_is_removed_by_one(
        self, persistence: Persistence, competitor: Persistence
    ) -> None:
        """`remove_tombstone`: of several callers one is told True; False if there is none."""
        tombstone, other = _tombstone(), _tombstone()
        await persistence.put_tombstone(tombstone)
        await persistence.put_tombstone(other)
        handles = [persistence, competitor] * 3
        told = await asyncio.gather(*(handle.remove_tombstone(tombstone.run_id) for handle in handles))
        assert sorted(told) == [False] * 5 + [True]
        assert await persistence.list_tombstones(9) == [other]
        assert not await persistence.remove_tombstone("no such run")
