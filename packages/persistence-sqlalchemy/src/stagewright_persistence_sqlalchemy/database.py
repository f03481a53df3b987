"""A database: its engine, its sessions, its kind."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy.ext.asyncio import AsyncEngine

from stagewright.ports import Clock
from stagewright.system import SystemClock
from stagewright_persistence_sqlalchemy.asyncpg_sessions import AsyncpgSessions
from stagewright_persistence_sqlalchemy.dialect import kind_of
from stagewright_persistence_sqlalchemy.known_definitions import KnownDefinitions
from stagewright_persistence_sqlalchemy.listening import Listener, listener_of
from stagewright_persistence_sqlalchemy.sessions import Sessions
from stagewright_persistence_sqlalchemy.sqlalchemy_sessions import SqlAlchemySessions
from stagewright_persistence_sqlalchemy.transaction import Transaction
from stagewright_persistence_sqlalchemy.work_channel import WorkChannel

__all__ = ["Database"]


class Database:
    """One database, behind one engine.

    Args:
        engine: Made by `create_engine` of this package, which prepares SQLite as it has to be.
        clock: By which leases are stamped on a database without a clock of its own.
        sessions: How statements are sent; by default the driver's own way where there is one.

    Attributes:
        kind: What kind of database it is.
        sessions: How statements are sent.
        clock: The clock that was given.
        definitions: Definitions that are known to be stored; rows of that table never change.
        work: Who waits for notifications.
    """

    def __init__(
        self, engine: AsyncEngine, *, clock: Clock | None = None, sessions: Sessions | None = None
    ) -> None:
        self.engine = engine
        self.kind = kind_of(engine.dialect.name)
        self.clock: Clock = clock or SystemClock()
        self.sessions: Sessions = sessions or _sessions_of(engine)
        self.definitions = KnownDefinitions()
        self.work = WorkChannel()
        self._listener = listener_of(engine, self.sessions, self.work.tell)

    @property
    def listener(self) -> Listener:
        """What learns of notifications; it begins with the first caller that waits."""
        return self._listener

    def listen(self) -> None:
        """Begin to listen, unless that has happened."""
        self._listener.start()

    async def close(self) -> None:
        """Stop listening, and close all connections."""
        await self._listener.stop()
        await self.engine.dispose()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """A transaction of its own: it commits when the block ends and rolls back when it raises."""
        async with self.sessions.writing() as session:
            transaction = Transaction(self.kind, session)
            yield transaction
            await transaction.flush()
        self.definitions.include(transaction.new_definitions)
        if transaction.has_notified:
            # Waiting hosts of this process needn't wait for the database to say so.
            self.work.tell()


def _sessions_of(engine: AsyncEngine) -> Sessions:
    return AsyncpgSessions(engine) if engine.dialect.driver == "asyncpg" else SqlAlchemySessions(engine)
