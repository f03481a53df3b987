"""Waking waiting hosts: across processes, after a lost connection, and never for what was rolled back."""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from sqlalchemy import func, select, text

from stagewright_conformance.samples import a_run
from stagewright_persistence_sqlalchemy import (
    Database,
    SqlAlchemyJobTransport,
    SqlAlchemyPersistence,
    listening,
)
from stagewright_persistence_sqlalchemy.tables import PLAIN_TABLES
from stagewright_test_support.backend_choice import stores

OpenDatabase = Callable[..., Database]
Eventually = Callable[..., Awaitable[None]]

WORKER = Path(__file__).with_name("process_worker.py")
LONG, SHORT = timedelta(seconds=10), timedelta(milliseconds=300)
LISTENERS = (
    "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    " AND (query ILIKE 'LISTEN %' OR query = 'SELECT 1')"
)

on_postgres = pytest.mark.parametrize("way", stores("asyncpg", "psycopg"), indirect=True)
everywhere = pytest.mark.parametrize(
    "way", stores("sqlite", "asyncpg", "psycopg", "mariadb", differ={"mariadb"}), indirect=True
)


async def _listens(database: Database, eventually: Eventually) -> SqlAlchemyPersistence:
    """A persistence whose listener has begun, and that was told of all that has been."""
    persistence = SqlAlchemyPersistence(database)
    database.listen()
    await eventually(lambda: database.listener.is_healthy)
    while await persistence.wait_for_work(timedelta(milliseconds=50)):
        pass
    return persistence


async def _work(url: str, *, runs: int) -> asyncio.subprocess.Process:
    """Another process, which creates runs and ends."""
    command = (sys.executable, str(WORKER), url, str(runs), "0")
    return await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)


async def _created(database: Database) -> int:
    async with database.sessions.reading() as session:
        return int(
            (await session.fetch(select(func.count().label("count")).select_from(PLAIN_TABLES.runs), {}))[0][
                "count"
            ]
        )


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
@pytest.mark.guarantee("sql.lost-listener-replaced")
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
    process = await _work(url, runs=1)
    assert await waiting
    assert await process.wait() == 0


@everywhere
@pytest.mark.guarantee("stores.wake-ups-never-slept-through")
async def test_what_another_process_does_between_the_first_look_and_the_first_wait_ends_that_wait(
    url: str, database: Database
) -> None:
    persistence, transport = SqlAlchemyPersistence(database), SqlAlchemyJobTransport(database)
    assert await _created(database) == 0
    process = await _work(url, runs=1)
    assert await process.wait() == 0
    assert await persistence.wait_for_work(LONG)
    assert await _created(database) == 1
    # Whoever else has looked before is woken too, and then there is nothing more to be told.
    assert await transport.wait_for_work(LONG)
    assert not await persistence.wait_for_work(SHORT)
    assert not await transport.wait_for_work(SHORT)


@everywhere
async def test_looking_and_waiting_in_turn_sees_all_that_another_process_does(
    url: str, database: Database
) -> None:
    persistence = SqlAlchemyPersistence(database)
    process = await _work(url, runs=40)
    waits = 0
    while await _created(database) < 40:
        assert await persistence.wait_for_work(LONG), await _created(database)
        waits += 1
    assert waits > 1
    assert await process.wait() == 0


@on_postgres
async def test_what_comes_while_the_connection_is_checked_is_heard(
    url: str,
    database: Database,
    open_database: OpenDatabase,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening, "_KEEP_ALIVE", 0.005)
    here, there = await _listens(database, eventually), SqlAlchemyPersistence(open_database(url))
    for _ in range(100):
        await there.notify("jobs")
        assert await here.wait_for_work(LONG)
    assert database.listener.is_healthy


class SilentServer:
    """Accepts connections and never says a word."""

    def __init__(self) -> None:
        self.writers: list[asyncio.StreamWriter] = []
        self.port = 0

    async def accept(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)


@pytest_asyncio.fixture
async def silent_server() -> AsyncIterator[SilentServer]:
    silent = SilentServer()
    server = await asyncio.start_server(silent.accept, "127.0.0.1", 0)
    silent.port = server.sockets[0].getsockname()[1]
    yield silent
    server.close()
    for writer in silent.writers:
        writer.close()
        await asyncio.wait([asyncio.ensure_future(writer.wait_closed())])


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
@pytest.mark.parametrize("problem", ["refused", "silent"])
@pytest.mark.guarantee("sql.deaf-listener-delays-nobody")
async def test_who_waits_is_not_held_up_by_a_database_that_can_not_be_listened_to(
    *,
    driver: str,
    problem: str,
    silent_server: SilentServer,
    unused_tcp_port: int,
    open_database: OpenDatabase,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(listening, "_CONNECT_WITHIN", 3.0)
    port = silent_server.port if problem == "silent" else unused_tcp_port
    database = open_database(f"postgresql+{driver}://nobody@127.0.0.1:{port}/nothing")
    persistence = SqlAlchemyPersistence(database)
    with caplog.at_level(logging.WARNING, "stagewright.persistence"):
        async with asyncio.timeout(2):
            assert not await persistence.wait_for_work(timedelta(milliseconds=100))
        assert not database.listener.is_healthy
        # Work of this very process is told of all the same.
        waiting = asyncio.create_task(persistence.wait_for_work(LONG))
        await asyncio.sleep(0)
        database.work.tell()
        assert await waiting
        await eventually(lambda: database.listener.last_error is not None)
        await eventually(lambda: len(caplog.messages) == 1)
    assert "notifications are lost" in caplog.messages[0]
    assert str(database.listener.last_error) in caplog.messages[0]
    async with asyncio.timeout(5):
        await database.close()


@everywhere
async def test_what_was_told_before_an_inner_transaction_failed_is_heard(
    database: Database, eventually: Eventually, url: str, open_database: OpenDatabase
) -> None:
    here, there = await _listens(database, eventually), SqlAlchemyPersistence(open_database(url))
    async with there.transaction() as tx:
        await tx.create_run(a_run())
        await tx.notify("runs")
        with pytest.raises(LookupError):
            async with tx.transaction():
                await tx.notify("jobs")
                raise LookupError
    assert await here.wait_for_work(LONG)


@pytest.mark.parametrize("way", stores("asyncpg", "psycopg", "mariadb", differ={"mariadb"}), indirect=True)
async def test_who_has_told_something_and_goes_on_keeps_nobody_waiting(
    database: Database, url: str, open_database: OpenDatabase
) -> None:
    slow, quick = SqlAlchemyPersistence(database), SqlAlchemyPersistence(open_database(url))
    async with slow.transaction() as tx:
        await tx.notify("runs")
        assert await tx.get_run("none") is None
        async with asyncio.timeout(10):
            await quick.notify("jobs")
