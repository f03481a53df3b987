"""Connections that were used a moment ago, kept outside of their pool: going through it costs more than a statement."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Pool, event
from sqlalchemy.engine import Engine
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import PoolProxiedConnection, QueuePool

from stagewright.system import HomeProcess

__all__ = ["ConnectionsAtHand", "TakenConnection"]

_OPTION: Final = "stagewright_connections_at_hand"
"""The option of engines that says which of their connections are at hand."""

_AT_HAND_FOR: Final = 0.1
_AWAY_FOR: Final = 1.0
_of_parents: Final[list["TakenConnection"]] = []
"""What a forked child keeps of its parent's as long as it lives."""


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

    What isn't used for a tenth of a second goes back, so that others who wait for the pool get it, and each does after
    a second, so that what the pool does with connections, such as replacing old ones, is done.

    Args:
        engine: The engine of the pool, which doesn't overflow; those that `create_engine` makes have one of these.
        most: How many are held.
    """

    def __init__(self, engine: AsyncEngine, *, most: int) -> None:
        self._engine = engine.sync_engine
        self._most = most
        self._idle: list[TakenConnection] = []
        self._waiting = 0
        self._returning: tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle] | None = None
        self._home = HomeProcess()

    @classmethod
    def of(cls, engine: AsyncEngine) -> "ConnectionsAtHand":
        """Those of an engine, which all share that use it; they hold nothing if it is another's make."""
        found: ConnectionsAtHand | None = engine.get_execution_options().get(_OPTION)
        return cls(engine, most=0) if found is None else found

    @classmethod
    def give_to(cls, engine: AsyncEngine) -> None:
        """Have an engine's connections held: half of its pool at most, so that others who use it find some too."""
        pool = engine.pool
        if isinstance(pool, QueuePool):
            held = cls(engine, most=pool.size() // 2)
            engine.update_execution_options(**{_OPTION: held})
            event.listen(engine.sync_engine, "engine_disposed", held.close_all)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Somebody waits for the pool: until then nothing is held back, and nobody gets what is at hand."""
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    @property
    def has_waiting(self) -> bool:
        """Whether somebody waits for the pool."""
        return self._waiting > 0

    def take(self) -> TakenConnection | None:
        """The connection that was used last, or None."""
        return self._idle.pop() if self._idle and self._home.is_here else None

    def put(self, taken: TakenConnection) -> None:
        """Hold a connection on which nothing is open, or give it back to the pool."""
        loop = asyncio.get_running_loop()
        now = taken.used_at = loop.time()
        is_of_the_pool = taken.pool is self._engine.pool and taken.connection.is_valid
        has_room = len(self._idle) < self._most and not self.has_waiting
        if not (has_room and is_of_the_pool) or now - taken.taken_at > _AWAY_FOR:
            taken.connection.close()
            return
        self._idle.append(taken)
        if self._returning is None or self._returning[0] is not loop:
            self._return_later(loop)

    def close_all(self, _engine: Engine) -> None:
        """Close what is held, with the engine."""
        # Closing waits for the server, and other things happen meanwhile.
        idle, self._idle = self._idle, []
        if not self._home.is_here:
            # They are the parent's: even to forget them would end them.
            _of_parents.extend(idle)
            return
        try:
            while idle:
                idle.pop().connection.invalidate()
        finally:
            for taken in idle:
                _cut(taken)

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


def _cut(taken: TakenConnection) -> None:
    """End a connection without a word to its server."""
    terminate = getattr(taken.connection.driver_connection, "terminate", None)  # asyncpg's
    if callable(terminate):
        terminate()
    taken.connection.close()
