"""Heartbeats over a connection of their own: lost connections, held rows, busy loops and databases in memory."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from sqlalchemy import text

from stagewright.errors import TransientError
from stagewright.ports import HeartbeatChannel
from stagewright.records import Fence, HeldLease, NewJob
from stagewright_persistence_sqlalchemy import Database, SqlAlchemyJobTransport, SqlAlchemyPersistence
from stagewright_persistence_sqlalchemy.engine import another_engine

SERVERS = ["asyncpg", "psycopg"]


async def a_lease(transport: SqlAlchemyJobTransport, name: str = "one") -> HeldLease:
    await transport.enqueue_parallel([NewJob(id=name, run_id=name, workflow_id="w", stage_id="s")])
    [taken] = await transport.dequeue(worker_id="worker")
    return HeldLease(taken.job_id, taken.fence)


async def end_others(database: Database) -> None:
    """End all connections to a database but the one that this is done by."""
    async with database.engine.begin() as connection:
        if database.kind.name == "mariadb":
            others = "db = DATABASE() AND id <> CONNECTION_ID()"
            found = await connection.execute(
                text(f"SELECT id FROM information_schema.processlist WHERE {others}")
            )
            for id in found.scalars().all():
                await connection.execute(text(f"KILL {id}"))
            return
        others = "datname = current_database() AND pid <> pg_backend_pid()"
        await connection.execute(
            text(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")
        )


def opened(transport: SqlAlchemyJobTransport) -> HeartbeatChannel:
    channel = transport.open_heartbeats()
    assert channel is not None
    return channel


@pytest.mark.parametrize("way", [*SERVERS, "mariadb"], indirect=True)
async def test_a_lost_connection_is_replaced_at_the_next_beat(
    database: Database, open_database: Callable[..., Database], url: str
) -> None:
    transport = SqlAlchemyJobTransport(database)
    lease, channel = await a_lease(transport), opened(transport)
    assert await asyncio.to_thread(channel.renew_many, [lease]) == [True]
    await end_others(open_database(url))
    assert await asyncio.to_thread(channel.renew_many, [lease]) == [True]
    await asyncio.to_thread(channel.close)


@pytest.mark.parametrize("driver", SERVERS)
async def test_an_unreachable_database_is_a_transient_error(
    driver: str, open_database: Callable[..., Database]
) -> None:
    nowhere = open_database(f"postgresql+{driver}://nobody@127.0.0.1:9/nothing")
    channel = opened(SqlAlchemyJobTransport(nowhere))
    lease = HeldLease("one", Fence(started_at=nowhere.clock.now(), deliveries=1))
    with pytest.raises(TransientError):
        await asyncio.to_thread(channel.renew_many, [lease])
    await asyncio.to_thread(channel.close)


@pytest.mark.parametrize("way", [*SERVERS, "mariadb"], indirect=True)
async def test_a_job_that_somebody_holds_keeps_nobody_waiting(database: Database) -> None:
    transport = SqlAlchemyJobTransport(database)
    settled, free = await a_lease(transport, "settled"), await a_lease(transport, "free")
    channel = opened(transport)
    before = {
        job.id: job.locked_at for run in ("settled", "free") for job in await transport.get_jobs_by_run(run)
    }
    async with SqlAlchemyPersistence(database).transaction() as tx:
        enlisted = transport.enlist(tx)
        assert enlisted is not None
        await enlisted.complete(settled.job_id, settled.fence)
        await tx.get_run("a read, which sends what was written")
        async with asyncio.timeout(5):
            assert await asyncio.to_thread(channel.renew_many, [settled, free]) == [True, True]
    after = {
        job.id: job.locked_at for run in ("settled", "free") for job in await transport.get_jobs_by_run(run)
    }
    assert after["free"] is not None
    assert before["free"] is not None
    assert after["free"] > before["free"]
    assert await asyncio.to_thread(channel.renew_many, [settled, free]) == [False, True]
    await asyncio.to_thread(channel.close)


async def test_a_beat_gets_its_turn_among_busy_writers(database: Database) -> None:
    transport = SqlAlchemyJobTransport(database)
    lease, channel = await a_lease(transport), opened(transport)
    busy = asyncio.Event()

    async def write(number: int) -> None:
        while not busy.is_set():
            job = NewJob(id=f"job {number}", run_id=f"run {number}", workflow_id="w", stage_id="s")
            await transport.enqueue_parallel([job])

    writers = [asyncio.create_task(write(number)) for number in range(8)]
    begun = time.monotonic()
    try:
        for _ in range(5):
            assert await asyncio.to_thread(channel.renew_many, [lease]) == [True]
    finally:
        busy.set()
        await asyncio.gather(*writers)
    assert time.monotonic() - begun < 10
    await asyncio.to_thread(channel.close)


async def test_a_database_in_one_connection_has_no_channel(
    open_database: Callable[..., Database], make_tables: Callable[[Database], Awaitable[None]]
) -> None:
    database = open_database("sqlite://")
    await make_tables(database)
    assert SqlAlchemyJobTransport(database).open_heartbeats() is None


async def test_inside_a_transaction_there_is_no_channel(database: Database) -> None:
    async with SqlAlchemyPersistence(database).transaction() as tx:
        enlisted = SqlAlchemyJobTransport(database).enlist(tx)
        assert enlisted is not None
        assert enlisted.open_heartbeats() is None


@pytest.mark.parametrize("way", ["sqlite"], indirect=True)
async def test_its_connections_are_made_as_the_databases_own(database: Database) -> None:
    own = another_engine(database.engine)
    async with own.connect() as connection:
        for pragma, wanted in (("synchronous", 2), ("foreign_keys", 1), ("busy_timeout", 30_000)):
            assert (await connection.execute(text(f"PRAGMA {pragma}"))).scalar_one() == wanted
    await own.dispose()
