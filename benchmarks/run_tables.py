"""The tables of runs, to empty them before a measurement and to see afterwards that all was written."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from stagewright_persistence_sqlalchemy import create_engine

__all__ = ["TABLES", "RunTables", "open_tables"]

TABLES: Final = {
    "events": "outbox_events",
    "jobs": "job_queue",
    "stages": "workflow_stages",
    "runs": "workflow_runs",
}
"""By what is counted: the table, those first that refer to others."""

_DEADLOCK: Final = "40P01"


class RunTables:
    """The tables of runs in one database, on a connection of their own.

    Args:
        engine: The database.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def clear(self) -> None:
        """Forget all runs, and leave nothing of them to clean up to whoever is measured next."""
        while True:
            try:
                return await self._clear()
            except DBAPIError as error:
                # A worker may be at its last deliveries, which lock the same tables in their own order.
                if getattr(error.orig, "sqlstate", None) != _DEADLOCK:
                    raise

    async def _clear(self) -> None:
        async with self._engine.begin() as connection:
            if self._engine.dialect.name == "postgresql":
                await connection.execute(
                    text(f"TRUNCATE {', '.join(TABLES.values())} RESTART IDENTITY CASCADE")
                )
            else:
                for table in TABLES.values():
                    await connection.execute(text(f"DELETE FROM {table}"))

    async def count(self) -> dict[str, int]:
        """How many rows each table has; of runs, only the COMPLETED ones count."""
        found = {}
        async with self._engine.connect() as connection:
            for name, table in TABLES.items():
                wanted = " WHERE status = 'COMPLETED'" if name == "runs" else ""
                counted = await connection.execute(text(f"SELECT count(*) FROM {table}{wanted}"))
                found[name] = int(counted.scalar_one())
        return found


@asynccontextmanager
async def open_tables(url: str) -> AsyncIterator[RunTables]:
    """The tables of runs in a database that has Stagewright's schema."""
    engine = create_engine(url, pool_size=1)
    try:
        yield RunTables(engine)
    finally:
        await engine.dispose()
