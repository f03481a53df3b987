"""Opening a database by its URL, as every port that it serves."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from stagewright.plugins import AdapterOptions, AdapterSet
from stagewright_persistence_sqlalchemy.ai_call_logger import SqlAlchemyAICallLogger
from stagewright_persistence_sqlalchemy.blob_store import SqlAlchemyBlobStore
from stagewright_persistence_sqlalchemy.clock import clock_of
from stagewright_persistence_sqlalchemy.database import Database
from stagewright_persistence_sqlalchemy.database_url import named_errors
from stagewright_persistence_sqlalchemy.engine import create_engine, is_read_only
from stagewright_persistence_sqlalchemy.job_transport import SqlAlchemyJobTransport
from stagewright_persistence_sqlalchemy.persistence import SqlAlchemyPersistence
from stagewright_persistence_sqlalchemy.schema import check, upgrade, upgrade_if_new
from stagewright_persistence_sqlalchemy.step_ledger import SqlAlchemyStepLedger

__all__ = ["open_database"]


@asynccontextmanager
async def open_database(url: str, options: AdapterOptions) -> AsyncIterator[AdapterSet]:
    """What `plugin.open_database` gives; its promises and errors stand there."""
    engine = create_engine(url, schema=options.schema, table_prefix=options.table_prefix)
    try:
        if options.create_schema is None and not is_read_only(engine):
            schema = await upgrade_if_new(engine)
        else:
            if options.create_schema:
                await upgrade(engine)
            schema = await check(engine)
        with named_errors(engine.url):
            clock = options.clock or await clock_of(engine)
        database = Database(engine, clock=clock, schema=schema)
        persistence = SqlAlchemyPersistence(database)
        # An older database goes without, as builds of its own version do.
        ai_calls = SqlAlchemyAICallLogger(database) if schema.has(SqlAlchemyAICallLogger.since) else None
        try:
            yield AdapterSet(
                persistence=persistence,
                job_transport=SqlAlchemyJobTransport(database, fairness=options.fairness),
                step_ledger=SqlAlchemyStepLedger(database),
                blob_store=SqlAlchemyBlobStore(database),
                run_reader=persistence,
                ai_call_logger=ai_calls,
                clock=clock,
            )
        finally:
            if ai_calls is not None:
                await ai_calls.drain()
            await database.close()
    finally:
        await engine.dispose()
