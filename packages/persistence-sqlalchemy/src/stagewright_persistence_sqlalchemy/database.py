"""A database: its engine, its sessions, its kind."""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from sqlalchemy import Executable
from sqlalchemy.ext.asyncio import AsyncEngine

from stagewright.errors import TransientError
from stagewright.ports import Clock
from stagewright.system import SystemClock
from stagewright_persistence_sqlalchemy.asyncpg_sessions import AsyncpgSessions
from stagewright_persistence_sqlalchemy.database_schema import DatabaseSchema
from stagewright_persistence_sqlalchemy.dialect import kind_of
from stagewright_persistence_sqlalchemy.engine import PREPARED_FILE, names_of
from stagewright_persistence_sqlalchemy.known_definitions import KnownDefinitions
from stagewright_persistence_sqlalchemy.listening import Listener, listener_of
from stagewright_persistence_sqlalchemy.mariadb_sessions import sqlalchemy_sessions
from stagewright_persistence_sqlalchemy.rows import Row
from stagewright_persistence_sqlalchemy.sessions import Sessions
from stagewright_persistence_sqlalchemy.sqlite_sessions import SqliteSessions
from stagewright_persistence_sqlalchemy.tables import tables_of
from stagewright_persistence_sqlalchemy.telling import Telling
from stagewright_persistence_sqlalchemy.transaction import Transaction
from stagewright_persistence_sqlalchemy.work_channel import WorkChannel

__all__ = ["Database"]

_TRIES: Final = 3
_FIRST_PAUSE: Final = 0.01
_LONGEST_PAUSE: Final = 0.5


class Database:
    """One database, behind one engine.

    Args:
        engine: Made by `create_engine` of this package, which prepares SQLite as it has to be.
        clock: By which leases are stamped on a database without a clock of its own.
        sessions: How statements are sent; by default the driver's own way where there is one.
        listen_on: An engine for the same database that notifications get through to, where they don't to `engine`; of
            its connections one is opened. By default `engine` is.
        schema: What `schema.check` found; by default what this build needs is taken to be there.

    Attributes:
        kind: What kind of database it is.
        tables: Its tables, under the names that `create_engine` was given.
        sessions: How statements are sent.
        clock: The clock that was given.
        definitions: Definitions that are known to be stored; rows of that table never change.
        work: Who waits for notifications.
        schema: The schema that it had when it was opened.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        clock: Clock | None = None,
        sessions: Sessions | None = None,
        listen_on: AsyncEngine | None = None,
        schema: DatabaseSchema | None = None,
    ) -> None:
        self.engine = engine
        self.kind = kind_of(engine.dialect.name)
        self.tables = tables_of(names_of(engine))
        self.clock: Clock = clock or SystemClock()
        self.sessions: Sessions = sessions or _sessions_of(engine)
        self.schema = schema or DatabaseSchema()
        self.definitions = KnownDefinitions()
        self.work = WorkChannel()
        self._listener = listener_of(listen_on or engine, self.sessions, self.tables, self.work.tell)
        # On SQLite a transaction of its own would cost more than it spares.
        self._telling = Telling(self._tell_others) if self.kind.skips_locked else None
        self._failures = 0

    @property
    def listener(self) -> Listener:
        """What learns of notifications; it begins with the first caller that waits."""
        return self._listener

    def listen(self) -> None:
        """Begin to listen, unless that has happened."""
        self._listener.start()

    async def close(self) -> None:
        """Tell what is to be told, stop listening, and close all connections."""
        if self._telling is not None:
            await self._telling.close()
        await self._listener.stop()
        await self.engine.dispose()

    async def read(
        self, statement: Executable, parameters: Mapping[str, Any]
    ) -> list[Row]:  # Any: whatever columns hold
        """Read what is committed; a read that a server cuts off is repeated, three times in all."""
        tries = _TRIES if self.kind.skips_locked else 1
        while True:
            has_asked = False
            try:
                async with self.sessions.reading() as session:
                    has_asked = True
                    return await session.fetch(statement, parameters)
            except TransientError:
                tries -= 1
                # For a connection it was waited long enough.
                if not (has_asked and tries):
                    raise
            await self._pause()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """A transaction of its own: it commits when the block ends and rolls back when it raises.

        One that ends with `TransientError` raises it after a jittered pause, longer with each failure in a row: whoever
        repeats it at once would meet the others again that it has just met.
        """
        transaction: Transaction | None = None
        try:
            async with self.sessions.writing() as session:
                transaction = Transaction(self.tables, self.kind, session, telling=self._telling)
                yield transaction
                await transaction.flush(is_last=True)
        except TransientError:
            # It may have been committed all the same.
            self._tell_later(transaction)
            await self._pause()
            raise
        self._failures = 0
        self.definitions.include(transaction.new_definitions)
        if transaction.has_notified:
            # Waiting hosts of this process needn't wait for the database to say so.
            self.work.tell()
        self._tell_later(transaction)

    def _tell_later(self, transaction: Transaction | None) -> None:
        if transaction is not None and transaction.tells_later and self._telling is not None:
            self._telling.later()

    async def _tell_others(self) -> None:
        async with self.sessions.writing() as session:
            transaction = Transaction(self.tables, self.kind, session)
            transaction.pending.topics["runs"] = None
            await transaction.flush(is_last=True)

    async def _pause(self) -> None:
        longest = min(_FIRST_PAUSE * 2**self._failures, _LONGEST_PAUSE)
        self._failures = min(self._failures + 1, 10)
        # Jitter only spreads repetitions; nothing that is stored depends on it.
        await asyncio.sleep(longest * random.uniform(0.5, 1.0))


def _sessions_of(engine: AsyncEngine) -> Sessions:
    if engine.dialect.driver == "asyncpg":
        return AsyncpgSessions(engine)
    prepared = engine.get_execution_options().get(PREPARED_FILE)
    return SqliteSessions(engine) if prepared else sqlalchemy_sessions(engine)
