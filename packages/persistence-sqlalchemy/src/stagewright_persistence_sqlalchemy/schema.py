"""The schema of a database: which version it has, making it, bringing it up to date, and its DDL as text."""

import io
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, func, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from stagewright_persistence_sqlalchemy.connecting import connected
from stagewright_persistence_sqlalchemy.database_schema import DatabaseSchema
from stagewright_persistence_sqlalchemy.database_url import database_url, named_errors, shown
from stagewright_persistence_sqlalchemy.dialect import DatabaseKind, kind_of
from stagewright_persistence_sqlalchemy.errors import (
    DatabaseFileMissingError,
    DatabaseUnusableError,
    SchemaMissingError,
)
from stagewright_persistence_sqlalchemy.migration_declarations import (
    oldest_build_of,
    oldest_database,
    switched_off,
)
from stagewright_persistence_sqlalchemy.repeatable_operations import RepeatableOperations
from stagewright_persistence_sqlalchemy.schema_state import (
    OLDEST_BUILD,
    VERSION_TABLE,
    SchemaState,
    oldest_build_column,
    state_of,
)

__all__ = ["HEAD", "Upgrade", "check", "current", "oldest_build", "sql", "upgrade", "upgrade_if_new"]

_log: Final = logging.getLogger("stagewright.persistence")

_SCRIPTS: Final = ScriptDirectory(str(Path(__file__).parent / "migrations"))
_LOCK: Final = 0x5374616765777269
"""The key of PostgreSQL's advisory lock under which one process at a time changes the schema."""

_LONGEST_TURN: Final = 86_400

HEAD: Final = str(_SCRIPTS.get_current_head())
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
    return (await _state(engine)).known_version(shown(engine.url))


async def oldest_build(engine: AsyncEngine) -> str | None:
    """The oldest build that works on a database, by the version of the schema that it needs; None if it has no schema.

    Raises:
        UnknownSchemaError: If what is there isn't of Stagewright's making.
        DatabaseUnusableError, TransientError: If it can't be looked at.
    """
    state = await _state(engine)
    return None if state.known_version(shown(engine.url)) is None else state.oldest_build


async def check(engine: AsyncEngine) -> DatabaseSchema:
    """Make sure that this code works on the schema that a database has; changes nothing.

    It may be a newer one, which says that it works with builds as old as this, or an older one, where the migrations
    between them say so; then the log says it once.

    Raises:
        SchemaMissingError, SchemaOutdatedError, SchemaTooNewError, UnknownSchemaError: If it doesn't;
            DatabaseFileMissingError if there is no such file.
        DatabaseUnusableError, TransientError: If it can't be looked at.
    """
    url = shown(engine.url)
    try:
        version = (await _state(engine)).check(url, HEAD, oldest_database(_SCRIPTS, HEAD))
    except SchemaMissingError as error:
        if not _is_unmade_file(engine):
            raise
        raise DatabaseFileMissingError(error.url) from None
    found = DatabaseSchema(url, version, HEAD, switched_off(_SCRIPTS, version, HEAD))
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


def sql(url: str) -> str:
    """The statements that make the schema in an empty database, as text; no database is needed.

    Args:
        url: Any URL of the kind of database; only its kind matters.

    Raises:
        InvalidSettingError: If it is no URL of SQLite, PostgreSQL or MariaDB.
    """
    written = io.StringIO()
    kind = kind_of(database_url(url).get_backend_name())
    context = MigrationContext.configure(
        dialect_name=kind.name,
        opts=_options(
            kind,
            as_sql=True,
            output_buffer=written,
            transactional_ddl=kind.rolls_ddl_back,
            literal_binds=True,
        ),
    )
    with context.begin_transaction():
        _run(context, _operations(context))
    return written.getvalue()


async def _state(engine: AsyncEngine) -> SchemaState:
    _check_file(engine)
    if _is_unmade_file(engine):
        # Looking into it would make it.
        return SchemaState.of_nothing()
    with named_errors(engine.url):
        async with connected(engine.execution_options(stagewright_reading=True)) as connection:
            return await connection.run_sync(state_of)


async def _upgrade(engine: AsyncEngine, *, only_if_new: bool) -> Upgrade:
    _check_file(engine)
    url = shown(engine.url)
    with named_errors(engine.url):
        async with connected(engine) as connection:
            if engine.dialect.name != "sqlite":
                # Under a stricter level a process that has waited would still see the database as it was before.
                await connection.execution_options(isolation_level="READ COMMITTED")
            async with _turn(connection), connection.begin():
                if engine.dialect.name == "postgresql":
                    await connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
                before = await connection.run_sync(state_of)
                if not before.is_behind(url, HEAD):
                    return Upgrade(before.version, before.check(url, HEAD, HEAD))
                if before.is_empty or not only_if_new:
                    await connection.run_sync(_migrate, before)
    return Upgrade(before.version, HEAD)


@asynccontextmanager
async def _turn(connection: AsyncConnection) -> AsyncIterator[None]:
    """Wait until no other process changes the schema, where a lock of the transaction's wouldn't do.

    On MariaDB a transaction ends with the first table that it makes; on SQLite it began with the lock.
    """
    if connection.dialect.name != "mariadb":
        yield
        return
    # Its name is one for the whole server, and no longer than 64 characters.
    name = func.concat("stagewright_schema_", func.md5(func.database()))
    await connection.execute(select(func.get_lock(name, _LONGEST_TURN)))
    await connection.commit()
    try:
        yield
    finally:
        # A connection that is lost has given it back.
        with suppress(SQLAlchemyError):
            await connection.execute(select(func.release_lock(name)))
            await connection.commit()


def _migrate(connection: Connection, before: SchemaState) -> None:
    context = MigrationContext.configure(connection, opts=_options(kind_of(connection.dialect.name)))
    operations = _operations(context)
    if before.versions is not None and not before.notes_oldest_build:
        operations.add_column(VERSION_TABLE, oldest_build_column())
    _run(context, operations)


def _run(context: MigrationContext, operations: Operations) -> None:
    # A version table that is made now has the column from the start.
    context._version.append_column(oldest_build_column())
    # Migrations get their operations as an argument: Alembic's own proxy is one for the whole process.
    context.run_migrations(op=operations)


def _operations(context: MigrationContext) -> Operations:
    is_mariadb = context.dialect.name == "mariadb"
    return RepeatableOperations(context) if is_mariadb else Operations(context)


def _options(kind: DatabaseKind, **more: Any) -> dict[str, Any]:  # Any: Alembic's options
    def steps(heads: Any, context: MigrationContext) -> Any:
        has_version = bool(heads)
        for step in _SCRIPTS._upgrade_revs("head", heads):
            note = context._version.update().values({OLDEST_BUILD: oldest_build_of(step.revision)})
            if has_version:
                # Before its first statement: where those can't be taken back, an interrupted migration keeps builds out
                # that don't work on what it has begun.
                context.impl._exec(note)
            yield step
            if not has_version:
                context.impl._exec(note)
            has_version = True

    # MariaDB has one name for primary keys, and Alembic gives its table's another.
    is_named = kind.name != "mariadb"
    return {"version_table": VERSION_TABLE, "version_table_pk": is_named, "fn": steps, **more}


def _check_file(engine: AsyncEngine) -> None:
    path = _file_of(engine)
    if path is not None and path.is_dir():
        raise DatabaseUnusableError(shown(engine.url), "it is a folder, and a file is needed")
    if path is not None and not path.parent.is_dir():
        raise DatabaseUnusableError(shown(engine.url), f"there is no folder {path.parent}")


def _is_unmade_file(engine: AsyncEngine) -> bool:
    path = _file_of(engine)
    return path is not None and not path.exists()


def _file_of(engine: AsyncEngine) -> Path | None:
    """The file of an SQLite database; None where there is none, or it is named in SQLite's own way."""
    name = engine.url.database
    if engine.dialect.name != "sqlite" or not name or name.startswith((":memory:", "file:")):
        return None
    return Path(name)
