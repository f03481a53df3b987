"""What is in a database, and emptying it: for the conformance suite, and for nobody whose runs matter."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from stagewright_persistence_sqlalchemy import schema
from stagewright_persistence_sqlalchemy.connecting import connected
from stagewright_persistence_sqlalchemy.database_url import named_errors
from stagewright_persistence_sqlalchemy.engine import create_engine, names_of
from stagewright_persistence_sqlalchemy.errors import SchemaMissingError, SchemaOutdatedError
from stagewright_persistence_sqlalchemy.tables import tables_of

__all__ = ["contents", "empty"]


async def contents(url: str) -> str | None:
    """What a database holds of Stagewright's, in a few words; None for nothing. Nothing is changed.

    Raises:
        InvalidSettingError, MissingDriverError: If the URL can't be opened here.
        SchemaTooNewError, UnknownSchemaError: If what is there isn't of this code's making.
        DatabaseUnusableError, TransientError: If it can't be looked at.
    """
    async with _opened(url) as engine:
        try:
            await schema.check(engine)
        except SchemaMissingError:
            return None
        except SchemaOutdatedError as error:
            return f"the schema {error.found}, which would be brought to {schema.HEAD}"
        with named_errors(engine.url):
            async with connected(engine) as connection:
                tables = [
                    table.name
                    for table in tables_of(names_of(engine)).metadata.sorted_tables
                    if (await connection.execute(select(1).select_from(table).limit(1))).first() is not None
                ]
    return f"rows in {', '.join(tables)}" if tables else None


async def empty(url: str) -> None:
    """Delete every row of Stagewright's in a database, whose schema is made or brought up to date first.

    Raises:
        InvalidSettingError, MissingDriverError: If the URL can't be opened here.
        SchemaTooNewError, UnknownSchemaError: If what is there isn't of this code's making; nothing is deleted.
        DatabaseUnusableError, TransientError: If the database refuses, or can't be reached.
    """
    async with _opened(url) as engine:
        try:
            await schema.check(engine)
        except (SchemaMissingError, SchemaOutdatedError):
            await schema.upgrade(engine)
        with named_errors(engine.url):
            async with connected(engine) as connection, connection.begin():
                for table in reversed(tables_of(names_of(engine)).metadata.sorted_tables):
                    await connection.execute(table.delete())


@asynccontextmanager
async def _opened(url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_engine(url)
    try:
        yield engine
    finally:
        await engine.dispose()
