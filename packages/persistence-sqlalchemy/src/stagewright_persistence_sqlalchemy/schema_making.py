"""Making PostgreSQL's schema that a store's tables are to be in."""

from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.schema import CreateSchema

from stagewright_persistence_sqlalchemy.errors import DatabaseUnusableError
from stagewright_persistence_sqlalchemy.names import Names
from stagewright_persistence_sqlalchemy.vendor_errors import is_forbidden

__all__ = ["make_schema", "making_schema"]


async def make_schema(connection: AsyncConnection, names: Names, url: str) -> None:
    """Make the schema of these names if it is missing; where it is there, no right to make any is needed.

    Args:
        connection: In a transaction.
        names: The names of a store.
        url: The database, for the error.

    Raises:
        DatabaseUnusableError: If it is missing and the login may not make it.
    """
    if names.schema is None:
        return
    found = func.to_regnamespace(f'"{names.schema}"').is_not(None)
    if (await connection.execute(select(found))).scalar():
        return
    # Stores with other prefixes may make it at the same time, and IF NOT EXISTS would fail for one of them.
    lock = Names(names.schema).schema_lock
    await connection.execute(select(func.pg_advisory_xact_lock(lock)))
    try:
        await connection.execute(making_schema(names.schema))
    except SQLAlchemyError as error:
        if not is_forbidden(error):
            raise
        problem = (
            f"there is no schema {names.schema!r}, and this login may not make one; have somebody who may execute "
            f'CREATE SCHEMA "{names.schema}" AUTHORIZATION and the login\'s name'
        )
        raise DatabaseUnusableError(url, problem) from error


def making_schema(schema: str) -> CreateSchema:
    """The statement that makes a schema."""
    return CreateSchema(schema, if_not_exists=True)
