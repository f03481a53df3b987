"""Sessions over sqlite3's own connections, in aiosqlite's threads: one change of threads a call, whatever it sends."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from sqlalchemy import Executable
from sqlalchemy.ext.asyncio import AsyncEngine

from stagewright.errors import TransientPersistenceError
from stagewright_persistence_sqlalchemy.connecting import PooledConnections
from stagewright_persistence_sqlalchemy.prepared_statements import PreparedStatements
from stagewright_persistence_sqlalchemy.rows import Row
from stagewright_persistence_sqlalchemy.sessions import Session
from stagewright_persistence_sqlalchemy.stall_guard import StallGuard
from stagewright_persistence_sqlalchemy.vendor_errors import translated_commit_errors, translated_errors
from stagewright_persistence_sqlalchemy.writer_turn import WriterTurn

__all__ = ["SqliteSessions"]

R = TypeVar("R")

_GLANCE_MS: Final = 100
"""How long a thread waits for another process's writer before it looks whether anybody still wants it to."""


class SqliteSessions:
    """Connections out of an engine's pool, used without SQLAlchemy's layers.

    Args:
        engine: An engine on a file, made by `create_engine`: its connections begin no transactions by themselves, and
            are not rolled back when they come back, which would take a change of threads.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._connections = PooledConnections(engine)
        self._turn = WriterTurn()
        self._guard = StallGuard()
        self._statements = PreparedStatements(engine.dialect)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Session]:
        """A connection on which every statement is a transaction of its own."""
        async with self._connections.taken() as connection:
            yield _SqliteSession(connection.driver_connection, self._statements)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[Session]:
        """A connection in a transaction."""
        async with self._turn.taken(), self._connections.taken() as connection:
            session = _SqliteSession(connection.driver_connection, self._statements, guard=self._guard)
            self._guard.enter(session)
            try:
                try:
                    yield session
                except BaseException:
                    await session.roll_back()
                    raise
                await session.commit()
            finally:
                self._guard.leave(session)
                # A caller cancelled in between may leave a transaction open, in which the next one would be lost.
                if not session.is_settled:
                    self._connections.discard(connection)


class _SqliteSession:
    """A session; with a guard it is in a transaction, which ends when its event loop is blocked."""

    def __init__(
        self, driver: Any, statements: PreparedStatements, *, guard: StallGuard | None = None
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._driver = driver
        self._statements = statements
        self._guard = guard
        self._is_begun = False
        self._is_given_up = False
        self._is_abandoned = False
        self._savepoints = 0
        self.is_settled = False

    @property
    def can_restart(self) -> bool:
        return self._guard is not None

    async def commit(self) -> None:
        if self._is_begun:
            try:
                with translated_commit_errors():
                    await self._in_thread(lambda connection: connection.execute("COMMIT"))
            except asyncio.CancelledError:
                # The thread goes on all the same; behind it, what has become of the transaction is decided.
                await self.roll_back()
                raise
        self.is_settled = True

    async def roll_back(self) -> None:
        if self._is_begun:
            with translated_errors():
                await self._driver._execute(lambda: _roll_back(self._driver._conn))
        self.is_settled = True

    async def restart(self) -> None:
        await self.roll_back()
        self._is_begun = self.is_settled = self._is_given_up = False

    async def fetch(self, statement: Executable, parameters: Mapping[str, Any]) -> list[Row]:
        prepared = self._statements.of(statement)
        arguments = prepared.arguments(parameters)
        with translated_errors():
            records = await self._in_thread(lambda one: one.execute(prepared.sql, arguments).fetchall())
        return prepared.rows(records)

    async def can_finish_at_once(self) -> bool:
        return self._guard is not None and not self._is_begun

    async def finish_with(self, statement: Executable, parameters: Mapping[str, Any]) -> list[Row]:
        if not await self.can_finish_at_once():
            return await self.fetch(statement, parameters)
        prepared = self._statements.of(statement)
        arguments = prepared.arguments(parameters)

        def send(connection: sqlite3.Connection) -> list[Any]:
            records = connection.execute(prepared.sql, arguments).fetchall()
            connection.execute("COMMIT")
            return records

        with translated_commit_errors():
            records = await self._in_thread(send)
        # There is nothing to commit any more; what comes next begins anew.
        self._is_begun = False
        return prepared.rows(records)

    async def execute(self, statement: Executable, parameters: Mapping[str, Any]) -> int:
        (counts,) = await self.execute_all([(statement, [parameters])])
        return counts[0]

    async def execute_all(
        self, statements: Sequence[tuple[Executable, Sequence[Mapping[str, Any]]]]
    ) -> list[list[int]]:
        prepared = [(self._statements.of(statement), rows) for statement, rows in statements]
        calls = [(one.sql, [one.arguments(row) for row in rows]) for one, rows in prepared]

        def send(connection: sqlite3.Connection) -> list[list[int]]:
            return [[_count(connection, sql, arguments) for arguments in rows] for sql, rows in calls]

        with translated_errors():
            return await self._in_thread(send)

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        self._savepoints += 1
        name = f"stagewright_{self._savepoints}"
        with translated_errors():
            await self._in_thread(lambda connection: connection.execute(f"SAVEPOINT {name}"))
        try:
            yield
        except BaseException:
            with translated_errors():
                await self._in_thread(lambda connection: connection.execute(f"ROLLBACK TO {name}"))
            raise
        with translated_errors():
            await self._in_thread(lambda connection: connection.execute(f"RELEASE {name}"))

    def give_up(self) -> None:
        """Roll back, from another thread, if the loop is still blocked when the connection's thread gets to it."""

        def undo() -> None:
            connection: sqlite3.Connection = self._driver._conn
            if not self.is_settled and connection.in_transaction and self._is_left_open():
                self._is_given_up = True
                _roll_back(connection)

        self._driver._tx.put_nowait((self.loop.create_future(), undo))

    def _is_left_open(self) -> bool:
        return self._guard is not None and self._guard.is_blocked(self.loop)

    async def _in_thread(self, work: Callable[[sqlite3.Connection], R]) -> R:
        """Do all of it in the connection's thread; the transaction begins there with what is first."""
        begins = self._guard is not None and not self._is_begun
        # Before it is sent: a caller that is cancelled meanwhile doesn't keep the thread from going on.
        self._is_begun = self._is_begun or begins

        def do() -> R:
            connection: sqlite3.Connection = self._driver._conn
            if self._is_given_up:
                raise TransientPersistenceError(
                    "the event loop was blocked while a transaction was open, which was rolled back"
                )
            if begins:
                _begin(connection, lambda: self._is_abandoned)
            return work(connection)

        try:
            # aiosqlite has no public way to do several things at once; SQLAlchemy's dialect reaches as deep.
            result: R = await self._driver._execute(do)
        except asyncio.CancelledError:
            self._is_abandoned = True
            raise
        return result


def _begin(connection: sqlite3.Connection, is_abandoned: Callable[[], bool]) -> None:
    """Begin as a writer, once the writers of other processes are done; a wait that nobody wants any more ends soon."""
    (patience,) = connection.execute("PRAGMA busy_timeout").fetchone()
    end = time.monotonic() + patience / 1_000
    connection.execute(f"PRAGMA busy_timeout={min(patience, _GLANCE_MS)}")
    try:
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                is_busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                if not is_busy or is_abandoned() or time.monotonic() >= end:
                    raise
    finally:
        connection.execute(f"PRAGMA busy_timeout={patience}")


def _roll_back(connection: sqlite3.Connection) -> None:
    # Some errors have rolled it back already.
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _count(connection: sqlite3.Connection, sql: str, arguments: Sequence[Any]) -> int:
    cursor = connection.execute(sql, arguments)
    if cursor.description is not None:
        # The count is known once the rows that a statement returns are read.
        cursor.fetchall()
    return cursor.rowcount
