"""Sessions over asyncpg's own connections, taken out of SQLAlchemy's pool: a third of the client's work a statement."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from sqlalchemy import Executable
from sqlalchemy.ext.asyncio import AsyncEngine

from stagewright.errors import PersistenceUnavailableError, TransientError
from stagewright_persistence_sqlalchemy.connecting import UNDOING_PATIENCE, PooledConnections
from stagewright_persistence_sqlalchemy.prepared_statements import PreparedStatements
from stagewright_persistence_sqlalchemy.refusing import refused_answer
from stagewright_persistence_sqlalchemy.rows import Row
from stagewright_persistence_sqlalchemy.sessions import Session
from stagewright_persistence_sqlalchemy.vendor_errors import (
    OUTDATED_PLAN,
    translated_commit_errors,
    translated_errors,
)

__all__ = ["AsyncpgSessions"]


class AsyncpgSessions:
    """Connections out of an engine's pool, used without SQLAlchemy's layers.

    Args:
        engine: An engine on asyncpg.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._connections = PooledConnections(engine)
        self._statements = PreparedStatements(engine.dialect)
        self._plain: WeakSet[Any] = WeakSet()
        self._upgrades = 0
        # By connection, how many upgrades of the schema its plans are made after.
        self._planned: WeakKeyDictionary[Any, int] = WeakKeyDictionary()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Session]:
        """A connection on which every statement is a transaction of its own."""
        async with self._driver_connection() as driver:
            yield _AsyncpgSession(driver, self._statements, self._plain)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[Session]:
        """A connection in a transaction."""
        async with self._driver_connection() as driver:
            session = _AsyncpgSession(driver, self._statements, self._plain, is_own=True)
            try:
                try:
                    yield session
                except BaseException:
                    await session.roll_back()
                    raise
                await session.commit()
            finally:
                # A caller cancelled in between leaves a transaction open, in which the next one would be lost.
                if not session.is_settled:
                    driver.terminate()

    @asynccontextmanager
    async def _driver_connection(self) -> AsyncIterator[Any]:  # Any: asyncpg ships no types
        async with self._connections.taken() as connection:
            driver: Any = connection.driver_connection
            if self._planned.setdefault(driver, self._upgrades) != self._upgrades:
                # Sends nothing: what was prepared is forgotten.
                await driver.reload_schema_state()
                self._planned[driver] = self._upgrades
            try:
                yield driver
            except TransientError as error:
                if getattr(error.__cause__, "sqlstate", None) == OUTDATED_PLAN:
                    # Those of other connections are as old; whoever repeats this would meet one after the other.
                    self._upgrades += 1
                raise
            finally:
                if driver.is_closed():
                    self._connections.discard(connection)


class _AsyncpgSession:
    def __init__(
        self, driver: Any, statements: PreparedStatements, plain: WeakSet[Any], *, is_own: bool = False
    ) -> None:
        self._driver = driver
        self._statements = statements
        self._plain = plain
        self._savepoints = 0
        self._is_own = is_own
        self._is_begun = False
        self.is_settled = False

    @property
    def can_restart(self) -> bool:
        return self._is_own

    async def commit(self) -> None:
        if self._is_begun:
            self._check_open()
            try:
                with translated_commit_errors():
                    await self._driver.execute("COMMIT")
            except asyncio.CancelledError:
                # Answered once the server is done with the commit, whichever way.
                await self._undo("ROLLBACK")
                raise
        self.is_settled = True

    async def roll_back(self) -> None:
        if self._is_begun:
            await self._undo("ROLLBACK")
        self.is_settled = True

    async def restart(self) -> None:
        await self.roll_back()
        self._is_begun = self.is_settled = False

    async def fetch(self, statement: Executable, parameters: Mapping[str, Any]) -> list[Row]:
        prepared = self._statements.of(statement)
        with translated_errors():
            await self._begin()
            records = await self._driver.fetch(prepared.sql, *prepared.arguments(parameters))
        return prepared.rows(records)

    async def can_finish_at_once(self) -> bool:
        return self._is_own and not self._is_begun and await self._is_plain()

    async def finish_with(self, statement: Executable, parameters: Mapping[str, Any]) -> list[Row]:
        if not await self.can_finish_at_once():
            return await self.fetch(statement, parameters)
        prepared = self._statements.of(statement)
        self._check_open()
        try:
            with translated_commit_errors():
                records = await self._driver.fetch(prepared.sql, *prepared.arguments(parameters))
        except asyncio.CancelledError:
            # What waits for a lock would commit after its caller has given up. This is answered once it has been ended.
            await self._undo("SELECT 1")
            raise
        except Exception as error:
            told = refused_answer(error)
            if told is None:
                raise
            return [told]
        return prepared.rows(records)

    async def execute(self, statement: Executable, parameters: Mapping[str, Any]) -> int:
        prepared = self._statements.of(statement)
        with translated_errors():
            await self._begin()
            tag: str = await self._driver.execute(prepared.sql, *prepared.arguments(parameters))
        count = tag.rpartition(" ")[2]
        return int(count) if count.isdigit() else 0

    async def execute_all(
        self, statements: Sequence[tuple[Executable, Sequence[Mapping[str, Any]]]]
    ) -> list[list[int]]:
        return [[await self.execute(statement, one) for one in rows] for statement, rows in statements]

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        self._savepoints += 1
        name = f"stagewright_{self._savepoints}"
        with translated_errors():
            await self._begin()
            await self._driver.execute(f"SAVEPOINT {name}")
        try:
            yield
        except BaseException:
            await self._undo(f"ROLLBACK TO {name}")
            raise
        with translated_errors():
            await self._driver.execute(f"RELEASE SAVEPOINT {name}")

    async def _begin(self) -> None:
        """Begin the transaction, unless this has none of its own or has begun it."""
        if self._is_own and not self._is_begun:
            # Before it is sent: whether or not its answer comes, there is something to undo.
            self._is_begun = True
            # Said each time: a database whose default is stricter would refuse what waits for a lock.
            await self._driver.execute("BEGIN ISOLATION LEVEL READ COMMITTED")

    async def _is_plain(self) -> bool:
        """Whether a statement outside of a transaction is under READ COMMITTED; asked once on each connection."""
        if self._driver not in self._plain:
            with translated_errors():
                if await self._driver.fetchval("SHOW default_transaction_isolation") != "read committed":
                    return False
            self._plain.add(self._driver)
        return True

    def _check_open(self) -> None:
        """What was never sent has an outcome that is known."""
        if self._driver.is_closed():
            raise PersistenceUnavailableError("the connection was lost before the commit was sent")

    async def _undo(self, statement: str) -> None:
        # A connection that is gone has rolled back by itself.
        if self._driver.is_closed():
            return
        try:
            async with asyncio.timeout(UNDOING_PATIENCE):
                with translated_errors():
                    await self._driver.execute(statement)
        except (TimeoutError, TransientError):
            # A server that answers nothing must not keep a caller who gives up, nor hide why it does.
            self._driver.terminate()
