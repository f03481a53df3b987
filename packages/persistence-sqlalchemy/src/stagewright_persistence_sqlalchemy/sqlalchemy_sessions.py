"""Sessions over SQLAlchemy's own connections: for SQLite in memory, and drivers that have no faster way."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import Any, cast

from sqlalchemy import Executable
from sqlalchemy.engine import CursorResult
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from stagewright.errors import TransientError
from stagewright_persistence_sqlalchemy.connecting import UNDOING_PATIENCE, connected
from stagewright_persistence_sqlalchemy.rows import Row
from stagewright_persistence_sqlalchemy.sessions import Session
from stagewright_persistence_sqlalchemy.vendor_errors import translated_commit_errors, translated_errors
from stagewright_persistence_sqlalchemy.writer_turn import WriterTurn

__all__ = ["SqlAlchemySession", "SqlAlchemySessions"]


class SqlAlchemySessions:
    """Connections out of an engine's pool.

    Args:
        engine: The engine.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._turn = WriterTurn() if engine.dialect.name == "sqlite" else None
        self._reading = engine.execution_options(isolation_level="AUTOCOMMIT", stagewright_reading=True)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Session]:
        """A connection on which every statement is a transaction of its own."""
        async with connected(self._reading) as connection:
            yield self._session(connection, is_own=False)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[Session]:
        """A connection in a transaction."""
        async with self._turn.taken() if self._turn else nullcontext(), connected(self._engine) as connection:
            with translated_errors():
                await connection.begin()
            try:
                yield self._session(connection, is_own=True)
            except BaseException:
                await self._roll_back(connection)
                raise
            with translated_commit_errors():
                await connection.commit()

    def _session(self, connection: AsyncConnection, *, is_own: bool) -> Session:
        return SqlAlchemySession(connection, is_own=is_own)

    async def _roll_back(self, connection: AsyncConnection) -> None:
        # SQLite always answers, but may have to wait for other writers first.
        patience = None if self._turn else UNDOING_PATIENCE
        try:
            async with asyncio.timeout(patience):
                with translated_errors():
                    await connection.rollback()
        except (TimeoutError, TransientError):
            # A server that answers nothing must not keep a caller who gives up, nor hide why it does.
            await connection.invalidate()


class SqlAlchemySession:
    """A session on a connection of SQLAlchemy's."""

    def __init__(self, connection: AsyncConnection, *, is_own: bool = False) -> None:
        self._connection = connection
        self._is_own = is_own

    @property
    def can_restart(self) -> bool:
        """Whether this is in a transaction of its own, which can be rolled back and begun anew."""
        return self._is_own

    async def restart(self) -> None:
        """Roll the transaction back and begin a new one on the same connection."""
        with translated_errors():
            await self._connection.rollback()
            await self._connection.begin()

    async def fetch(self, statement: Executable, parameters: Mapping[str, Any]) -> list[Row]:
        """Run a statement and read all its rows."""
        with translated_errors():
            result = await self._connection.execute(statement, dict(parameters))
            return cast("list[Row]", list(result.mappings()))

    async def can_finish_at_once(self) -> bool:
        return False

    async def finish_with(self, statement: Executable, parameters: Mapping[str, Any]) -> list[Row]:
        """Like `fetch`."""
        return await self.fetch(statement, parameters)

    async def execute(self, statement: Executable, parameters: Mapping[str, Any]) -> int:
        """Run a statement and say how many rows it changed."""
        with translated_errors():
            # SQLAlchemy reads rows back for some inserts, and forgets then how many there were.
            result = await self._connection.execute(
                statement, dict(parameters), execution_options={"preserve_rowcount": True}
            )
            return cast("CursorResult[Any]", result).rowcount

    async def execute_all(
        self, statements: Sequence[tuple[Executable, Sequence[Mapping[str, Any]]]]
    ) -> list[list[int]]:
        """Run statements in turn, each for each of its sets of parameters."""
        return [[await self.execute(statement, one) for one in rows] for statement, rows in statements]

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        """Undo what the block did when it raises."""
        with translated_errors():
            nested = await self._connection.begin_nested()
        try:
            yield
        except BaseException:
            with translated_errors():
                await nested.rollback()
            raise
        with translated_errors():
            await nested.commit()
