"""What this distribution adds to Stagewright: the adapters for SQLite and PostgreSQL, and `stagewright db`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from stagewright.plugins import AdapterOptions, AdapterRegistry, AdapterSet, hookimpl
from stagewright.plugins.hookspecs import CommandGroup
from stagewright_persistence_sqlalchemy.blob_store import SqlAlchemyBlobStore
from stagewright_persistence_sqlalchemy.clock import clock_of
from stagewright_persistence_sqlalchemy.database import Database
from stagewright_persistence_sqlalchemy.database_url import named_errors
from stagewright_persistence_sqlalchemy.engine import create_engine
from stagewright_persistence_sqlalchemy.job_transport import SqlAlchemyJobTransport
from stagewright_persistence_sqlalchemy.persistence import SqlAlchemyPersistence
from stagewright_persistence_sqlalchemy.schema import check, upgrade, upgrade_if_new
from stagewright_persistence_sqlalchemy.step_ledger import SqlAlchemyStepLedger

__all__ = ["open_database", "stagewright_cli", "stagewright_register_adapters"]


@asynccontextmanager
async def open_database(url: str, options: AdapterOptions) -> AsyncIterator[AdapterSet]:
    """Open an SQLite or PostgreSQL database as every port that it serves, over one engine.

    Unless `options.create_schema` says otherwise, the schema is made in an SQLite database without any table, and
    nowhere else.

    Raises:
        InvalidSettingError, MissingDriverError: If the URL can't be opened here.
        SchemaError: If the database doesn't have the schema that this code works with.
        DatabaseUnusableError, TransientError: If the database refuses, or can't be reached.
    """
    engine = create_engine(url)
    try:
        if options.create_schema is None:
            await upgrade_if_new(engine)
        else:
            await (upgrade if options.create_schema else check)(engine)
        with named_errors(engine.url):
            clock = options.clock or await clock_of(engine)
        database = Database(engine, clock=clock)
        persistence = SqlAlchemyPersistence(database)
        try:
            yield AdapterSet(
                persistence=persistence,
                job_transport=SqlAlchemyJobTransport(database),
                step_ledger=SqlAlchemyStepLedger(database),
                blob_store=SqlAlchemyBlobStore(database),
                run_reader=persistence,
                clock=clock,
            )
        finally:
            await database.close()
    finally:
        await engine.dispose()


@hookimpl
def stagewright_register_adapters(registry: AdapterRegistry) -> None:
    """Open `sqlite://`, `postgresql://` and `postgres://`."""
    for scheme in ("sqlite", "postgresql", "postgres"):
        registry.add(scheme, open_database)


@hookimpl
def stagewright_cli(group: CommandGroup) -> None:
    """Add `stagewright db`."""
    # Click comes with an extra of the core's, and only the command line calls this.
    from stagewright_persistence_sqlalchemy.cli import db_command

    group.add_command(db_command)
