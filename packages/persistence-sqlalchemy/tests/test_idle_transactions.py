"""Transactions that stand still, because their process is frozen or hangs, and whose locks others wait for."""

import asyncio
from collections.abc import Callable

import pytest
from sqlalchemy import text

from stagewright.errors import TransientError
from stagewright_persistence_sqlalchemy import Database, create_engine
from stagewright_test_support.backend_choice import stores
from stagewright_test_support.servers import PostgresDatabases

OpenDatabase = Callable[..., Database]

LIMIT = {
    "postgresql": "SHOW idle_in_transaction_session_timeout",
    "mariadb": "SELECT @@idle_transaction_timeout",
}


async def _limit(url: str) -> object:
    engine = create_engine(url)
    try:
        async with engine.connect() as connection:
            first = (await connection.execute(text(LIMIT[engine.dialect.name]))).scalar()
            await connection.rollback()
            assert (await connection.execute(text(LIMIT[engine.dialect.name]))).scalar() == first
            return first
    finally:
        await engine.dispose()


@pytest.mark.parametrize(
    "way", stores("asyncpg", "psycopg", "mariadb", differ={"psycopg", "mariadb"}), indirect=True
)
@pytest.mark.guarantee("sql.idle-transactions-end")
async def test_a_transaction_may_wait_a_minute_for_its_next_statement(way: str, url: str) -> None:
    assert await _limit(url) == (60 if way == "mariadb" else "1min")


@pytest.mark.parametrize("way", ["asyncpg", "psycopg"], indirect=True)
async def test_a_pooler_that_lends_whole_sessions_changes_nothing_about_it(url: str) -> None:
    assert await _limit(f"{url}?pgbouncer=false") == "1min"


@pytest.mark.parametrize("way", ["asyncpg through pgbouncer"], indirect=True)
@pytest.mark.parametrize("named", [True, False])
async def test_sessions_that_are_lent_are_left_as_they_are(url: str, named: bool) -> None:
    assert await _limit(url if named else url.replace("?pgbouncer=true", "")) == "0"


@pytest.mark.parametrize("way", ["asyncpg", "psycopg"], indirect=True)
async def test_the_limit_of_the_url_stays(url: str) -> None:
    for chosen in ("5min", "20s"):
        assert await _limit(f"{url}?options=-c%20idle_in_transaction_session_timeout%3D{chosen}") == chosen


async def test_the_limit_of_the_database_stays(postgres_url: str) -> None:
    databases = PostgresDatabases.at(postgres_url)
    url = databases.create("of_another_limit")
    try:
        engine = create_engine(url)
        async with engine.begin() as connection:
            change = "ALTER DATABASE of_another_limit SET idle_in_transaction_session_timeout = '3min'"
            await connection.execute(text(change))
        await engine.dispose()
        assert await _limit(url) == "3min"
    finally:
        databases.drop("of_another_limit")


@pytest.mark.parametrize(
    "way", stores("asyncpg", "psycopg", "mariadb", differ={"psycopg", "mariadb"}), indirect=True
)
@pytest.mark.guarantee("sql.idle-transactions-end")
async def test_a_transaction_that_stands_still_loses_its_locks(
    way: str, url: str, database: Database, open_database: OpenDatabase
) -> None:
    short = open_database(url)
    shortening = "SET SESSION idle_transaction_timeout = 1"
    if way != "mariadb":
        short = open_database(f"{url}?options=-c%20idle_in_transaction_session_timeout%3D300ms")
        shortening = "SELECT 1"
    async with database.engine.begin() as connection:
        await connection.execute(text("CREATE TABLE safe (coins int)"))
        await connection.execute(text("INSERT INTO safe VALUES (1)"))
    try:
        with pytest.raises(TransientError):
            async with short.sessions.writing() as session:
                await session.execute(text(shortening), {})
                await session.execute(text("UPDATE safe SET coins = 100"), {})
                async with asyncio.timeout(20), database.engine.begin() as connection:
                    await connection.execute(text("UPDATE safe SET coins = coins + 1"))
                await session.execute(text("UPDATE safe SET coins = 1000"), {})
        async with short.engine.connect() as connection:
            assert (await connection.execute(text("SELECT coins FROM safe"))).scalars().all() == [2]
    finally:
        async with database.engine.begin() as connection:
            await connection.execute(text("DROP TABLE safe"))
