"""Isolation: what transactions see of each other, and where they wait."""

import asyncio
from typing import Final

import pytest

from stagewright.errors import DeadlockError, StaleVersionError
from stagewright.ports import Persistence, RunReader
from stagewright.records import RunPatch, RunRecord, StagePatch
from stagewright_conformance.samples import LATER, a_run
from stagewright_conformance.suite import Background, PersistenceSuite, Scale
from stagewright_conformance.table_writes import TABLE_WRITES, TableWrite, seed

__all__ = ["IsolationSuite", "RowLockSuite"]

_SEEN_BY_READING: Final = [table for table in TABLE_WRITES if table.seen_by != "writing"]
_SEEN_BY_ITSELF: Final = [table for table in TABLE_WRITES if table.seen_by == "store"]


def _name(table: TableWrite) -> str:
    return table.name.replace(" ", "-")


async def _run(store: Persistence, run_id: str) -> RunRecord:
    run = await store.get_run(run_id)
    assert run is not None
    return run


class IsolationSuite(PersistenceSuite):
    """`Persistence.transaction`: what reads see.

    Fixtures: those of `PersistenceSuite`; `competitor` is the other side of every test.
    """

    @pytest.mark.guarantee("stores.transactions-isolated")
    @pytest.mark.parametrize("table", _SEEN_BY_READING, ids=_name)
    async def test_a_write_is_seen_by_others_only_once_committed(
        self,
        persistence: Persistence,
        competitor: Persistence,
        reader: RunReader,
        table: TableWrite,
        scale: Scale,
    ) -> None:
        """`transaction`: reads never see what others haven't committed, and don't wait for it."""
        scene = await seed(persistence)
        async with persistence.transaction() as tx:
            await table.write(tx, scene)
            await tx.get_run(scene.run_id)
            assert not await scale.soon(table.happened(competitor, reader, scene))
        assert await table.happened(competitor, reader, scene)

    @pytest.mark.parametrize("table", _SEEN_BY_ITSELF, ids=_name)
    async def test_a_transaction_sees_its_own_writes(
        self, persistence: Persistence, reader: RunReader, table: TableWrite
    ) -> None:
        """`transaction`: reads see what this transaction wrote."""
        scene = await seed(persistence)
        async with persistence.transaction() as tx:
            await table.write(tx, scene)
            assert await table.happened(tx, reader, scene)

    async def test_a_transaction_does_not_see_what_another_has_not_committed(
        self, persistence: Persistence, competitor: Persistence, background: Background, scale: Scale
    ) -> None:
        """`transaction`: reads inside a transaction never see what others haven't committed."""
        run = a_run()
        await persistence.create_run(run)
        async with persistence.transaction() as tx:
            await tx.update_run(run.id, RunPatch(updated_at=LATER, total_tokens=7))
            await tx.get_run(run.id)

            async def look() -> int:
                async with competitor.transaction() as other:
                    return (await _run(other, run.id)).total_tokens

            looking = background.start(look())
            waited = await scale.still_waits(looking)
            assert waited or looking.result() == 0
        assert await scale.soon(looking) == (7 if waited else 0)

    @pytest.mark.needs("concurrent_writers")
    async def test_a_transaction_sees_what_others_commit_meanwhile(
        self, persistence: Persistence, competitor: Persistence, scale: Scale
    ) -> None:
        """`transaction`: reads see what others have committed."""
        run, own = a_run(), a_run()
        await persistence.create_run(run)
        async with persistence.transaction() as tx:
            await tx.create_run(own)
            assert (await _run(tx, run.id)).version == 1
            await scale.soon(competitor.update_run(run.id, RunPatch(updated_at=LATER)))
            assert (await _run(tx, run.id)).version == 2

    async def test_a_guard_is_checked_against_what_is_committed_last(
        self, persistence: Persistence, competitor: Persistence, background: Background, scale: Scale
    ) -> None:
        """`update_run`: of two that read one version and guard on it, one succeeds and one is stale."""
        run = a_run()
        await persistence.create_run(run)
        both_read = asyncio.Barrier(2)

        async def read_then_write(store: Persistence, tokens: int) -> None:
            seen = await _run(store, run.id)
            await both_read.wait()
            async with store.transaction() as tx:
                patch = RunPatch(updated_at=LATER, total_tokens=tokens)
                await tx.update_run(run.id, patch, expected_version=seen.version)

        tasks = [
            background.start(read_then_write(store, n))
            for n, store in enumerate((persistence, competitor), 1)
        ]
        outcomes = await scale.soon(asyncio.gather(*tasks, return_exceptions=True))
        assert sorted(map(type, outcomes), key=str) == sorted([type(None), StaleVersionError], key=str)
        winner = outcomes.index(None) + 1
        after = await _run(persistence, run.id)
        assert (after.version, after.total_tokens) == (2, winner)

    @pytest.mark.guarantee("stores.versions-rise-by-one")
    async def test_no_update_is_lost_among_many_writers_of_one_row(
        self, persistence: Persistence, competitor: Persistence, scale: Scale
    ) -> None:
        """`update_run`: every change of the row raises its version by one."""
        scene = await seed(persistence)

        async def write(store: Persistence) -> None:
            await store.update_run(scene.run_id, RunPatch(updated_at=LATER))
            async with store.transaction() as tx:
                await tx.lock_runs([scene.run_id])
                await tx.update_stage(scene.stage_record_id, StagePatch(updated_at=LATER))

        writers = [write(store) for _ in range(scale.contenders) for store in (persistence, competitor)]
        await scale.soon(asyncio.gather(*writers))
        stage = await persistence.get_stage(scene.run_id, "price")
        assert stage is not None
        assert (await _run(persistence, scene.run_id)).version == 1 + 2 * scale.contenders
        assert stage.version == 1 + 2 * scale.contenders


class RowLockSuite(PersistenceSuite):
    """`Persistence.transaction` and `lock_runs`: who waits for whom.

    Fixtures: those of `PersistenceSuite`; `competitor` is the one who waits.
    """

    @pytest.mark.parametrize("ending", ["commit", "rollback"])
    async def test_a_second_writer_of_a_row_waits_and_then_sees_what_is_committed(
        self,
        persistence: Persistence,
        competitor: Persistence,
        background: Background,
        scale: Scale,
        ending: str,
    ) -> None:
        """`transaction`: a row that was written is held until the end; another writer of it waits."""
        run = a_run()
        await persistence.create_run(run)

        async def hold() -> "asyncio.Task[None]":
            async with persistence.transaction() as tx:
                await tx.update_run(run.id, RunPatch(updated_at=LATER, total_tokens=1))
                await tx.get_run(run.id)
                patch = RunPatch(updated_at=LATER, total_tokens=2)
                waiting.append(background.start(competitor.update_run(run.id, patch, expected_version=1)))
                assert await scale.still_waits(waiting[0])
                if ending == "rollback":
                    raise LookupError
            return waiting[0]

        waiting: list[asyncio.Task[None]] = []
        if ending == "rollback":
            with pytest.raises(LookupError):
                await hold()
            await scale.soon(waiting[0])
            assert (await _run(persistence, run.id)).total_tokens == 2
        else:
            second = await hold()
            with pytest.raises(StaleVersionError):
                await scale.soon(second)
            assert (await _run(persistence, run.id)).total_tokens == 1

    async def test_an_unguarded_second_writer_writes_on_top_of_the_first(
        self, persistence: Persistence, competitor: Persistence, background: Background, scale: Scale
    ) -> None:
        """`transaction`: another writer waits, and its patch leaves alone what it doesn't set."""
        run = a_run()
        await persistence.create_run(run)
        async with persistence.transaction() as tx:
            await tx.update_run(run.id, RunPatch(updated_at=LATER, total_tokens=1))
            await tx.get_run(run.id)
            second = background.start(
                competitor.update_run(run.id, RunPatch(updated_at=LATER, output="kept"))
            )
            assert await scale.still_waits(second)
        await scale.soon(second)
        after = await _run(persistence, run.id)
        assert (after.version, after.total_tokens, after.output) == (3, 1, "kept")

    async def test_locking_waits_for_the_holder_and_reads_what_it_committed(
        self, persistence: Persistence, competitor: Persistence, background: Background, scale: Scale
    ) -> None:
        """`lock_runs`: runs are read as they are once locked."""
        run = a_run()
        await persistence.create_run(run)

        async def lock() -> list[RunRecord]:
            async with competitor.transaction() as tx:
                return await tx.lock_runs([run.id])

        async with persistence.transaction() as tx:
            await tx.lock_runs([run.id])
            waiting = background.start(lock())
            assert await scale.still_waits(waiting)
            await tx.update_run(run.id, RunPatch(updated_at=LATER, total_tokens=5))
        [locked] = await scale.soon(waiting)
        assert (locked.version, locked.total_tokens) == (2, 5)

    async def test_locking_answers_existing_runs_in_the_order_of_their_ids(
        self, persistence: Persistence
    ) -> None:
        """`lock_runs`: those that exist, in the order of their ids; none for none."""
        runs = [a_run() for _ in range(5)]
        for run in runs:
            await persistence.create_run(run)
        ids = sorted(run.id for run in runs)
        async with persistence.transaction() as tx:
            assert [run.id for run in await tx.lock_runs([*reversed(ids), "no such run"])] == ids
            assert [run.id for run in await tx.lock_runs(ids[:2])] == ids[:2]
            assert await tx.lock_runs([]) == []

    async def test_locking_sees_own_writes(self, persistence: Persistence) -> None:
        """`lock_runs`: a transaction can lock, and reads, what it wrote itself."""
        run = a_run()
        async with persistence.transaction() as tx:
            await tx.create_run(run)
            await tx.update_run(run.id, RunPatch(updated_at=LATER, total_tokens=3))
            [locked] = await tx.lock_runs([run.id])
        assert (locked.version, locked.total_tokens) == (2, 3)

    async def test_outside_a_transaction_nothing_stays_locked(
        self, persistence: Persistence, scale: Scale
    ) -> None:
        """`lock_runs`: outside a transaction nothing is locked."""
        run = a_run()
        await persistence.create_run(run)
        assert await persistence.lock_runs([run.id]) == [run]
        await scale.soon(persistence.update_run(run.id, RunPatch(updated_at=LATER)))

    async def test_opposite_orders_do_not_wait_for_each_other(
        self, persistence: Persistence, competitor: Persistence, scale: Scale
    ) -> None:
        """`lock_runs`: rows are locked in the order of their ids, whatever order is given."""
        ids = [run.id for run in [a_run() for _ in range(6)]]
        for run_id in ids:
            await persistence.create_run(a_run(id=run_id))

        async def lock_and_write(store: Persistence, order: list[str]) -> None:
            async with store.transaction() as tx:
                await tx.lock_runs(order)
                await asyncio.sleep(0)
                for run_id in order:
                    await tx.update_run(run_id, RunPatch(updated_at=LATER))

        orders = [ids if n % 2 else ids[::-1] for n in range(scale.contenders)]
        stores = (persistence, competitor)
        await scale.soon(asyncio.gather(*(lock_and_write(stores[n % 2], o) for n, o in enumerate(orders))))
        versions = {(await _run(persistence, run_id)).version for run_id in ids}
        assert versions == {1 + scale.contenders}

    @pytest.mark.needs("concurrent_writers")
    @pytest.mark.guarantee("stores.deadlocks-end")
    async def test_two_that_wait_for_each_other_are_told(
        self, persistence: Persistence, competitor: Persistence, scale: Scale
    ) -> None:
        """`lock_runs`: `DeadlockError` if waiting would never end because of locks taken in another order."""
        first, second = a_run(), a_run()
        await persistence.create_run(first)
        await persistence.create_run(second)
        both_hold_one = asyncio.Barrier(2)

        async def lock_one_by_one(store: Persistence, *order: str) -> None:
            async with store.transaction() as tx:
                await tx.lock_runs(order[:1])
                await both_hold_one.wait()
                await tx.lock_runs(order[1:])
                for run_id in order:
                    await tx.update_run(run_id, RunPatch(updated_at=LATER))

        tasks = (
            lock_one_by_one(persistence, first.id, second.id),
            lock_one_by_one(competitor, second.id, first.id),
        )
        outcomes = await scale.soon(asyncio.gather(*tasks, return_exceptions=True))
        assert {type(outcome) for outcome in outcomes if outcome is not None} == {DeadlockError}
        versions = {(await _run(persistence, run.id)).version for run in (first, second)}
        assert versions == {1 + outcomes.count(None)}

    @pytest.mark.needs("concurrent_writers")
    async def test_different_rows_do_not_wait_for_each_other(
        self, persistence: Persistence, competitor: Persistence, scale: Scale
    ) -> None:
        """`transaction`: only another writer of the same row waits."""
        first, second = a_run(), a_run()
        await persistence.create_run(first)
        await persistence.create_run(second)
        async with persistence.transaction() as tx:
            await tx.lock_runs([first.id])
            await scale.soon(competitor.update_run(second.id, RunPatch(updated_at=LATER)))

    async def test_a_waiter_that_gives_up_holds_nothing(
        self, persistence: Persistence, competitor: Persistence, background: Background, scale: Scale
    ) -> None:
        """`transaction`: a waiter that is cancelled has rolled back."""
        run = a_run()
        await persistence.create_run(run)
        async with persistence.transaction() as tx:
            await tx.lock_runs([run.id])
            waiting = background.start(
                competitor.update_run(run.id, RunPatch(updated_at=LATER, total_tokens=8))
            )
            assert await scale.still_waits(waiting)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await scale.soon(waiting)
        await scale.soon(competitor.update_run(run.id, RunPatch(updated_at=LATER), expected_version=1))
        assert (await _run(persistence, run.id)).total_tokens == 0
