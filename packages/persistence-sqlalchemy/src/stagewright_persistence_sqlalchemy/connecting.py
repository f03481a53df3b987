"""Getting a connection: an idle one at once, else again and again for a while when the database can't be reached."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from sqlalchemy import exc
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.pool import PoolProxiedConnection, QueuePool
from sqlalchemy.util import greenlet_spawn

from stagewright.errors import TransientError
from stagewright_persistence_sqlalchemy.connections_at_hand import ConnectionsAtHand, TakenConnection
from stagewright_persistence_sqlalchemy.vendor_errors import translated_errors

__all__ = ["UNDOING_PATIENCE", "PooledConnections", "connected"]

UNDOING_PATIENCE: Final = 5.0
"""How many seconds a server has for a rollback, before its connection is cut instead."""

_TRIES: Final = 5
_FIRST_PAUSE: Final = 0.05
_OPENING_PATIENCE: Final = 1.0
_CLOSING_PATIENCE: Final = 5.0


@asynccontextmanager
async def connected(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """A connection out of the pool. Nothing has been sent yet, so trying again is safe.

    Raises:
        TransientError: If the database can't be reached, after five tries with growing, jittered pauses of about a
            second in all; or if the pool had no connection to give within its time-out.
    """
    connection = await _connect(engine)
    try:
        yield connection
    finally:
        await _close(connection)


class PooledConnections:
    """Drivers' connections out of an engine's pool, without SQLAlchemy's own around them; an idle one is taken at once.

    Args:
        engine: The engine.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._suspects = 0
        self._at_hand = ConnectionsAtHand.of(engine)

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[PoolProxiedConnection]:
        """A connection; it goes back when the block ends.

        Raises:
            TransientError: As `connected`.
        """
        # Who waits for the pool already comes first.
        idle = None if self._at_hand.has_waiting else self._at_hand.take() or await self._idle()
        if idle is not None and _is_closed(idle.connection.driver_connection):
            self.discard(idle.connection)
            idle = None
        if idle is not None:
            try:
                yield idle.connection
            except BaseException:
                # Something may be open on it, which the pool undoes when it comes back.
                idle.connection.close()
                raise
            self._at_hand.put(idle)
            return
        async with AsyncExitStack() as held:
            with self._at_hand.waiting():
                connection = await held.enter_async_context(connected(self._engine))
            with translated_errors():
                opened = await connection.get_raw_connection()
            yield opened

    def discard(self, connection: PoolProxiedConnection) -> None:
        """Close a connection instead of giving it back."""
        # Its place in the pool looks idle and has to be opened again, which takes the longer way; it comes up in turn.
        self._suspects = self._places
        connection.invalidate()

    @property
    def _places(self) -> int:
        pool = self._engine.pool
        return pool.size() if isinstance(pool, QueuePool) else 0

    async def _idle(self) -> TakenConnection | None:
        pool = self._engine.pool
        if self._suspects:
            self._suspects -= 1
            return None
        if not isinstance(pool, QueuePool) or not pool.checkedin():
            return None
        try:
            with translated_errors():
                return TakenConnection.of(pool, await greenlet_spawn(pool.connect))
        except TransientError:
            return None


async def _connect(engine: AsyncEngine) -> AsyncConnection:
    for attempt in range(1, _TRIES + 1):
        try:
            with translated_errors():
                return await _opened(engine)
        except TransientError as error:
            # A pool that had nothing to give was waited for long enough already.
            if attempt == _TRIES or isinstance(error.__cause__, exc.TimeoutError):
                raise
            # Jitter only spreads reconnects; nothing that is stored depends on it.
            await asyncio.sleep(_FIRST_PAUSE * 2**attempt * random.uniform(0.5, 1.0))
    raise AssertionError("the loop returns or raises")


async def _opened(engine: AsyncEngine) -> AsyncConnection:
    async def connect() -> AsyncConnection:
        while True:
            connection = await engine.connect()
            raw = await connection.get_raw_connection()
            if not _is_closed(raw.driver_connection):
                return connection
            # Its server went away while it lay in the pool; in its place another one is opened.
            await connection.invalidate()
            await connection.close()

    opening = asyncio.create_task(connect())
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        # A driver that is cut off while it opens a connection forgets to close it.
        await _give_back(opening)
        raise


def _is_closed(driver: Any) -> bool:  # Any: any driver's connection
    """Whether a driver knows by now that its connection is lost; nothing is sent to find out."""
    asked = getattr(driver, "is_closed", None)  # asyncpg's
    if callable(asked):
        return bool(asked())
    return any(
        getattr(driver, name, False) is True for name in ("closed", "_stream_broken")
    )  # psycopg's, asyncmy's


async def _give_back(opening: "asyncio.Task[AsyncConnection]") -> None:
    await asyncio.wait({opening}, timeout=_OPENING_PATIENCE)
    if not opening.done():
        opening.cancel()
    elif not opening.cancelled() and opening.exception() is None:
        await _close(opening.result())


async def _close(connection: AsyncConnection) -> None:
    """Give a connection back to its pool, also when this task is cancelled meanwhile."""
    closing = asyncio.ensure_future(connection.close())
    try:
        await asyncio.shield(closing)
    except asyncio.CancelledError:
        await asyncio.wait({closing}, timeout=_CLOSING_PATIENCE)
        raise
