"""A persistence on sessions of the caller's."""

import copy
from collections.abc import Callable
from typing import Self, TypeVar

from sqlalchemy import Connection as SyncConnection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session
from sqlalchemy.util import greenlet_spawn

from stagewright.errors import SessionRefusedError
from stagewright.ports import CallersThread
from stagewright_persistence_sqlalchemy.borrowed_transaction import BorrowedTransaction
from stagewright_persistence_sqlalchemy.connection import Connection
from stagewright_persistence_sqlalchemy.database import Database
from stagewright_persistence_sqlalchemy.engine import lives_in_one_connection

__all__ = ["BorrowsCallersSessions"]

R = TypeVar("R")


class BorrowsCallersSessions(Connection):
    """`BorrowsSessions`."""

    def borrow(self, session: object, thread: CallersThread | None = None) -> Self:
        """The same stores on the caller's session or connection, which SQLAlchemy made."""
        bound = copy.copy(self)
        bound._transaction = None
        bound._borrowed = _borrowed(self._database, session, thread)
        return bound


class _Greenlets:
    """Does what an asynchronous session does for its caller: whatever waits in it lets the event loop go on."""

    async def do(self, work: Callable[[], R]) -> R:
        return await greenlet_spawn(work)


def _borrowed(database: Database, session: object, thread: CallersThread | None) -> BorrowedTransaction:
    name = type(session).__name__
    if lives_in_one_connection(database.engine):
        problem = "an SQLite database in memory has one connection, which can't be yours as well; use a file"
        raise SessionRefusedError(name, problem)
    if isinstance(session, async_scoped_session):
        session = session()
    match session:
        case AsyncSession() | AsyncConnection() if thread is not None:
            raise SessionRefusedError(
                name, "it belongs to an event loop; await kernel.using(…) there instead"
            )
        case Session() | scoped_session() | SyncConnection() if thread is None:
            raise SessionRefusedError(name, "it knows no event loop; give it to SyncKernel.using(…) instead")
        case AsyncSession():
            return BorrowedTransaction(database, name, session.sync_session.connection, _Greenlets())
        case AsyncConnection():
            return BorrowedTransaction(database, name, lambda: _connection_of(session), _Greenlets())
        case Session() | scoped_session() if thread is not None:
            return BorrowedTransaction(database, name, session.connection, thread)
        case SyncConnection() if thread is not None:
            return BorrowedTransaction(database, name, lambda: session, thread)
        case _:
            known = "a Session or Connection" if thread is not None else "an AsyncSession or AsyncConnection"
            raise SessionRefusedError(name, f"it is not {known} of SQLAlchemy's")


def _connection_of(connection: AsyncConnection) -> SyncConnection:
    if connection.sync_connection is None:
        raise SessionRefusedError(type(connection).__name__, "it is not open; await it, or enter it, first")
    return connection.sync_connection
