"""What a database says is told apart: it refused this time, it is away, or the call is wrong."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import literal, select, text

from stagewright.errors import (
    DeadlockError,
    DuplicateRecordError,
    PersistenceUnavailableError,
    StagewrightError,
    TransientError,
    TransientPersistenceError,
)
from stagewright_persistence_sqlalchemy import Database
from stagewright_persistence_sqlalchemy.errors import ValueTooLargeError
from stagewright_persistence_sqlalchemy.tables import PLAIN_TABLES

OpenDatabase = Callable[..., Database]

SAID: dict[str, type[StagewrightError]] = {
    "40001": TransientPersistenceError,
    "40P01": DeadlockError,
    "55P03": TransientPersistenceError,
    "57014": TransientPersistenceError,
    "57P05": TransientPersistenceError,
    "53300": PersistenceUnavailableError,
    "53100": PersistenceUnavailableError,
    "57P01": PersistenceUnavailableError,
    "57P03": PersistenceUnavailableError,
    "08006": PersistenceUnavailableError,
    "25006": PersistenceUnavailableError,
    "23505": DuplicateRecordError,
    "54000": ValueTooLargeError,
}


@pytest.mark.guarantee("sql.failures-are-told-apart")
@pytest.mark.parametrize("way", ["asyncpg", "psycopg"], indirect=True)
@pytest.mark.parametrize(("state", "type_"), SAID.items(), ids=SAID)
async def test_a_code_of_the_server_has_its_type(
    database: Database, state: str, type_: type[StagewrightError]
) -> None:
    with pytest.raises(StagewrightError) as raised:
        async with database.sessions.writing() as session:
            await session.execute(text(f"DO $$ BEGIN RAISE SQLSTATE '{state}'; END $$"), {})
    assert type(raised.value) is type_
    assert raised.value.__cause__ is not None
    assert await database.read(select(literal(1).label("one")), {}), "the pool is none the worse for it"


@pytest.mark.guarantee("sql.failures-are-told-apart")
@pytest.mark.parametrize("way", ["asyncpg", "psycopg"], indirect=True)
async def test_a_pool_with_nothing_to_give_is_unavailable(url: str, open_database: OpenDatabase) -> None:
    database = open_database(url, pool_size=1, pool_timeout=0.2)
    async with database.sessions.writing() as session:
        await session.execute(text("SELECT 1"), {})
        with pytest.raises(PersistenceUnavailableError, match="QueuePool limit"):
            async with database.sessions.writing() as other:
                await other.execute(text("SELECT 1"), {})


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_a_server_that_is_not_there_is_unavailable(
    open_database: OpenDatabase, unused_tcp_port: int, driver: str
) -> None:
    database = open_database(f"postgresql+{driver}://me@127.0.0.1:{unused_tcp_port}/app")
    with pytest.raises(PersistenceUnavailableError):
        await database.read(text("SELECT 1"), {})


@pytest.mark.guarantee("sql.failures-are-told-apart")
async def test_a_file_that_another_process_writes_to_is_refused_this_time(
    sqlite_url: str, open_database: OpenDatabase, make_tables: Callable[[Database], Awaitable[None]]
) -> None:
    first, second = open_database(sqlite_url), open_database(sqlite_url, pool_size=1)
    await make_tables(first)
    async with second.engine.connect() as connection:
        driver: Any = (await connection.get_raw_connection()).driver_connection
        await driver.execute("PRAGMA busy_timeout = 1")
    delete = PLAIN_TABLES.runs.delete()
    async with first.sessions.writing() as session:
        await session.execute(delete, {})
        with pytest.raises(TransientPersistenceError, match="locked") as raised:
            async with second.sessions.writing() as other:
                await other.execute(delete, {})
    assert not isinstance(raised.value, PersistenceUnavailableError)
    assert isinstance(raised.value, TransientError)
