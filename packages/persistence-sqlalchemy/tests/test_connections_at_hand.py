"""Connections that are kept outside of their pool for a moment, because they will be used again at once."""

import asyncio
import os
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import event, func, select
from sqlalchemy.pool import QueuePool

from stagewright_persistence_sqlalchemy import Database, connections_at_hand, create_engine
from stagewright_persistence_sqlalchemy.connections_at_hand import ConnectionsAtHand
from stagewright_test_support.backend_choice import stores

OpenDatabase = Callable[..., Database]
Eventually = Callable[..., Awaitable[None]]

both = pytest.mark.parametrize("way", stores("sqlite", "asyncpg"), indirect=True)


def _pool(database: Database) -> QueuePool:
    pool = database.engine.pool
    assert isinstance(pool, QueuePool)
    return pool


async def _read(database: Database) -> None:
    async with database.sessions.reading() as session:
        await session.fetch(select(func.length("text").label("length")), {})


async def _read_at_once(database: Database, readers: int) -> None:
    """Read so that each of the readers has a connection of its own, which are all open by then."""
    everybody = asyncio.Barrier(readers)

    async def read() -> None:
        async with database.sessions.reading() as session:
            await session.fetch(select(func.length("text").label("length")), {})
            await everybody.wait()

    await asyncio.gather(*(read() for _ in range(readers)))


@pytest.fixture
def check_outs() -> Callable[[Database], list[object]]:
    """What a database's pool has handed out, from now on."""

    def count(database: Database) -> list[object]:
        handed: list[object] = []

        @event.listens_for(database.engine.sync_engine, "checkout")
        def checkout(connection: Any, record: object, _proxy: object) -> None:
            handed.append(record)

        return handed

    return count


@pytest.fixture
def at_hand_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that stands still for a moment changes nothing."""
    for limit in ("_AT_HAND_FOR", "_AWAY_FOR"):
        monkeypatch.setattr(connections_at_hand, limit, 3_600.0)


@both
@pytest.mark.usefixtures("at_hand_for_long")
async def test_a_connection_in_use_again_and_again_goes_through_the_pool_once(
    url: str, open_database: OpenDatabase, check_outs: Callable[[Database], list[object]]
) -> None:
    database = open_database(url)
    await _read(database)
    handed = check_outs(database)
    for _ in range(20):
        await _read(database)
    assert len(handed) == 1


@both
@pytest.mark.usefixtures("at_hand_for_long")
async def test_half_of_the_pool_is_at_hand_whoever_uses_it(url: str, open_database: OpenDatabase) -> None:
    database = open_database(url, pool_size=8)
    another = Database(database.engine)
    for one in (database, database, another, database):
        await _read_at_once(one, 8)
    assert _pool(database).checkedout() == 4


@both
async def test_what_is_not_used_goes_back(
    url: str, open_database: OpenDatabase, eventually: Eventually
) -> None:
    database = open_database(url, pool_size=8)
    await _read_at_once(database, 8)
    await _read_at_once(database, 8)
    await eventually(lambda: _pool(database).checkedout() == 0)
    assert _pool(database).checkedin() == 8


@both
async def test_a_connection_goes_back_after_a_second_even_if_it_is_always_used(
    url: str, open_database: OpenDatabase, check_outs: Callable[[Database], list[object]]
) -> None:
    database = open_database(url)
    await _read(database)
    handed = check_outs(database)
    async with asyncio.timeout(20):
        while len(handed) < 3:
            await _read(database)


@both
async def test_whoever_waits_for_the_pool_is_not_passed_by(url: str, open_database: OpenDatabase) -> None:
    database = open_database(url, pool_size=2)
    await _read_at_once(database, 2)
    turns = 0

    async def use_again_and_again() -> None:
        nonlocal turns
        while True:
            async with database.sessions.reading():
                await asyncio.sleep(0.01)
            turns += 1

    busy = [asyncio.create_task(use_again_and_again()) for _ in range(2)]
    while turns < 4:
        await asyncio.sleep(0.001)
    before = turns
    async with asyncio.timeout(10):
        await _read(database)
    waited = turns - before
    for task in busy:
        task.cancel()
    await asyncio.wait(busy)
    # By the clock alone each connection would come back after a hundred turns.
    assert waited < 50


@both
async def test_others_find_connections_in_the_same_pool(url: str, open_database: OpenDatabase) -> None:
    database = open_database(url, pool_size=4)
    await _read_at_once(database, 4)
    await _read_at_once(database, 4)
    async with asyncio.timeout(10):
        everybody = asyncio.Barrier(4)

        async def use() -> None:
            async with database.engine.connect():
                await everybody.wait()

        await asyncio.gather(*(use() for _ in range(4)))


@pytest.fixture
def closed() -> Callable[[Database], list[object]]:
    """What a database's pool has closed, from now on."""

    def count(database: Database) -> list[object]:
        ended: list[object] = []

        @event.listens_for(database.engine.sync_engine, "close")
        def close(connection: object, record: object) -> None:
            ended.append(record)

        return ended

    return count


@both
async def test_none_is_left_when_the_engine_is_disposed_of(
    url: str,
    open_database: OpenDatabase,
    closed: Callable[[Database], list[object]],
    monkeypatch: pytest.MonkeyPatch,
    eventually: Eventually,
) -> None:
    database = open_database(url)
    ended = closed(database)
    # It is time to give them back while they are closed.
    monkeypatch.setattr(connections_at_hand, "_AT_HAND_FOR", 0.0)
    give_back = ConnectionsAtHand._return_unused
    due: list[Callable[[], None]] = []
    monkeypatch.setattr(
        ConnectionsAtHand, "_return_unused", lambda self, loop: due.append(lambda: give_back(self, loop))
    )
    await _read_at_once(database, 6)
    await _read_at_once(database, 6)
    assert _pool(database).checkedout() == 6
    await eventually(lambda: due)

    @event.listens_for(database.engine.sync_engine, "close")
    def close(connection: object, record: object) -> None:
        due[0]()

    await database.engine.dispose()
    assert len(ended) == 6


@both
async def test_a_caller_who_gives_up_disposing_leaves_none(
    url: str, open_database: OpenDatabase, closed: Callable[[Database], list[object]]
) -> None:
    database = open_database(url)
    await _read_at_once(database, 6)
    await _read_at_once(database, 6)
    ended = closed(database)
    held = ConnectionsAtHand.of(database.engine)

    @event.listens_for(database.engine.sync_engine, "close")
    def close(connection: Any, record: object) -> None:  # Any: SQLAlchemy's adapted connection
        getattr(connection.driver_connection, "terminate", lambda: None)()
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await database.engine.dispose()
    assert len(ended) == 1
    assert held.take() is None


@pytest.mark.parametrize("way", ["sqlite"], indirect=True)
def test_connections_are_used_from_one_event_loop_to_the_next(url: str) -> None:
    database = Database(create_engine(url))
    for _ in range(3):
        asyncio.run(_read(database))
    asyncio.run(database.close())


@pytest.mark.parametrize("way", ["asyncpg"], indirect=True)
@pytest.mark.usefixtures("at_hand_for_long")
async def test_a_forked_child_leaves_its_parents_connections_alone(
    url: str, open_database: OpenDatabase
) -> None:
    database = open_database(url)
    await _read_at_once(database, 3)
    await _read_at_once(database, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            database.engine.sync_engine.dispose(close=False)
            os._exit(0)
        finally:
            os._exit(1)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    async with asyncio.timeout(10):
        await _read_at_once(database, 3)


@both
async def test_an_error_gives_the_connection_back_at_once(url: str, open_database: OpenDatabase) -> None:
    database = open_database(url)
    await _read(database)
    with pytest.raises(ZeroDivisionError):
        async with database.sessions.writing() as session:
            await session.fetch(select(func.length("text").label("length")), {})
            raise ZeroDivisionError
    assert _pool(database).checkedout() == 0
