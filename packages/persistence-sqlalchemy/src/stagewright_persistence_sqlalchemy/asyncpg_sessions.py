"""Sessions over asyncpg's own connections, taken out of SQLAlchemy's pool: a third of the client's work a statement."""

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, cast

from sqlalchemy import Executable
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.asyncio import AsyncEngine

from stagewright_persistence_sqlalchemy.connecting import connected
from stagewright_persistence_sqlalchemy.rows import Row
from stagewright_persistence_sqlalchemy.sessions import Session
from stagewright_persistence_sqlalchemy.vendor_errors import translated_commit_errors, translated_errors

__all__ = ["AsyncpgSessions"]

_MOST_STATEMENTS: Final = 512


class AsyncpgSessions:
    """Connections out of an engine's pool, used without SQLAlchemy's layers.

    Args:
        engine: An engine on asyncpg.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._statements = _PreparedStatements(engine.dialect)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Session]:
        """A connection on which every statement is a transaction of its own."""
        async with self._driver_connection() as driver:
            yield _AsyncpgSession(driver, self._statements)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[Session]:
        """A connection in a transaction."""
        async with self._driver_connection() as driver:
            session = _AsyncpgSession(driver, self._statements)
            try:
                await session.begin()
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
        async with connected(self._engine) as connection:
            with translated_errors():
                raw = await connection.get_raw_connection()
            driver: Any = raw.driver_connection
            try:
                yield driver
            finally:
                if driver.is_closed():
                    await connection.invalidate()


class _AsyncpgSession:
    def __init__(self, driver: Any, statements: "_PreparedStatements") -> None:
        self._driver = driver
        self._statements = statements
        self._transaction: Any = None
        self.is_settled = False

    @property
    def can_restart(self) -> bool:
        return self._transaction is not None

    async def begin(self) -> None:
        # Said each time: a database whose default is stricter would refuse what waits for a lock.
        self.is_settled = False
        with translated_errors():
            self._transaction = self._driver.transaction(isolation="read_committed")
            await self._transaction.start()

    async def commit(self) -> None:
        with translated_commit_errors():
            await self._transaction.commit()
        self.is_settled = True

    async def roll_back(self) -> None:
        await _roll_back(self._driver, self._transaction)
        self.is_settled = True

    async def restart(self) -> None:
        await self.roll_back()
        await self.begin()

    async def fetch(self, statement: Executable, parameters: Mapping[str, Any]) -> list[Row]:
        prepared = self._statements.of(statement)
        with translated_errors():
            records = await self._driver.fetch(prepared.sql, *prepared.arguments(parameters))
        return [prepared.row(record) for record in records]

    async def execute(self, statement: Executable, parameters: Mapping[str, Any]) -> int:
        prepared = self._statements.of(statement)
        with translated_errors():
            tag: str = await self._driver.execute(prepared.sql, *prepared.arguments(parameters))
        count = tag.rpartition(" ")[2]
        return int(count) if count.isdigit() else 0

    async def execute_many(self, statement: Executable, parameters: Sequence[Mapping[str, Any]]) -> None:
        prepared = self._statements.of(statement)
        with translated_errors():
            await self._driver.executemany(prepared.sql, [prepared.arguments(one) for one in parameters])

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        with translated_errors():
            nested = self._driver.transaction()
            await nested.start()
        try:
            yield
        except BaseException:
            await _roll_back(self._driver, nested)
            raise
        with translated_errors():
            await nested.commit()


class _PreparedStatement:
    """A Core statement as asyncpg takes it, with what turns values into arguments and records into rows."""

    def __init__(self, statement: Executable, dialect: Dialect) -> None:
        # Any: Executable doesn't say that it compiles, and what comes out is untyped where it is interesting.
        compiled: Any = cast(Any, statement).compile(
            dialect=dialect, compile_kwargs={"render_postcompile": True}
        )
        self.sql: str = compiled.string
        defaults: Mapping[str, Any] = compiled.params
        self._arguments: list[tuple[str, Any, Callable[[Any], Any] | None]] = [
            (name, defaults[name], _writer(compiled.binds[name].type, dialect))
            for name in compiled.positiontup or ()
        ]
        columns: Any = getattr(statement, "exported_columns", ())
        self._columns = [(column.name, _reader(column.type, dialect)) for column in columns]

    def arguments(self, parameters: Mapping[str, Any]) -> list[Any]:
        values = ((parameters.get(name, default), write) for name, default, write in self._arguments)
        return [value if write is None else write(value) for value, write in values]

    def row(self, record: Any) -> Row:
        return {
            name: value if read is None else read(value)
            for (name, read), value in zip(self._columns, record, strict=True)
        }


class _PreparedStatements:
    """Compiles each statement once; the least used are forgotten."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._known: OrderedDict[Executable, _PreparedStatement] = OrderedDict()

    def of(self, statement: Executable) -> _PreparedStatement:
        known = self._known.get(statement)
        if known is None:
            known = self._known[statement] = _PreparedStatement(statement, self._dialect)
            if len(self._known) > _MOST_STATEMENTS:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(statement)
        return known


def _writer(kind: Any, dialect: Dialect) -> Callable[[Any], Any] | None:
    processor: Callable[[Any], Any] | None = kind.dialect_impl(dialect).bind_processor(dialect)
    return processor


def _reader(kind: Any, dialect: Dialect) -> Callable[[Any], Any] | None:
    processor: Callable[[Any], Any] | None = kind.dialect_impl(dialect).result_processor(dialect, None)
    return processor


async def _roll_back(driver: Any, transaction: Any) -> None:
    # A connection that is gone has rolled back by itself.
    if not driver.is_closed():
        with translated_errors():
            await transaction.rollback()
