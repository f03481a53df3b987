"""Transactions: kept together or not at all, on every table, also within a savepoint."""

import asyncio
from typing import Final

import pytest

from stagewright.errors import DuplicateRecordError, RecordNotFoundError, StaleVersionError
from stagewright.ports import Persistence, RunReader
from stagewright.records import RunPatch
from stagewright.status import Status
from stagewright_conformance.samples import LATER, a_run, a_stage, an_event
from stagewright_conformance.suite import Background, PersistenceSuite, Scale
from stagewright_conformance.table_writes import TABLE_WRITES, Scene, TableWrite, seed

__all__ = ["SavepointSuite", "TransactionSuite"]

_EVERY_TABLE: Final = pytest.mark.parametrize(
    "table", TABLE_WRITES, ids=lambda table: table.name.replace(" ", "-")
)


class _BodyError(Exception):
    """What a test's block raises."""


class _Interruption(BaseException):
    """What raises without being an `Exception`."""


_CAUSES: Final = pytest.mark.parametrize("cause", [_BodyError, asyncio.CancelledError, _Interruption])


async def _write_all(store: Persistence, scene: Scene) -> None:
    for table in TABLE_WRITES:
        await table.write(store, scene)


async def _what_happened(persistence: Persistence, reader: RunReader, scene: Scene) -> list[str]:
    """The names of the writes that are to be seen; that a key was released can't be seen beside its completion."""
    looked_at = [table for table in TABLE_WRITES if table.name != "key released"]
    return [table.name for table in looked_at if await table.happened(persistence, reader, scene)]


async def _write_then_raise(
    store: Persistence, table: TableWrite, scene: Scene, cause: type[BaseException] = _BodyError
) -> None:
    async with store.transaction() as tx:
        await table.write(tx, scene)
        raise cause


class TransactionSuite(PersistenceSuite):
    """`Persistence.transaction`: "whose calls are kept together or not at all".

    Fixtures: those of `PersistenceSuite`.
    """

    @_EVERY_TABLE
    async def test_a_write_is_kept_when_its_block_ends(
        self, persistence: Persistence, reader: RunReader, table: TableWrite
    ) -> None:
        """`transaction`: it commits when the block ends."""
        scene = await seed(persistence)
        async with persistence.transaction() as tx:
            await table.write(tx, scene)
        assert await table.happened(persistence, reader, scene)

    @_EVERY_TABLE
    async def test_a_write_outside_a_transaction_is_kept_at_once(
        self, persistence: Persistence, reader: RunReader, table: TableWrite
    ) -> None:
        """`Persistence`: every call outside a transaction is a transaction of its own."""
        scene = await seed(persistence)
        await table.write(persistence, scene)
        assert await table.happened(persistence, reader, scene)

    @pytest.mark.guarantee("stores.transactions-all-or-nothing")
    @_EVERY_TABLE
    async def test_a_write_is_undone_when_its_block_raises(
        self, persistence: Persistence, reader: RunReader, table: TableWrite
    ) -> None:
        """`transaction`: it rolls back when the block raises."""
        scene = await seed(persistence)
        with pytest.raises(_BodyError):
            await _write_then_raise(persistence, table, scene)
        assert not await table.happened(persistence, reader, scene)

    @_CAUSES
    async def test_writes_to_all_tables_are_undone_together_whatever_is_raised(
        self, persistence: Persistence, reader: RunReader, cause: type[BaseException]
    ) -> None:
        """`transaction`: it rolls back when the block raises, a cancellation or an interruption too."""
        scene = await seed(persistence)

        async def fail() -> None:
            async with persistence.transaction() as tx:
                await _write_all(tx, scene)
                raise cause

        with pytest.raises(cause):
            await fail()
        assert await _what_happened(persistence, reader, scene) == []

    async def test_writes_to_all_tables_are_kept_together(
        self, persistence: Persistence, reader: RunReader
    ) -> None:
        """`transaction`: calls are kept together."""
        scene = await seed(persistence)
        async with persistence.transaction() as tx:
            await _write_all(tx, scene)
        expected = [table.name for table in TABLE_WRITES if table.name != "key released"]
        assert await _what_happened(persistence, reader, scene) == expected

    async def test_the_error_of_a_block_comes_out_as_it_is(self, persistence: Persistence) -> None:
        """`transaction`: rolling back adds nothing to what the block raised."""
        error = _BodyError("mine")

        async def fail() -> None:
            async with persistence.transaction() as tx:
                await tx.create_run(a_run())
                raise error

        with pytest.raises(_BodyError) as caught:
            await fail()
        assert caught.value is error

    @pytest.mark.guarantee("stores.stale-versions-write-nothing")
    async def test_a_stale_version_undoes_what_was_written_before_it(
        self, persistence: Persistence, reader: RunReader
    ) -> None:
        """`update_run`: a stale `expected_version` raises at the latest at commit, and nothing is kept."""
        scene = await seed(persistence)
        stale = a_run(status=Status.RUNNING)
        await persistence.create_run(stale)
        await persistence.update_run(stale.id, RunPatch(updated_at=LATER))

        async def fail() -> None:
            async with persistence.transaction() as tx:
                await _write_all(tx, scene)
                await tx.update_run(stale.id, RunPatch(updated_at=LATER, total_tokens=1), expected_version=1)

        with pytest.raises(StaleVersionError):
            await fail()
        run = await persistence.get_run(stale.id)
        assert run is not None
        assert (run.version, run.total_tokens) == (2, 0)
        assert await _what_happened(persistence, reader, scene) == []

    async def test_a_duplicate_undoes_what_was_written_before_it(
        self, persistence: Persistence, reader: RunReader
    ) -> None:
        """`create_run`: a duplicate raises at the latest at commit, and nothing is kept."""
        scene = await seed(persistence)

        async def fail() -> None:
            async with persistence.transaction() as tx:
                await _write_all(tx, scene)
                await tx.create_run(a_run(id=scene.run_id))

        with pytest.raises(DuplicateRecordError):
            await fail()
        assert await _what_happened(persistence, reader, scene) == []

    async def test_a_missing_parent_undoes_what_was_written_before_it(
        self, persistence: Persistence, reader: RunReader
    ) -> None:
        """`create_stage`: an unknown run raises at the latest at commit, and nothing is kept."""
        scene = await seed(persistence)

        async def fail() -> None:
            async with persistence.transaction() as tx:
                await _write_all(tx, scene)
                await tx.create_stage(a_stage("no such run"))

        with pytest.raises(RecordNotFoundError):
            await fail()
        assert await _what_happened(persistence, reader, scene) == []

    async def test_a_store_goes_on_after_a_rollback(self, persistence: Persistence, scale: Scale) -> None:
        """`transaction`: a row is held until the end of the transaction, also when that is a rollback."""
        scene = await seed(persistence)
        for _ in range(3):
            with pytest.raises(_BodyError):
                await _write_then_raise(persistence, TABLE_WRITES[1], scene)
        await scale.soon(persistence.update_run(scene.run_id, RunPatch(updated_at=LATER), expected_version=1))

    async def test_a_cancelled_task_leaves_nothing_and_holds_nothing(
        self, persistence: Persistence, background: Background, scale: Scale
    ) -> None:
        """`transaction`: it rolls back when its task is cancelled while it awaits."""
        scene = await seed(persistence)
        written = asyncio.Event()

        async def never_ends() -> None:
            async with persistence.transaction() as tx:
                await tx.update_run(scene.run_id, RunPatch(updated_at=LATER, total_tokens=7))
                await tx.get_run(scene.run_id)
                written.set()
                await asyncio.Event().wait()

        task = background.start(never_ends())
        await scale.soon(written.wait())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await scale.soon(task)
        await scale.soon(persistence.update_run(scene.run_id, RunPatch(updated_at=LATER), expected_version=1))
        run = await persistence.get_run(scene.run_id)
        assert run is not None
        assert run.total_tokens == 0


class SavepointSuite(PersistenceSuite):
    """`Persistence.transaction` on a transaction: "this opens a savepoint".

    Fixtures: those of `PersistenceSuite`.
    """

    @pytest.mark.guarantee("stores.savepoints-undo-their-own")
    @_EVERY_TABLE
    async def test_a_write_is_undone_with_its_savepoint_and_the_transaction_goes_on(
        self, persistence: Persistence, reader: RunReader, table: TableWrite
    ) -> None:
        """`transaction`: what was written since is undone and the transaction goes on."""
        scene = await seed(persistence)
        before, after = a_run(), a_run()
        async with persistence.transaction() as tx:
            await tx.create_run(before)
            with pytest.raises(_BodyError):
                await _write_then_raise(tx, table, scene)
            await tx.create_run(after)
        assert await persistence.get_run(before.id) is not None
        assert await persistence.get_run(after.id) is not None
        assert not await table.happened(persistence, reader, scene)

    @_EVERY_TABLE
    async def test_a_write_in_a_savepoint_is_kept_with_the_transaction(
        self, persistence: Persistence, reader: RunReader, table: TableWrite
    ) -> None:
        """`transaction`: a savepoint that ends belongs to its transaction."""
        scene = await seed(persistence)
        async with persistence.transaction() as tx, tx.transaction() as inner:
            await table.write(inner, scene)
        assert await table.happened(persistence, reader, scene)

    @_EVERY_TABLE
    async def test_a_write_in_an_ended_savepoint_is_undone_with_the_transaction(
        self, persistence: Persistence, reader: RunReader, table: TableWrite
    ) -> None:
        """`transaction`: a savepoint that ended is no commit."""
        scene = await seed(persistence)

        async def fail() -> None:
            async with persistence.transaction() as tx:
                async with tx.transaction() as inner:
                    await table.write(inner, scene)
                raise _BodyError

        with pytest.raises(_BodyError):
            await fail()
        assert not await table.happened(persistence, reader, scene)

    @_CAUSES
    async def test_a_row_is_again_what_it_was_before_the_savepoint(
        self, persistence: Persistence, cause: type[BaseException]
    ) -> None:
        """`transaction`: what was written since the savepoint is undone, and only that."""
        scene = await seed(persistence)
        async with persistence.transaction() as tx:
            await tx.update_run(scene.run_id, RunPatch(updated_at=LATER, total_tokens=1))
            with pytest.raises(cause):
                await _write_then_raise(tx, TABLE_WRITES[1], scene, cause)
            run = await tx.get_run(scene.run_id)
            assert run is not None
            assert (run.total_tokens, run.version) == (1, 2)
        assert await persistence.get_run(scene.run_id) == run

    async def test_savepoints_nest(self, persistence: Persistence) -> None:
        """`transaction`: a savepoint is opened on a savepoint too, and each undoes what is within it."""
        outer, middle, inner, last = (a_run() for _ in range(4))

        async def fail_in(store: Persistence) -> None:
            async with store.transaction() as second:
                await second.create_run(inner)
                raise _BodyError

        async with persistence.transaction() as tx:
            await tx.create_run(outer)
            async with tx.transaction() as first:
                await first.create_run(middle)
                with pytest.raises(_BodyError):
                    await fail_in(first)
                assert await first.get_run(inner.id) is None
                await first.create_run(last)
        kept = [run for run in (outer, middle, inner, last) if await persistence.get_run(run.id) is not None]
        assert kept == [outer, middle, last]

    async def test_a_savepoint_sees_its_transaction_and_the_other_way_round(
        self, persistence: Persistence
    ) -> None:
        """`transaction`: reads see what this transaction wrote."""
        first, second = a_run(), a_run()
        async with persistence.transaction() as tx:
            await tx.create_run(first)
            async with tx.transaction() as inner:
                assert await inner.get_run(first.id) is not None
                await inner.create_run(second)
            assert await tx.get_run(second.id) is not None

    @pytest.mark.parametrize("failure", ["stale version", "duplicate run", "unknown run"])
    async def test_an_error_of_the_store_in_a_savepoint_leaves_the_transaction_usable(
        self, persistence: Persistence, failure: str
    ) -> None:
        """`transaction`: when the block of a savepoint raises, the transaction goes on."""
        scene = await seed(persistence)
        kept = a_run()

        async def fail_in(store: Persistence) -> None:
            async with store.transaction() as inner:
                await inner.update_run(scene.run_id, RunPatch(updated_at=LATER, total_tokens=9))
                if failure == "stale version":
                    await inner.update_run(scene.run_id, RunPatch(updated_at=LATER), expected_version=77)
                elif failure == "duplicate run":
                    await inner.create_run(a_run(id=scene.pending_run_id))
                else:
                    await inner.update_run("no such run", RunPatch(updated_at=LATER))
                await inner.get_run(scene.run_id)  # writes are held back until the next read at most

        async with persistence.transaction() as tx:
            with pytest.raises((StaleVersionError, DuplicateRecordError, RecordNotFoundError)):
                await fail_in(tx)
            await tx.create_run(kept)
        assert await persistence.get_run(kept.id) is not None
        run = await persistence.get_run(scene.run_id)
        assert run is not None
        assert (run.total_tokens, run.version) == (0, 1)

    async def test_sequences_have_no_gap_where_a_savepoint_was_undone(
        self, persistence: Persistence, reader: RunReader
    ) -> None:
        """`append_outbox_events`: sequences rise by one without gaps."""
        run = a_run()
        await persistence.create_run(run)

        async def fail_in(store: Persistence) -> None:
            async with store.transaction() as inner:
                await inner.append_outbox_events([an_event(run.id), an_event(run.id)])
                raise _BodyError

        async with persistence.transaction() as tx:
            await tx.append_outbox_events([an_event(run.id)])
            with pytest.raises(_BodyError):
                await fail_in(tx)
            await tx.append_outbox_events([an_event(run.id)])
        assert [event.sequence for event in await reader.list_events(run.id, after=0, limit=9)] == [1, 2]
