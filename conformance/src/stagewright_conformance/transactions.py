"""Transactions: kept together or not at all, on every table."""

import asyncio

import pytest

from stagewright.errors import DuplicateRecordError, RecordNotFoundError, StaleVersionError
from stagewright.ports import Persistence, RunReader
from stagewright.records import RunPatch
from stagewright.status import Status
from stagewright_conformance.samples import LATER, a_run, a_stage
from stagewright_conformance.suite import Background, PersistenceSuite, Scale
from stagewright_conformance.table_writes import (
    EVERY_CAUSE,
    EVERY_TABLE,
    TABLE_WRITES,
    BodyError,
    Scene,
    TableWrite,
    seed,
    write_then_raise,
)

__all__ = ["TransactionSuite"]


async def _write_all(store: Persistence, scene: Scene) -> None:
    for table in TABLE_WRITES:
        await table.write(store, scene)


async def _what_happened(persistence: Persistence, reader: RunReader, scene: Scene) -> list[str]:
    """The names of the writes that are to be seen; that a key was released can't be seen beside its completion."""
    looked_at = [table for table in TABLE_WRITES if table.name != "key released"]
    return [table.name for table in looked_at if await table.happened(persistence, reader, scene)]


class TransactionSuite(PersistenceSuite):
    """`Persistence.transaction`: "whose calls are kept together or not at all".

    Fixtures: those of `PersistenceSuite`.
    """

    @EVERY_TABLE
    async def test_a_write_is_kept_when_its_block_ends(
        self, persistence: Persistence, reader: RunReader, table: TableWrite
    ) -> None:
        """`transaction`: it commits when the block ends."""
        scene = await seed(persistence)
        async with persistence.transaction() as tx:
            await table.write(tx, scene)
        assert await table.happened(persistence, reader, scene)

    @EVERY_TABLE
    async def test_a_write_outside_a_transaction_is_kept_at_once(
        self, persistence: Persistence, reader: RunReader, table: TableWrite
    ) -> None:
        """`Persistence`: every call outside a transaction is a transaction of its own."""
        scene = await seed(persistence)
        await table.write(persistence, scene)
        assert await table.happened(persistence, reader, scene)

    @pytest.mark.guarantee("stores.transactions-all-or-nothing")
    @EVERY_TABLE
    async def test_a_write_is_undone_when_its_block_raises(
        self, persistence: Persistence, reader: RunReader, table: TableWrite
    ) -> None:
        """`transaction`: it rolls back when the block raises."""
        scene = await seed(persistence)
        with pytest.raises(BodyError):
            await write_then_raise(persistence, table, scene)
        assert not await table.happened(persistence, reader, scene)

    @EVERY_CAUSE
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
        error = BodyError("mine")

        async def fail() -> None:
            async with persistence.transaction() as tx:
                await tx.create_run(a_run())
                raise error

        with pytest.raises(BodyError) as caught:
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
            with pytest.raises(BodyError):
                await write_then_raise(persistence, TABLE_WRITES[1], scene)
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
