"""Writers of several processes on one SQLite file, each here an engine of its own."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from stagewright.errors import TransientError
from stagewright_conformance.samples import a_run
from stagewright_persistence_sqlalchemy import Database, SqlAlchemyPersistence, create_engine
from stagewright_persistence_sqlalchemy.schema import upgrade


@pytest_asyncio.fixture
async def writers(sqlite_url: str) -> AsyncIterator[tuple[SqlAlchemyPersistence, SqlAlchemyPersistence]]:
    one, other = Database(create_engine(sqlite_url)), Database(create_engine(sqlite_url))
    await upgrade(one.engine)
    yield SqlAlchemyPersistence(one), SqlAlchemyPersistence(other)
    await one.close()
    await other.close()


async def test_a_cancelled_wait_for_another_process_ends_while_that_still_writes(
    writers: tuple[SqlAlchemyPersistence, SqlAlchemyPersistence],
) -> None:
    writer, waiter = writers
    kept, given_up = a_run(), a_run()
    await writer.create_run(kept)
    async with writer.transaction() as tx:
        await tx.lock_runs([kept.id])
        waiting = asyncio.create_task(waiter.create_run(given_up))
        await asyncio.wait({waiting}, timeout=0.3)
        assert not waiting.done()
        waiting.cancel()
        # It is twice as long until the database gives up by itself.
        await asyncio.wait({waiting}, timeout=15)
        assert waiting.cancelled()
    assert await writer.get_run(given_up.id) is None
    await waiter.create_run(given_up)
    assert await writer.get_run(given_up.id) == given_up


async def test_a_wait_for_another_process_ends_with_its_transaction(
    writers: tuple[SqlAlchemyPersistence, SqlAlchemyPersistence],
) -> None:
    writer, waiter = writers
    held, run = a_run(), a_run()
    await writer.create_run(held)
    async with writer.transaction() as tx:
        await tx.lock_runs([held.id])
        waiting = asyncio.create_task(waiter.create_run(run))
        await asyncio.wait({waiting}, timeout=0.3)
        assert not waiting.done()
    await waiting
    assert await writer.get_run(run.id) == run


async def test_a_wait_is_as_long_as_the_connection_is_patient(
    writers: tuple[SqlAlchemyPersistence, SqlAlchemyPersistence], sqlite_url: str
) -> None:
    hasty = Database(create_engine(sqlite_url))
    async with hasty.engine.connect() as connection:
        driver = (await connection.get_raw_connection()).driver_connection
        assert driver is not None
        await driver.execute("PRAGMA busy_timeout = 1")
    held = a_run()
    await writers[0].create_run(held)
    async with writers[0].transaction() as tx:
        await tx.lock_runs([held.id])
        with pytest.raises(TransientError):
            await SqlAlchemyPersistence(hasty).create_run(a_run())
    async with hasty.engine.connect() as connection:
        assert (await connection.exec_driver_sql("PRAGMA busy_timeout")).scalar() == 1
    await hasty.close()
