"""What every in-memory adapter is: a connection to a database, on its own or inside a transaction."""

import copy
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from types import TracebackType
from typing import Generic, Self, TypeVar

from stagewright.errors import (
    DuplicateRecordError,
    RecordNotFoundError,
    StagewrightError,
    StaleVersionError,
    TransientError,
)
from stagewright.memory.database import InMemoryDatabase
from stagewright.memory.transaction import Savepoint, Transaction
from stagewright.memory.work_channel import WorkInbox
from stagewright.ports.persistence import Persistence

__all__ = ["Connection"]

C = TypeVar("C", bound="Connection")


class Connection:
    """An adapter over an in-memory database.

    Bound to a transaction it is used by one task at a time, as a connection to a server is.

    Args:
        database: The database; one of its own unless given.
    """

    def __init__(self, database: InMemoryDatabase | None = None) -> None:
        self._database = database or InMemoryDatabase()
        self._transaction: Transaction | None = None
        self._inbox = WorkInbox(self._database.work)

    @property
    def database(self) -> InMemoryDatabase:
        """The database it stands on."""
        return self._database

    def transaction(self) -> AbstractAsyncContextManager[Self]:
        """Open a transaction, or a savepoint if this is bound to a transaction."""
        if self._transaction is None:
            return _TransactionBlock(self)
        return _SavepointBlock(self, self._transaction)

    def enlist(self, tx: Persistence) -> Self | None:
        """The same adapter inside the transaction of `tx`; None if that one stands on another database."""
        if not isinstance(tx, Connection) or tx.database is not self.database:
            return None
        return self._bound_to(tx._transaction)

    async def notify(self, topic: str) -> None:
        """Wake whoever waits on this database; inside a transaction, once it has committed."""
        async with self._statement(f"notify:{topic}") as transaction:
            transaction.notify()

    async def wait_for_work(self, timeout: timedelta) -> bool:
        """Wait for a notification that came since this adapter was made, or since its last wait returned."""
        await self._database.pause("wait_for_work")
        return await self._inbox.wait(timeout)

    def is_listening(self) -> bool:
        """Always: nothing lies between those who notify and those who wait."""
        return True

    def _statement(self, name: str) -> "_Statement":
        return _Statement(self._database, self._transaction, name)

    def _bound_to(self, transaction: Transaction | None) -> Self:
        bound = copy.copy(self)
        bound._transaction = transaction
        return bound


class _Statement:
    """One call: part of the transaction it is bound to, or a transaction of its own."""

    def __init__(self, database: InMemoryDatabase, outer: Transaction | None, name: str) -> None:
        self._database = database
        self._outer = outer
        self._name = name
        self._own: Transaction | None = None

    async def __aenter__(self) -> Transaction:
        await self._database.pause(self._name)
        if self._outer is not None:
            self._outer.check_usable()
            return self._outer
        self._own = Transaction(self._database)
        return self._own

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        if self._own is None:
            if error is not None and self._outer is not None and _spoils(error):
                self._outer.fail(error)
        elif error is not None:
            self._own.roll_back()
        else:
            wrote = self._own.has_written
            self._own.commit()
            if wrote:
                await self._database.pause("committed")


class _TransactionBlock(Generic[C]):
    def __init__(self, connection: C) -> None:
        self._connection = connection
        self._transaction: Transaction | None = None

    async def __aenter__(self) -> C:
        await self._connection.database.pause("begin")
        self._transaction = Transaction(self._connection.database)
        return self._connection._bound_to(self._transaction)

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        transaction = self._transaction
        assert transaction is not None
        if error is not None:
            transaction.roll_back()
            return
        try:
            await self._connection.database.pause("commit")
        except BaseException:
            transaction.roll_back()
            raise
        transaction.commit()
        await self._connection.database.pause("committed")


class _SavepointBlock(Generic[C]):
    def __init__(self, connection: C, transaction: Transaction) -> None:
        self._connection = connection
        self._transaction = transaction
        self._savepoint: Savepoint | None = None

    async def __aenter__(self) -> C:
        await self._connection.database.pause("savepoint")
        self._transaction.check_usable()
        self._savepoint = self._transaction.savepoint()
        return self._connection._bound_to(self._transaction)

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        savepoint = self._savepoint
        assert savepoint is not None
        if error is None:
            self._transaction.release_savepoint(savepoint)
        else:
            self._transaction.roll_back_to(savepoint)


def _spoils(error: BaseException) -> bool:
    """Whether a database would refuse to commit a transaction after this error of one of its statements."""
    if isinstance(error, StagewrightError):
        return isinstance(
            error, StaleVersionError | DuplicateRecordError | RecordNotFoundError | TransientError
        )
    return True
