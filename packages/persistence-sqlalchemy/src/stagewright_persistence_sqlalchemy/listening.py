"""Learning that other processes have something to do: LISTEN on PostgreSQL, looking at a counter elsewhere."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, Protocol

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from stagewright.errors import TransientPersistenceError
from stagewright_persistence_sqlalchemy.connecting import connected
from stagewright_persistence_sqlalchemy.dialect import MARIADB
from stagewright_persistence_sqlalchemy.engine import another_engine
from stagewright_persistence_sqlalchemy.mariadb_sessions import MariadbSession
from stagewright_persistence_sqlalchemy.pooler import DEAF, is_behind_pooler
from stagewright_persistence_sqlalchemy.rows import Row
from stagewright_persistence_sqlalchemy.sessions import Session, Sessions
from stagewright_persistence_sqlalchemy.statements.signals import (
    add_notices,
    current_signal,
    delete_notice,
    free_notices,
    signals_and_notices,
)
from stagewright_persistence_sqlalchemy.tables import Tables

__all__ = ["Listener", "listener_of"]

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
_CONNECT_WITHIN: Final = 10.0
_KEEP_ALIVE: Final = 15.0
_ANSWER_WITHIN: Final = 5.0
_LOOK_WITHIN: Final = 10.0
_LOOK_EVERY: Final = 0.05
_MOST_ROWS: Final = 64
"""More rows that count notifications aren't left for every look to add up."""

_AT_ONCE: Final = 200
_log: Final = logging.getLogger("stagewright.persistence")


class _Watch(Protocol):
    async def __call__(self, begun: Callable[[], None], heard: Callable[[], None]) -> None: ...


class Listener:
    """A task that listens, and begins anew whenever its connection is lost.

    Args:
        watch: Listens on one connection until it is lost: says when it has begun, and what it hears.
        tell: Called for every notification, and whenever it begins to hear, since something may have come before.
    """

    def __init__(self, watch: _Watch, tell: Callable[[], None]) -> None:
        self._watch = watch
        self._tell = tell
        self._task: asyncio.Task[None] | None = None
        self._healthy = asyncio.Event()
        self._error: str | None = None
        self._is_reported = False

    @property
    def is_healthy(self) -> bool:
        """Whether it listens at this moment; while it doesn't, waiting hosts have to look for work by themselves."""
        return self._healthy.is_set()

    @property
    def last_error(self) -> str | None:
        """Why it has no connection, or lost the last one."""
        return self._error

    def start(self) -> None:
        """Begin to listen on the running event loop, unless that has happened."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="stagewright-listener")

    async def stop(self) -> None:
        """Stop listening."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._healthy.clear()

    async def _run(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            try:
                await self._watch(self._begun, self._tell)
                self._error = "the connection was closed"
            except Exception as error:
                self._error = f"{type(error).__name__}: {error}"
            if self._healthy.is_set():
                pause = _FIRST_PAUSE
            self._healthy.clear()
            if not self._is_reported:
                self._is_reported = True
                _log.warning("notifications are lost until the database can be listened to: %s", self._error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _begun(self) -> None:
        if self._is_reported:
            _log.info("listening to the database again")
        self._is_reported = False
        self._error = None
        self._healthy.set()
        # Whatever came while nobody listened is found by a look; so this counts as a notification.
        self._tell()


def listener_of(
    engine: AsyncEngine, sessions: Sessions, tables: Tables, tell: Callable[[], None]
) -> Listener:
    """The listener for an engine's database and driver; it hears what concerns these tables."""
    if engine.dialect.name == "sqlite":
        return Listener(_counter_watch(sessions, tables), tell)
    if engine.dialect.name == "mariadb":
        # Of an engine of its own, as below.
        return Listener(_mariadb_watch(another_engine(engine), tables), tell)
    return Listener(_channel_watch(engine, tables.names.channel), tell)


@asynccontextmanager
async def _connection_of_its_own(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    async with AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(_CONNECT_WITHIN):
                connection = await stack.enter_async_context(connected(engine))
        except TimeoutError as error:
            raise TimeoutError(f"no connection within {_CONNECT_WITHIN:g} s") from error
        try:
            yield connection
        finally:
            # Its LISTEN must not go back into the pool with it.
            await asyncio.shield(connection.invalidate())


def _channel_watch(engine: AsyncEngine, channel: str) -> _Watch:
    # Of an engine of its own: a pool that work has exhausted must not make it deaf, nor it take work's only connection.
    own = another_engine(engine)
    listen = _listen_by_asyncpg if engine.dialect.driver == "asyncpg" else _listen_by_psycopg
    is_told = False

    async def watch(begun: Callable[[], None], heard: Callable[[], None]) -> None:
        nonlocal is_told
        if is_told:
            # Trying again would change nothing.
            await asyncio.Event().wait()
        async with _connection_of_its_own(own) as connection:
            # The first connection may have been what showed it.
            is_told = is_behind_pooler(engine)
            if is_told:
                raise ConnectionError(DEAF)
            await listen((await connection.get_raw_connection()).driver_connection, channel, begun, heard)

    return watch


async def _listen_by_asyncpg(
    driver: Any, channel: str, begun: Callable[[], None], heard: Callable[[], None]
) -> None:  # Any: asyncpg ships no types
    lost = asyncio.Event()
    driver.add_termination_listener(lambda _: lost.set())
    await driver.add_listener(channel, lambda *_: heard())
    begun()
    while not driver.is_closed() and not lost.is_set():
        try:
            async with asyncio.timeout(_KEEP_ALIVE):
                await lost.wait()
        except TimeoutError:
            # A connection that died without a word is found out by this.
            await _answered(driver)


async def _listen_by_psycopg(
    driver: Any, channel: str, begun: Callable[[], None], heard: Callable[[], None]
) -> None:  # Any: kept apart from the driver's own generics
    await driver.set_autocommit(True)
    await driver.execute(f"LISTEN {channel}")
    begun()
    while True:
        async for _ in driver.notifies(timeout=_KEEP_ALIVE):
            heard()
        await _answered(driver)


async def _answered(driver: Any) -> None:
    try:
        async with asyncio.timeout(_ANSWER_WITHIN):
            await driver.execute("SELECT 1")
    except TimeoutError as error:
        raise TimeoutError(f"the database didn't answer within {_ANSWER_WITHIN:g} s") from error


def _mariadb_watch(engine: AsyncEngine, tables: Tables) -> _Watch:
    async def watch(begun: Callable[[], None], heard: Callable[[], None]) -> None:
        async with _connection_of_its_own(engine) as connection:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            session = MariadbSession(connection)

            async def look() -> list[Row]:
                try:
                    async with asyncio.timeout(_LOOK_WITHIN):
                        counted = await session.fetch(signals_and_notices(tables), {})
                        if counted[0]["rows"] > _MOST_ROWS:
                            await _gather_notices(session, tables)
                        return counted
                except TimeoutError as error:
                    raise TimeoutError(f"the database didn't answer within {_LOOK_WITHIN:g} s") from error

            await _watch_counter(look, begun, heard)

    return watch


async def _gather_notices(session: Session, tables: Tables) -> None:
    """Put notices into the counter; another listener's and open transactions' are passed over.

    What all of them add up to stays the same, so nobody is woken by it.
    """
    try:
        await session.execute(text("START TRANSACTION"), {})
        found = await session.fetch(free_notices(tables), {"limit": _AT_ONCE})
        if found:
            await session.execute_all([(delete_notice(tables), [{"of_id": row["id"]} for row in found])])
            # The counter last, as for everybody.
            many = sum(row["count"] for row in found)
            await session.execute(add_notices(tables, MARIADB), {"many": many})
        await session.execute(text("COMMIT"), {})
    except TransientPersistenceError:
        # Another look will find as many.
        await session.execute(text("ROLLBACK"), {})


def _counter_watch(sessions: Sessions, tables: Tables) -> _Watch:
    async def look() -> list[Row]:
        async with sessions.reading() as session:
            return await session.fetch(current_signal(tables), {})

    async def watch(begun: Callable[[], None], heard: Callable[[], None]) -> None:
        await _watch_counter(look, begun, heard)

    return watch


async def _watch_counter(
    look: Callable[[], Awaitable[list[Row]]], begun: Callable[[], None], heard: Callable[[], None]
) -> None:
    seen: int | None = None
    while True:
        rows = await look()
        current = rows[0]["count"] if rows else 0
        if seen is None:
            begun()
        elif current != seen:
            heard()
        seen = current
        await asyncio.sleep(_LOOK_EVERY)
