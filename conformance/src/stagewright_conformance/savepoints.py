"""Savepoints: a transaction on a transaction undoes what is its own."""

import pytest

from stagewright.errors import DuplicateRecordError, RecordNotFoundError, StaleVersionError
from stagewright.ports import Persistence, RunReader
from stagewright.records import RunPatch
from stagewright_conformance.samples import LATER, a_run, an_event
from stagewright_conformance.suite import PersistenceSuite
from stagewright_conformance.table_writes import (
    EVERY_CAUSE,
    EVERY_TABLE,
    TABLE_WRITES,
    BodyError,
    TableWrite,
    seed,
    write_then_raise,
)

__all__ = ["SavepointSuite"]


class SavepointSuite(PersistenceSuite):
    """`Persistence.transaction` on a transaction: "this opens a savepoint".

    Fixtures: those of `PersistenceSuite`.
    """

    @pytest.mark.guarantee("stores.savepoints-undo-their-own")
    @EVERY_TABLE
    async def test_a_write_is_undone_with_its_savepoint_and_the_transaction_goes_on(
        self, persistence: Persistence, reader: RunReader, table: TableWrite
    ) -> None:
        """`transaction`: what was written since is undone and the transaction goes on."""
        scene = await seed(persistence)
        before, after = a_run(), a_run()
        async with persistence.transaction() as tx:
            await tx.create_run(before)
            with pytest.raises(BodyError):
                await write_then_raise(tx, table, scene)
            await tx.create_run(after)
        assert await persistence.get_run(before.id) is not None
        assert await persistence.get_run(after.id) is not None
        assert not await table.happened(persistence, reader, scene)

    @EVERY_TABLE
    async def test_a_write_in_a_savepoint_is_kept_with_the_transaction(
        self, persistence: Persistence, reader: RunReader, table: TableWrite
    ) -> None:
        """`transaction`: a savepoint that ends belongs to its transaction."""
        scene = await seed(persistence)
        async with persistence.transaction() as tx, tx.transaction() as inner:
            await table.write(inner, scene)
        assert await table.happened(persistence, reader, scene)

    @EVERY_TABLE
    async def test_a_write_in_an_ended_savepoint_is_undone_with_the_transaction(
        self, persistence: Persistence, reader: RunReader, table: TableWrite
    ) -> None:
        """`transaction`: a savepoint that ended is no commit."""
        scene = await seed(persistence)

        async def fail() -> None:
            async with persistence.transaction() as tx:
                async with tx.transaction() as inner:
                    await table.write(inner, scene)
                raise BodyError

        with pytest.raises(BodyError):
            await fail()
        assert not await table.happened(persistence, reader, scene)

    @EVERY_CAUSE
    async def test_a_row_is_again_what_it_was_before_the_savepoint(
        self, persistence: Persistence, cause: type[BaseException]
    ) -> None:
        """`transaction`: what was written since the savepoint is undone, and only that."""
        scene = await seed(persistence)
        async with persistence.transaction() as tx:
            await tx.update_run(scene.run_id, RunPatch(updated_at=LATER, total_tokens=1))
            with pytest.raises(cause):
                await write_then_raise(tx, TABLE_WRITES[1], scene, cause)
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
                raise BodyError

        async with persistence.transaction() as tx:
            await tx.create_run(outer)
            async with tx.transaction() as first:
                await first.create_run(middle)
                with pytest.raises(BodyError):
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
                raise BodyError

        async with persistence.transaction() as tx:
            await tx.append_outbox_events([an_event(run.id)])
            with pytest.raises(BodyError):
                await fail_in(tx)
            await tx.append_outbox_events([an_event(run.id)])
        assert [event.sequence for event in await reader.list_events(run.id, after=0, limit=9)] == [1, 2]
