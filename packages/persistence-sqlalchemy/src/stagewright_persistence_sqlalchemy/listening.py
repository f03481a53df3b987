"""Learning that other processes have something to do: LISTEN on PostgreSQL, looking at a counter on SQLite."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

from sqlalchemy.ext.asyncio import AsyncEngine

from stagewright_persistence_sqlalchemy.flushing import CHANNEL
from stagewright_persistence_sqlalchemy.sessions import Sessions
from stagewright_persistence_sqlalchemy.statements.signals import current_signal

__all__ = ["Listener", "listener_of"]

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
_KEEP_ALIVE: Final = 10.0
_LOOK_EVERY: Final = 0.05
_log: Final = logging.getLogger("stagewright.persistence")


class _Watch(Protocol):
    async def __call__(self, connected: Callable[[], None], heard: Callable[[], None]) -> None: ...


class Listener:
    """A task that listens, and begins anew whenever its connection is lost.

    Args:
        watch: Listens on one connection until it is lost: says when it is connected, and what it hears.
        tell: Called for every notification, and after each reconnect, since something may have been missed.
    """

    def __init__(self, watch: _Watch, tell: Callable[[], None]) -> None:
        self._watch = watch
        self._tell = tell
        self._task: asyncio.Task[None] | None = None
        self._healthy = asyncio.Event()
        self._error: str | None = None

    @property
    def is_healthy(self) -> bool:
        """Whether it listens at this moment; while it doesn't, waiting hosts have to look for work by themselves."""
        return self._healthy.is_set()

    @property
    def last_error(self) -> str | None:
        """Why it lost its connection the last time."""
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
                await self._watch(self._connected, self._tell)
                self._error = "the connection was closed"
            except Exception as error:
                self._error = f"{type(error).__name__}: {error}"
            if self._healthy.is_set():
                pause = _FIRST_PAUSE
                _log.warning(
                    "notifications are lost until the database can be listened to again: %s", self._error
                )
            self._healthy.clear()
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _connected(self) -> None:
        if self._error is not None:
            _log.info("listening to the database again")
            # Whatever came while nobody listened is found by a look; so this counts as a notification.
            self._tell()
        self._error = None
        self._healthy.set()


def listener_of(engine: AsyncEngine, sessions: Sessions, tell: Callable[[], None]) -> Listener:
    """The listener for an engine's database and driver."""
    if engine.dialect.name == "sqlite":
        return Listener(_counter_watch(sessions), tell)
    if engine.dialect.driver == "asyncpg":
        return Listener(_asyncpg_watch(engine), tell)
    return Listener(_psycopg_watch(engine), tell)


def _asyncpg_watch(engine: AsyncEngine) -> _Watch:
    async def watch(connected: Callable[[], None], heard: Callable[[], None]) -> None:
        connection = await engine.connect()
        try:
            raw = await connection.get_raw_connection()
            driver: Any = raw.driver_connection  # Any: asyncpg ships no types
            lost = asyncio.Event()
            driver.add_termination_listener(lambda _: lost.set())
            await driver.add_listener(CHANNEL, lambda *_: heard())
            connected()
            while not driver.is_closed() and not lost.is_set():
                try:
                    async with asyncio.timeout(_KEEP_ALIVE):
                        await lost.wait()
                except TimeoutError:
                    # A connection that died without a word is found out by this.
                    async with asyncio.timeout(_KEEP_ALIVE):
                        await driver.execute("SELECT 1")
        finally:
            # Its LISTEN must not go back into the pool with it.
            await asyncio.shield(connection.invalidate())
            await asyncio.shield(connection.close())

    return watch


def _psycopg_watch(engine: AsyncEngine) -> _Watch:
    async def watch(connected: Callable[[], None], heard: Callable[[], None]) -> None:
        connection = await engine.connect()
        try:
            raw = await connection.get_raw_connection()
            driver: Any = raw.driver_connection  # Any: kept apart from the driver's own generics
            await driver.set_autocommit(True)
            await driver.execute(f"LISTEN {CHANNEL}")
            connected()
            while True:
                async for _ in driver.notifies(timeout=_KEEP_ALIVE):
                    heard()
                await driver.execute("SELECT 1")
        finally:
            await asyncio.shield(connection.invalidate())
            await asyncio.shield(connection.close())

    return watch


def _counter_watch(sessions: Sessions) -> _Watch:
    async def watch(connected: Callable[[], None], heard: Callable[[], None]) -> None:
        seen: int | None = None
        while True:
            async with sessions.reading() as session:
                rows = await session.fetch(current_signal(), {})
            current = rows[0]["count"] if rows else 0
            if seen is None:
                connected()
            elif current != seen:
                heard()
            seen = current
            await asyncio.sleep(_LOOK_EVERY)

    return watch
