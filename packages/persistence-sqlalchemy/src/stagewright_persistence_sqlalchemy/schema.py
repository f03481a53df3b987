"""The schema of a database: which version it has, making it, bringing it up to date, and its DDL as text.

A worker opens a database that has its schema. So Alembic is imported only where migrations are run or read.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from stagewright_persistence_sqlalchemy.connecting import connected
from stagewright_persistence_sqlalchemy.database_schema import DatabaseSchema
from stagewright_persistence_sqlalchemy.database_url import database_url, named_errors, shown
from stagewright_persistence_sqlalchemy.dialect import kind_of
from stagewright_persistence_sqlalchemy.engine import names_of
from stagewright_persistence_sqlalchemy.errors import (
    DatabaseFileMissingError,
    DatabaseUnusableError,
    SchemaMissingError,
)
from stagewright_persistence_sqlalchemy.names import Names
from stagewright_persistence_sqlalchemy.schema_making import make_schema
from stagewright_persistence_sqlalchemy.schema_state import SchemaState, state_of
from stagewright_persistence_sqlalchemy.url_parameters import names_in

__all__ = ["HEAD", "Upgrade", "check", "current", "oldest_build", "sql", "upgrade", "upgrade_if_new"]

_log: Final = logging.getLogger("stagewright.persistence")

_MIGRATIONS: Final = Path(__file__).parent / "migrations" / "versions"
_LONGEST_TURN: Final = 86_400

HEAD: Final = max(file.name[:4] for file in _MIGRATIONS.glob("[0-9][0-9][0-9][0-9]_*.py"))
"""The version of the schema that this code works with."""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """What an upgrade did.

    Attributes:
        before: The version that the database had; None if it had no schema.
        after: The version that it has now.
    """

    before: str | None
    after: str


async def current(engine: AsyncEngine) -> str | None:
    """The version of the schema that a database has; None if it has none.

    Raises:
        UnknownSchemaError: If what is there isn't of Stagewright's making.
        DatabaseUnusableError, TransientError: If it can't be looked at.
    """
    return (await _state(engine)).known_version(_shown(engine))


async def oldest_build(engine: AsyncEngine) -> str | None:
    """The oldest build that works on a database, by the version of the schema that it needs; None if it has no schema.

    Raises:
        UnknownSchemaError: If what is there isn't of Stagewright's making.
        DatabaseUnusableError, TransientError: If it can't be looked at.
    """
    state = await _state(engine)
    return None if state.known_version(_shown(engine)) is None else state.oldest_build


async def check(engine: AsyncEngine) -> DatabaseSchema:
    """Make sure that this code works on the schema that a database has; changes nothing.

    It may be a newer one, which says that it works with builds as old as this, or an older one, where the migrations
    between them say so; then the log says it once.

    Raises:
        SchemaMissingError, SchemaOutdatedError, SchemaTooNewError, UnknownSchemaError: If it doesn't;
            DatabaseFileMissingError if there is no such file.
        DatabaseUnusableError, TransientError: If it can't be looked at.
    """
    url, state = _shown(engine), await _state(engine)
    oldest_database, off = _before_this_build(state)
    try:
        version = state.check(url, HEAD, oldest_database)
    except SchemaMissingError as error:
        if not _is_unmade_file(engine):
            raise
        raise DatabaseFileMissingError(error.url) from None
    found = DatabaseSchema(url, version, HEAD, off)
    if found.remark:
        _log.warning("%s: %s", url, found.remark)
    return found


async def upgrade(engine: AsyncEngine) -> Upgrade:
    """Bring a database to the schema that this code works with; an empty one gets it whole.

    Any number of processes may do this at once: one does it while the others wait. A process that dies meanwhile
    leaves the database as it was, or, on MariaDB, somewhere between, from where the next one goes on.

    Args:
        engine: Made by `create_engine` of this package; a transaction on SQLite has to begin as a writer.

    Raises:
        SchemaTooNewError, UnknownSchemaError: If it can't be brought there; nothing was changed.
        DatabaseUnusableError, TransientError: If the database refuses, or can't be reached.
    """
    return await _upgrade(engine, only_if_new=False)


async def upgrade_if_new(engine: AsyncEngine) -> DatabaseSchema:
    """Like `upgrade` for a database without any table; any other one is only checked, as `check` does."""
    if (await _state(engine)).is_empty:
        await _upgrade(engine, only_if_new=True)
    return await check(engine)


def sql(url: str, *, schema: str | None = None, table_prefix: str | None = None) -> str:
    """The statements that make the schema in an empty database, as text; no database is needed.

    Args:
        url: Any URL of the kind of database; its kind matters, and the names that it gives.
        schema: As `create_engine` takes it.
        table_prefix: The same.

    Raises:
        InvalidSettingError: If it is no URL of SQLite, PostgreSQL or MariaDB, or a name can't be used.
    """
    from stagewright_persistence_sqlalchemy.migrating import written_migrations

    parsed = database_url(url)
    names = names_in(parsed, schema=schema, table_prefix=table_prefix)
    return written_migrations(kind_of(parsed.get_backend_name()), names)


def _before_this_build(state: SchemaState) -> tuple[str, dict[str, str]]:
    """The oldest version of a database that this build works on, and what it does without on this one."""
    if not state.version or state.version >= HEAD:
        return HEAD, {}
    from stagewright_persistence_sqlalchemy.migrating import before_build

    return before_build(HEAD, state.version)


async def _state(engine: AsyncEngine) -> SchemaState:
    _check_file(engine)
    if _is_unmade_file(engine):
        # Looking into it would make it.
        return SchemaState.of_nothing()
    with named_errors(engine.url):
        async with connected(engine.execution_options(stagewright_reading=True)) as connection:
            return await connection.run_sync(state_of, names_of(engine))


async def _upgrade(engine: AsyncEngine, *, only_if_new: bool) -> Upgrade:
    _check_file(engine)
    names, url = names_of(engine), _shown(engine)
    with named_errors(engine.url):
        async with connected(engine) as connection:
            if engine.dialect.name != "sqlite":
                # Under a stricter level a process that has waited would still see the database as it was before.
                await connection.execution_options(isolation_level="READ COMMITTED")
            async with _turn(connection, names), connection.begin():
                if engine.dialect.name == "postgresql":
                    await connection.execute(select(func.pg_advisory_xact_lock(names.schema_lock)))
                before = await connection.run_sync(state_of, names)
                if not before.is_behind(url, HEAD):
                    return Upgrade(before.version, before.check(url, HEAD, HEAD))
                if before.is_empty or not only_if_new:
                    from stagewright_persistence_sqlalchemy.migrating import migrate

                    await make_schema(connection, names, url)
                    await connection.run_sync(migrate, before)
    return Upgrade(before.version, HEAD)


@asynccontextmanager
async def _turn(connection: AsyncConnection, names: Names) -> AsyncIterator[None]:
    """Wait until no other process changes the schema, where a lock of the transaction's wouldn't do.

    On MariaDB a transaction ends with the first table that it makes; on SQLite it began with the lock.
    """
    if connection.dialect.name != "mariadb":
        yield
        return
    # Its name is one for the whole server, and no longer than 64 characters.
    place = func.concat(func.database(), f"/{names.table_prefix}" if names.table_prefix else "")
    name = func.concat("stagewright_schema_", func.md5(place))
    await connection.execute(select(func.get_lock(name, _LONGEST_TURN)))
    await connection.commit()
    try:
        yield
    finally:
        # A connection that is lost has given it back.
        with suppress(SQLAlchemyError):
            await connection.execute(select(func.release_lock(name)))
            await connection.commit()


def _shown(engine: AsyncEngine) -> str:
    """The database as it may be shown, with the names that a URL of it would have to give."""
    names = names_of(engine)
    given = {"schema": names.schema, "table_prefix": names.table_prefix}
    return shown(engine.url.update_query_dict({name: value for name, value in given.items() if value}))


def _check_file(engine: AsyncEngine) -> None:
    path = _file_of(engine)
    if path is not None and path.is_dir():
        raise DatabaseUnusableError(_shown(engine), "it is a folder, and a file is needed")
    if path is not None and not path.parent.is_dir():
        raise DatabaseUnusableError(_shown(engine), f"there is no folder {path.parent}")


def _is_unmade_file(engine: AsyncEngine) -> bool:
    path = _file_of(engine)
    return path is not None and not path.exists()


def _file_of(engine: AsyncEngine) -> Path | None:
    """The file of an SQLite database; None where there is none, or it is named in SQLite's own way."""
    name = engine.url.database
    if engine.dialect.name != "sqlite" or not name or name.startswith((":memory:", "file:")):
        return None
    return Path(name)
