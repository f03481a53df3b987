"""A transaction that the caller has opened and will end, and what is sent on it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Executable, exc

from stagewright.errors import SessionRefusedError
from stagewright.ports import CallersThread
from stagewright_persistence_sqlalchemy.borrowed_session import BorrowedSession
from stagewright_persistence_sqlalchemy.callers_connection import require_usable
from stagewright_persistence_sqlalchemy.database import Database
from stagewright_persistence_sqlalchemy.mariadb_borrowed_session import MariadbBorrowedSession
from stagewright_persistence_sqlalchemy.rows import Row
from stagewright_persistence_sqlalchemy.transaction import Transaction
from stagewright_persistence_sqlalchemy.vendor_errors import refusal_of, translated_errors

__all__ = ["BorrowedTransaction"]

_AT_WORK: Final[WeakKeyDictionary[Connection, asyncio.Task[Any]]] = (
    WeakKeyDictionary()
)  # Any: whatever it answers


class BorrowedTransaction:
    """The caller's transaction, in which those of the engine are savepoints. It is neither committed nor rolled back.

    Waiting hosts are told by the database alone: whether the caller commits isn't known here.

    Args:
        database: The database that it has to be a transaction of.
        name: What the caller gave, for errors.
        connect: Gives the connection that the caller's session uses now, with a transaction on it.
        thread: Where SQLAlchemy's connection may be used.
    """

    def __init__(
        self, database: Database, name: str, connect: Callable[[], Connection], thread: CallersThread
    ) -> None:
        self._tables = database.tables
        self._kind = database.kind
        self._name = name
        self._connect = connect
        self._thread = thread

    async def read(self, statement: Executable, parameters: Mapping[str, Any]) -> list[Row]:
        """Read what is committed, and what the caller's transaction has written."""
        session = await self._session()
        return await session.fetch(statement, parameters)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """A savepoint: what the block wrote has been sent when it ends, and is undone when it raises.

        Raises:
            SessionRefusedError: If the session can't be used, or another task has a block open on its connection.
        """
        session = await self._session()
        with self._alone_on(session.connection):
            transaction = Transaction(self._tables, self._kind, session, is_borrowed=True)
            async with transaction.savepoint():
                yield transaction

    @contextmanager
    def _alone_on(self, connection: Connection) -> Iterator[None]:
        # Savepoints are a stack: of two tasks that have one open at once, the end of one ends the other's.
        task = asyncio.current_task()
        before = _AT_WORK.get(connection)
        if before is not None and before is not task:
            problem = "another call of the kernel is at work in it; await one before the next, or give each its session"
            raise SessionRefusedError(self._name, problem)
        if task is None or before is task:
            yield
            return
        _AT_WORK[connection] = task
        try:
            yield
        finally:
            del _AT_WORK[connection]

    async def _session(self) -> BorrowedSession:
        def usable() -> Connection:
            try:
                connection = self._connect()
                require_usable(connection, self._tables, self._kind, self._name)
            except exc.InvalidRequestError as error:
                # It is closed, its transaction has failed or ended, or it has no database.
                raise SessionRefusedError(self._name, str(error.args[0]).splitlines()[0]) from error
            return connection

        with self._told_errors():
            connection = await self._thread.do(usable)
        if self._kind.name == "mariadb":
            return MariadbBorrowedSession(self._tables, connection, self._thread, self._told_errors)
        return BorrowedSession(connection, self._thread, self._told_errors)

    @contextmanager
    def _told_errors(self) -> Iterator[None]:
        try:
            with translated_errors():
                yield
        except Exception as error:
            problem = refusal_of(error)
            if problem is None:
                raise
            raise SessionRefusedError(self._name, problem) from (error.__cause__ or error)
