"""Engines as they have to be: an installed driver, SQLite set up to be safe, pools that notice dead servers."""

from typing import Any, Final

from sqlalchemy import event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry, StaticPool

from stagewright_persistence_sqlalchemy.database_url import database_url, with_driver

__all__ = ["create_engine"]

_BUSY_TIMEOUT_MS: Final = 30_000


def create_engine(
    url: str, *, pool_size: int = 20, **options: Any
) -> AsyncEngine:  # Any: SQLAlchemy's own options
    """Make an engine.

    Args:
        url: Of an SQLite or PostgreSQL database; without a driver the installed one is chosen, asyncpg first.
        pool_size: How many connections are kept at the most.
        options: Passed on to `create_async_engine`.

    Raises:
        InvalidSettingError: If it is no URL of SQLite or PostgreSQL.
        MissingDriverError: If no driver for the database is installed.
    """
    chosen = with_driver(database_url(url))
    if chosen.get_backend_name() != "sqlite":
        server = {"isolation_level": "READ COMMITTED", "pool_pre_ping": False, "pool_timeout": 30}
        return create_async_engine(chosen, pool_size=pool_size, max_overflow=0, **(server | options))
    if chosen.database in (None, "", ":memory:"):
        # One connection for all: another one would be another, empty database.
        engine = create_async_engine(chosen, poolclass=StaticPool, **options)
    else:
        engine = create_async_engine(chosen, pool_size=pool_size, max_overflow=0, pool_timeout=60, **options)
    _prepare_sqlite(engine)
    return engine


def _prepare_sqlite(engine: AsyncEngine) -> None:
    @event.listens_for(engine.sync_engine, "connect")
    def connect(connection: DBAPIConnection, record: ConnectionPoolEntry) -> None:
        # The driver must not begin transactions by itself: it would begin them too late, and without the lock.
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in (
            f"busy_timeout={_BUSY_TIMEOUT_MS}",
            "journal_mode=WAL",
            "synchronous=FULL",
            "foreign_keys=ON",
        ):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def begin(connection: Any) -> None:  # Any: SQLAlchemy's event types differ by event
        reading = connection.get_execution_options().get("stagewright_reading")
        # A transaction that begins as a reader can't become a writer while another one writes, whatever the timeout.
        connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")
