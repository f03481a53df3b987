"""Getting a connection, again and again for a short while when the database can't be reached."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from stagewright.errors import TransientError
from stagewright_persistence_sqlalchemy.vendor_errors import translated_errors

__all__ = ["connected"]

_TRIES: Final = 5
_FIRST_PAUSE: Final = 0.05
_OPENING_PATIENCE: Final = 1.0
_CLOSING_PATIENCE: Final = 5.0


@asynccontextmanager
async def connected(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """A connection out of the pool. Nothing has been sent yet, so trying again is safe.

    Raises:
        TransientError: If the database can't be reached, or the pool has no connection left, after five tries with
            growing, jittered pauses of about a second in all.
    """
    connection = await _connect(engine)
    try:
        yield connection
    finally:
        await _close(connection)


async def _connect(engine: AsyncEngine) -> AsyncConnection:
    for attempt in range(1, _TRIES + 1):
        try:
            with translated_errors():
                return await _opened(engine)
        except TransientError:
            if attempt == _TRIES:
                raise
            # Jitter only spreads reconnects; nothing that is stored depends on it.
            await asyncio.sleep(_FIRST_PAUSE * 2**attempt * random.uniform(0.5, 1.0))
    raise AssertionError("the loop returns or raises")


async def _opened(engine: AsyncEngine) -> AsyncConnection:
    async def connect() -> AsyncConnection:
        return await engine.connect()

    opening = asyncio.create_task(connect())
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        # A driver that is cut off while it opens a connection forgets to close it.
        await _give_back(opening)
        raise


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
