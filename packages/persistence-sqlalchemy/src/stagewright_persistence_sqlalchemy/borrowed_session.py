"""What is sent on a connection of the caller's."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

from sqlalchemy import Connection, Executable
from sqlalchemy.engine import CursorResult

from stagewright.ports import CallersThread
from stagewright_persistence_sqlalchemy.rows import Row

__all__ = ["BorrowedSession"]

R = TypeVar("R")


class BorrowedSession:
    """A `Session` on the caller's connection.

    Args:
        connection: The connection, in a transaction.
        thread: Where it may be used.
        told_errors: A context manager that raises what goes wrong there as errors of Stagewright's.

    Attributes:
        connection: The connection.
    """

    can_restart = False

    def __init__(
        self, connection: Connection, thread: CallersThread, told_errors: Callable[[], Any]
    ) -> None:  # Any: a context manager, whose type says no more
        self.connection = connection
        self._thread = thread
        self._told_errors = told_errors

    async def restart(self) -> None:
        raise AssertionError("the caller's transaction is not the engine's to begin anew")

    async def fetch(self, statement: Executable, parameters: Mapping[str, Any]) -> list[Row]:
        def read() -> list[Row]:
            result = self.connection.execute(statement, dict(parameters))
            return cast("list[Row]", list(result.mappings()))

        return await self._done(read)

    async def set(self, statement: Executable, parameters: Mapping[str, Any]) -> None:
        """Run a statement that neither reads nor writes rows."""

        def send() -> None:
            self.connection.execute(statement, dict(parameters))

        await self._done(send)

    async def can_finish_at_once(self) -> bool:
        return False

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
        nested = await self._done(self.connection.begin_nested)
        try:
            yield
        except BaseException as error:
            try:
                await self._done(nested.rollback)
            except Exception as failure:
                await self._not_undone(error, failure)
            raise
        await self._done(nested.commit)

    async def _not_undone(self, error: BaseException, failure: Exception) -> None:
        """Called where the savepoint couldn't be gone back to, and why."""
        # The connection is lost, or the caller has ended the transaction: nothing of the block lasts.
        error.add_note(f"undoing it in the caller's transaction has failed: {failure}")

    def _changed(self, statement: Executable, parameters: Mapping[str, Any]) -> int:
        # SQLAlchemy reads rows back for some inserts, and forgets then how many there were.
        options = {"preserve_rowcount": True}
        result = self.connection.execute(statement, dict(parameters), execution_options=options)
        return self._count(cast("CursorResult[Any]", result))

    def _count(self, result: "CursorResult[Any]") -> int:
        return result.rowcount

    async def _done(self, work: Callable[[], R]) -> R:
        with self._told_errors():
            return await self._thread.do(work)
