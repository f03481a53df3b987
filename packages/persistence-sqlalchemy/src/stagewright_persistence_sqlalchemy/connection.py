"""What every adapter over a database is: on its own, or inside a transaction."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, Final, Self, TypeVar

from sqlalchemy import Executable

from stagewright.errors import DeadlockError
from stagewright.ports import Persistence
from stagewright_persistence_sqlalchemy.borrowed_transaction import BorrowedTransaction
from stagewright_persistence_sqlalchemy.database import Database
from stagewright_persistence_sqlalchemy.rows import Row
from stagewright_persistence_sqlalchemy.tables import Tables
from stagewright_persistence_sqlalchemy.transaction import Transaction

__all__ = ["Connection"]

T = TypeVar("T")
_REPETITIONS: Final = 4


class Connection:
    """An adapter over a database.

    Args:
        database: The database; adapters over one database object share transactions.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._borrowed: BorrowedTransaction | None = None
        self._transaction: Transaction | None = None

    @property
    def database(self) -> Database:
        """The database it stands on."""
        return self._database

    @property
    def _tables(self) -> Tables:
        return self._database.tables

    def transaction(self) -> AbstractAsyncContextManager[Self]:
        """Open a transaction, or a savepoint if this is inside one."""
        return (
            self._open_transaction() if self._transaction is None else self._open_savepoint(self._transaction)
        )

    def enlist(self, tx: Persistence) -> Self | None:
        """The same adapter inside the transaction of `tx`; None if that one stands on another database."""
        if not isinstance(tx, Connection) or tx.database is not self._database:
            return None
        bound = self._bound_to(tx._transaction)
        bound._borrowed = tx._borrowed
        return bound

    async def notify(self, topic: str) -> None:
        """Wake whoever waits on this database; inside a transaction, once it has committed."""
        async with self._writing() as tx:
            tx.pending.topics[topic] = None

    def _writing(self) -> AbstractAsyncContextManager[Transaction]:
        """The transaction it is inside of, or one of its own for this call."""
        if self._transaction is None:
            return self._source.transaction()
        self._transaction.check_usable()
        return nullcontext(self._transaction)

    async def _undisturbed(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do what is a transaction of its own once more where a deadlock has undone it, a few times."""
        for _ in range(_REPETITIONS):
            try:
                return await work()
            except DeadlockError:
                if self._transaction is not None or self._borrowed is not None:
                    raise
        return await work()

    async def _fetch(self, statement: Executable, parameters: Mapping[str, Any]) -> list[Row]:
        """Read, inside the transaction or as committed."""
        if self._transaction is not None:
            return await self._transaction.fetch(statement, parameters)
        return await self._source.read(statement, parameters)

    @property
    def _source(self) -> Database | BorrowedTransaction:
        """Where transactions come from: the database, or the caller's transaction, in which they are savepoints."""
        return self._borrowed or self._database

    @asynccontextmanager
    async def _open_transaction(self) -> AsyncIterator[Self]:
        async with self._source.transaction() as transaction:
            yield self._bound_to(transaction)

    @asynccontextmanager
    async def _open_savepoint(self, transaction: Transaction) -> AsyncIterator[Self]:
        async with transaction.savepoint():
            yield self

    def _bound_to(self, transaction: Transaction | None) -> Self:
        # What `copy.copy` does, in a fifth of its time: it is done for each transaction.
        bound = object.__new__(type(self))
        bound.__dict__.update(self.__dict__)
        bound._transaction = transaction
        return bound
