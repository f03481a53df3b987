"""Sessions over SQLAlchemy's own connections: SQLite, and every driver that has no faster way."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import Any, cast

from sqlalchemy import Executable
from sqlalchemy.engine import CursorResult
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from stagewright_persistence_sqlalchemy.connecting import connected
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
            yield SqlAlchemySession(connection)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[Session]:
        """A connection in a transaction."""
        async with self._turn.taken() if self._turn else nullcontext(), connected(self._engine) as connection:
            with translated_errors():
                await connection.begin()
            try:
                yield SqlAlchemySession(connection, is_own=True)
            except BaseException:
                with translated_errors():
                    await connection.rollback()
                raise
            with translated_commit_errors():
                await connection.commit()


class SqlAlchemySession:
    """A session on a connection of SQLAlchemy's, its own or the caller's."""

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

    async def execute(self, statement: Executable, parameters: Mapping[str, Any]) -> int:
        """Run a statement and say how many rows it changed."""
        with translated_errors():
            # SQLAlchemy reads rows back for some inserts, and forgets then how many there were.
            result = await self._connection.execute(
                statement, dict(parameters), execution_options={"preserve_rowcount": True}
            )
            return cast("CursorResult[Any]", result).rowcount

    async def execute_many(self, statement: Executable, parameters: Sequence[Mapping[str, Any]]) -> None:
        """Run a statement for each set of parameters."""
        if parameters:
            with translated_errors():
                await self._connection.execute(statement, [dict(one) for one in parameters])

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
