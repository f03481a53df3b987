"""Waking waiting hosts: across processes, after a lost connection, and never for what was rolled back."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from stagewright_persistence_sqlalchemy import Database, SqlAlchemyJobTransport, SqlAlchemyPersistence

OpenDatabase = Callable[..., Database]
Eventually = Callable[..., Awaitable[None]]

WORKER = Path(__file__).with_name("process_worker.py")
LONG, SHORT = timedelta(seconds=10), timedelta(milliseconds=300)
LISTENERS = (
    "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    " AND (query ILIKE 'LISTEN %' OR query = 'SELECT 1')"
)

on_postgres = pytest.mark.parametrize("way", ["asyncpg", "psycopg"], indirect=True)
everywhere = pytest.mark.parametrize("way", ["sqlite", "asyncpg", "psycopg"], indirect=True)


async def _listens(database: Database, eventually: Eventually) -> SqlAlchemyPersistence:
    """A persistence whose listener has begun, and that was told of all that has been."""
    persistence = SqlAlchemyPersistence(database)
    database.listen()
    await eventually(lambda: database.listener.is_healthy)
    while await persistence.wait_for_work(timedelta(milliseconds=50)):
        pass
    return persistence


@everywhere
async def test_a_notification_of_another_database_object_arrives(
    url: str, database: Database, open_database: OpenDatabase, eventually: Eventually
) -> None:
    here = await _listens(database, eventually)
    there = SqlAlchemyPersistence(open_database(url))
    waiting = asyncio.create_task(here.wait_for_work(LONG))
    await asyncio.sleep(0.01)
    await there.notify("runs")
    assert await waiting
    assert not await here.wait_for_work(SHORT)


@everywhere
async def test_what_was_rolled_back_never_arrives(
    url: str, database: Database, open_database: OpenDatabase, eventually: Eventually
) -> None:
    here = await _listens(database, eventually)
    other = open_database(url)
    there = SqlAlchemyPersistence(other)
    for persistence in (here, there):
        with pytest.raises(RuntimeError, match="no"):
            async with persistence.transaction() as tx:
                await tx.notify("runs")
                await tx.get_run("r")
                raise RuntimeError("no")
    async with there.transaction() as tx:
        with pytest.raises(RuntimeError, match="savepoint"):
            async with tx.transaction() as inner:
                await inner.notify("runs")
                raise RuntimeError("savepoint")
    assert not await here.wait_for_work(SHORT)
    await there.notify("runs")
    assert await here.wait_for_work(LONG)


@everywhere
async def test_it_arrives_only_once_the_transaction_has_committed(
    url: str, database: Database, open_database: OpenDatabase, eventually: Eventually
) -> None:
    here = await _listens(database, eventually)
    there = SqlAlchemyPersistence(open_database(url))
    async with there.transaction() as tx:
        await tx.notify("runs")
        await tx.get_run("r")
        assert not await here.wait_for_work(SHORT)
    assert await here.wait_for_work(LONG)


@on_postgres
async def test_a_lost_connection_is_reported_and_replaced(
    url: str, database: Database, open_database: OpenDatabase, eventually: Eventually
) -> None:
    here = await _listens(database, eventually)
    other = open_database(url)
    there = SqlAlchemyPersistence(other)
    waiting = asyncio.create_task(here.wait_for_work(LONG))
    async with other.engine.connect() as connection:
        killed = await connection.execute(text(f"SELECT pg_terminate_backend(pid) {LISTENERS}"))
        assert [row[0] for row in killed] == [True]
    await eventually(lambda: not database.listener.is_healthy)
    assert database.listener.last_error is not None
    await eventually(lambda: database.listener.is_healthy)
    # Something may have been missed meanwhile, so whoever waits is woken to look.
    assert await waiting
    assert not await here.wait_for_work(SHORT)
    await there.notify("jobs")
    assert await here.wait_for_work(LONG)


@on_postgres
async def test_the_listener_takes_one_connection_and_gives_it_back_closed(
    database: Database, eventually: Eventually, url: str, open_database: OpenDatabase
) -> None:
    await _listens(database, eventually)
    transport = SqlAlchemyJobTransport(database)
    assert not await transport.wait_for_work(timedelta(milliseconds=20))
    other = open_database(url)

    async def listeners() -> int:
        async with other.engine.connect() as connection:
            return int((await connection.execute(text(f"SELECT count(*) {LISTENERS}"))).scalar_one())

    assert await listeners() == 1
    await database.close()
    assert not database.listener.is_healthy

    async def are_gone() -> bool:
        return await listeners() == 0

    await eventually(are_gone)


@everywhere
async def test_a_run_that_another_process_creates_wakes_this_one(
    url: str, database: Database, eventually: Eventually
) -> None:
    here = await _listens(database, eventually)
    waiting = asyncio.create_task(here.wait_for_work(timedelta(seconds=30)))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(WORKER), url, "1", "0"), stdout=asyncio.subprocess.DEVNULL
    )
    assert await waiting
    assert await process.wait() == 0
