"""Blobs and steps beside runs in one transaction, where each database has its own ways."""

from dataclasses import replace

import pytest

from stagewright.errors import DuplicateRecordError
from stagewright.ports import BlobStore
from stagewright_conformance.samples import a_run, a_stage, a_step
from stagewright_persistence_sqlalchemy import (
    Database,
    SqlAlchemyBlobStore,
    SqlAlchemyPersistence,
    SqlAlchemyStepLedger,
)
from stagewright_test_support.backend_choice import stores

pytestmark = pytest.mark.parametrize("way", stores("sqlite", "asyncpg", "psycopg", "mariadb"), indirect=True)


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.guarantee("stores.enlisted-writes-share-the-fate")
async def test_blobs_share_the_fate_of_the_transaction(database: Database, *, kept: bool) -> None:
    persistence, blobs, run = SqlAlchemyPersistence(database), SqlAlchemyBlobStore(database), a_run()
    await blobs.put("old", b"old")

    async def write() -> None:
        async with persistence.transaction() as tx:
            enlisted = blobs.enlist(tx)
            assert isinstance(enlisted, BlobStore)
            await tx.create_run(run)
            await enlisted.put("new", b"new")
            await enlisted.delete("old")
            assert [key async for key in enlisted.list("")] == ["new"]
            assert [key async for key in blobs.list("")] == ["old"]
            if not kept:
                raise LookupError

    if kept:
        await write()
    else:
        with pytest.raises(LookupError):
            await write()
    assert [key async for key in blobs.list("")] == (["new"] if kept else ["old"])
    assert (await persistence.get_run(run.id) is not None) is kept


async def test_a_step_whose_id_another_has_is_refused_by_name(database: Database) -> None:
    persistence, ledger, run = SqlAlchemyPersistence(database), SqlAlchemyStepLedger(database), a_run()
    stage = a_stage(run.id)
    await persistence.create_run(run)
    await persistence.create_stage(stage)
    first = a_step(stage.id)
    await ledger.claim(first)
    with pytest.raises(DuplicateRecordError, match=first.id):
        await ledger.claim(replace(first, step_id="another"))
    assert [step.step_id for step in await ledger.list(stage.id)] == [first.step_id]
