"""Connections that were used a moment ago, kept outside of their pool: going through it costs more than a statement."""

import asyncio
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Pool, event
from sqlalchemy.engine import Engine
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import PoolProxiedConnection, QueuePool

__all__ = ["ConnectionsAtHand", "TakenConnection"]

_AT_HAND_FOR: Final = 0.1
_AWAY_FOR: Final = 1.0


@dataclass(slots=True)
class TakenConnection:
    """A connection that was taken out of a pool.

    Attributes:
        connection: The connection.
        pool: The pool.
        taken_at: When it was taken, by its loop's clock.
        used_at: When it was used last.
    """

    connection: PoolProxiedConnection
    pool: Pool
    taken_at: float
    used_at: float = 0.0

    @classmethod
    def of(cls, pool: Pool, connection: PoolProxiedConnection) -> "TakenConnection":
        """One that was taken just now."""
        return cls(connection, pool, asyncio.get_running_loop().time())


class ConnectionsAtHand:
    """Holds a few idle connections of a pool, those in front that were used last.

    What isn't used for a tenth of a second goes back, so that whoever waits for the pool gets it, and each does after a
    second, so that what the pool does with connections, such as replacing old ones, is done.

    Args:
        engine: The engine of the pool.
        most: How many are held.
    """

    def __init__(self, engine: AsyncEngine, *, most: int) -> None:
        self._engine = engine.sync_engine
        self._most = most
        self._idle: list[TakenConnection] = []
        self._returning: tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle] | None = None
        if most:
            event.listen(self._engine, "engine_disposed", self._close_all)

    @classmethod
    def of_pool(cls, engine: AsyncEngine) -> "ConnectionsAtHand":
        """Half of a pool's connections at most, so that others who use it find some too."""
        pool = engine.pool
        return cls(engine, most=pool.size() // 2 if isinstance(pool, QueuePool) else 0)

    def take(self) -> TakenConnection | None:
        """The connection that was used last, or None."""
        return self._idle.pop() if self._idle else None

    def put(self, taken: TakenConnection) -> None:
        """Hold a connection on which nothing is open, or give it back to the pool."""
        loop = asyncio.get_running_loop()
        now = taken.used_at = loop.time()
        is_of_the_pool = taken.pool is self._engine.pool and taken.connection.is_valid
        if not is_of_the_pool or len(self._idle) >= self._most or now - taken.taken_at > _AWAY_FOR:
            taken.connection.close()
            return
        self._idle.append(taken)
        if self._returning is None or self._returning[0] is not loop:
            self._return_later(loop)

    def _return_later(self, loop: asyncio.AbstractEventLoop) -> None:
        self._returning = loop, loop.call_later(_AT_HAND_FOR, self._return_unused, loop)

    def _return_unused(self, loop: asyncio.AbstractEventLoop) -> None:
        self._returning = None
        since = loop.time() - _AT_HAND_FOR
        # The list is in the order of their last use.
        while self._idle and self._idle[0].used_at <= since:
            self._idle.pop(0).connection.close()
        if self._idle:
            self._return_later(loop)

    def _close_all(self, _engine: Engine) -> None:
        # Closing waits for the server, and other things happen meanwhile.
        idle, self._idle = self._idle, []
        for taken in idle:
            taken.connection.invalidate()
