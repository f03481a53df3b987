"""Sessions on MariaDB, over SQLAlchemy's connections."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, cast

from sqlalchemy import Executable
from sqlalchemy.engine import CursorResult
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from stagewright.errors import DeadlockError
from stagewright_persistence_sqlalchemy.connecting import connected
from stagewright_persistence_sqlalchemy.dialect import SKIPPED
from stagewright_persistence_sqlalchemy.engine import LARGEST_STATEMENT
from stagewright_persistence_sqlalchemy.errors import ValueTooLargeError
from stagewright_persistence_sqlalchemy.rows import Row
from stagewright_persistence_sqlalchemy.sessions import Session
from stagewright_persistence_sqlalchemy.sqlalchemy_sessions import SqlAlchemySession, SqlAlchemySessions
from stagewright_persistence_sqlalchemy.vendor_errors import translated_errors

__all__ = ["MariadbSession", "MariadbSessions", "require_room", "sqlalchemy_sessions"]

_ESCAPED: Final = "\0\n\r\x1a\"'\\"
_MOST_BYTES: Final = 4
"""No character, and no byte, is more than that in a statement."""


class MariadbSessions(SqlAlchemySessions):
    """Connections out of an engine's pool.

    Args:
        engine: The engine.
    """

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Session]:
        """A connection on which every statement sees what is committed when it begins."""
        # To change the way of committing and to change it back would cost as much as several reads; under READ
        # COMMITTED, and with a rollback at the end, it makes no difference.
        async with connected(self._engine) as connection:
            try:
                yield self._session(connection, is_own=False)
            finally:
                await self._roll_back(connection)

    def _session(self, connection: AsyncConnection, *, is_own: bool) -> Session:
        return MariadbSession(connection, is_own=is_own)


class MariadbSession(SqlAlchemySession):
    """A session on a connection of SQLAlchemy's, its own or the caller's."""

    def __init__(self, connection: AsyncConnection, *, is_own: bool = False) -> None:
        super().__init__(connection, is_own=is_own)
        self._largest: int | None = connection.info.get(LARGEST_STATEMENT)

    async def fetch(self, statement: Executable, parameters: Mapping[str, Any]) -> list[Row]:
        """Run a statement and read all its rows."""
        require_room(self._largest, parameters)
        return await super().fetch(statement, parameters)

    async def execute(self, statement: Executable, parameters: Mapping[str, Any]) -> int:
        """Run a statement and say how many rows it changed; an insert that was skipped has changed none."""
        require_room(self._largest, parameters)
        with translated_errors():
            result = cast(
                "CursorResult[Any]",
                await self._connection.execute(
                    statement, dict(parameters), execution_options={"preserve_rowcount": True}
                ),
            )
        is_skipped = result.context.isinsert and result.lastrowid == SKIPPED
        return 0 if is_skipped else result.rowcount

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        """Undo what the block did when it raises; a deadlock has undone it already, with all that was before it."""
        with translated_errors():
            nested = await self._connection.begin_nested()
        try:
            yield
        except DeadlockError:
            raise
        except BaseException:
            with translated_errors():
                await nested.rollback()
            raise
        with translated_errors():
            await nested.commit()


def require_room(largest: int | None, parameters: Mapping[str, Any]) -> None:
    """Refuse what is too large: the server would hang up in the middle of it, as if it had been lost."""
    texts = [value for value in parameters.values() if isinstance(value, str | bytes)]
    if largest is None or sum(map(len, texts)) * _MOST_BYTES <= largest:
        return
    size = sum(map(_sent_bytes, texts))
    if size > largest:
        raise ValueTooLargeError(
            f"{size:,} bytes were to be sent at once, and it takes {largest:,}; raise the server's "
            "max_allowed_packet, or keep such values in another blob store"
        )


def sqlalchemy_sessions(engine: AsyncEngine) -> SqlAlchemySessions:
    """Sessions over an engine's connections as SQLAlchemy gives them out."""
    return MariadbSessions(engine) if engine.dialect.name == "mariadb" else SqlAlchemySessions(engine)


def _sent_bytes(value: str | bytes) -> int:
    """How many bytes a value is in a statement."""
    if isinstance(value, str):
        return len(value.encode()) + sum(map(value.count, _ESCAPED))
    return len(value) + sum(value.count(one.encode()) for one in _ESCAPED)
