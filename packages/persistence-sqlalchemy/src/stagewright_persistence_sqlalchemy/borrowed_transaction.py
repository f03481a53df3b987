"""A transaction that the caller has opened and will end, and what is sent on it."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar, cast

from sqlalchemy import Connection, Executable, exc
from sqlalchemy.engine import CursorResult

from stagewright.errors import SessionRefusedError
from stagewright.ports import CallersThread
from stagewright_persistence_sqlalchemy.callers_connection import require_usable
from stagewright_persistence_sqlalchemy.database import Database
from stagewright_persistence_sqlalchemy.rows import Row
from stagewright_persistence_sqlalchemy.transaction import Transaction
from stagewright_persistence_sqlalchemy.vendor_errors import refusal_of, translated_errors

__all__ = ["BorrowedTransaction"]

R = TypeVar("R")


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
        """A savepoint: what the block wrote has been sent when it ends, and is undone when it raises."""
        transaction = Transaction(self._tables, self._kind, await self._session())
        async with transaction.savepoint():
            yield transaction

    async def _session(self) -> "_BorrowedSession":
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
        return _BorrowedSession(connection, self._thread, self._told_errors)

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


class _BorrowedSession:
    """A `Session` on the caller's connection."""

    can_restart = False

    def __init__(
        self, connection: Connection, thread: CallersThread, told_errors: Callable[[], Any]
    ) -> None:  # Any: a context manager, whose type says no more
        self._connection = connection
        self._thread = thread
        self._told_errors = told_errors

    async def restart(self) -> None:
        raise AssertionError("the caller's transaction is not the engine's to begin anew")

    async def fetch(self, statement: Executable, parameters: Mapping[str, Any]) -> list[Row]:
        def read() -> list[Row]:
            result = self._connection.execute(statement, dict(parameters))
            return cast("list[Row]", list(result.mappings()))

        return await self._done(read)

    async def finish_with(self, statement: Executable, parameters: Mapping[str, Any]) -> list[Row]:
        return await self.fetch(statement, parameters)

    async def execute(self, statement: Executable, parameters: Mapping[str, Any]) -> int:
        (counts,) = await self.execute_all([(statement, [parameters])])
        return counts[0]

    async def execute_all(
        self, statements: Sequence[tuple[Executable, Sequence[Mapping[str, Any]]]]
    ) -> list[list[int]]:
        def write() -> list[list[int]]:
            return [[self._changed(statement, one) for one in rows] for statement, rows in statements]

        return await self._done(write)

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        nested = await self._done(self._connection.begin_nested)
        try:
            yield
        except BaseException as error:
            try:
                await self._done(nested.rollback)
            except Exception as failure:
                # The connection is lost, or the caller has ended the transaction: nothing of the block lasts.
                error.add_note(f"undoing it in the caller's transaction has failed: {failure}")
            raise
        await self._done(nested.commit)

    def _changed(self, statement: Executable, parameters: Mapping[str, Any]) -> int:
        # SQLAlchemy reads rows back for some inserts, and forgets then how many there were.
        options = {"preserve_rowcount": True}
        result = self._connection.execute(statement, dict(parameters), execution_options=options)
        return cast("CursorResult[Any]", result).rowcount

    async def _done(self, work: Callable[[], R]) -> R:
        with self._told_errors():
            return await self._thread.do(work)
