"""Every table, empty, at the least cost: a database gets its tables once, and is emptied for each later test."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.schema import CreateSchema

from stagewright_persistence_sqlalchemy import Database, create_engine

__all__ = ["make_empty_tables"]

_READY: set[str] = set()
_FILES: dict[str, bytes] = {}


async def make_empty_tables(database: Database) -> None:
    """Give a database every table, with no row of an earlier test in it.

    A test that changes tables, and not only rows, needs a database of its own.
    """
    url = database.engine.url
    is_file = url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:")
    if is_file and _write_file(Path(str(url.database)), await _file_with_tables(database)):
        return
    place = f"{url.host}:{url.port} {url.database} {database.tables.names}"
    metadata = database.tables.metadata
    async with database.engine.begin() as connection:
        if place in _READY and url.get_backend_name() != "sqlite":
            await _empty(connection, database)
            return
        if metadata.schema is not None:
            await connection.execute(CreateSchema(metadata.schema, if_not_exists=True))
        await connection.run_sync(metadata.drop_all)
        await connection.run_sync(metadata.create_all)
    _READY.add(place)


def _write_file(file: Path, content: bytes) -> bool:
    if file.exists():
        return False
    file.write_bytes(content)
    return True


async def _file_with_tables(database: Database) -> bytes:
    names = database.tables.names
    if str(names) not in _FILES:
        with TemporaryDirectory() as folder:
            file = Path(folder) / "empty.sqlite3"
            engine = create_engine(f"sqlite:///{file}", table_prefix=names.table_prefix)
            async with engine.begin() as connection:
                await connection.run_sync(database.tables.metadata.create_all)
            # Who closes last takes what is in the log over into the file.
            await engine.dispose()
            _FILES[str(names)] = await asyncio.to_thread(file.read_bytes)
    return _FILES[str(names)]


async def _empty(connection: AsyncConnection, database: Database) -> None:
    """Rows are few: deleting them costs a server less than new files for all tables and indexes, as by TRUNCATE."""
    tables = [
        table
        for table in reversed(database.tables.metadata.sorted_tables)
        # Its rows come with the table.
        if table is not database.tables.group_locks
    ]
    if connection.dialect.name == "mariadb":
        for table in tables:
            await connection.execute(table.delete())
        return
    deletes = " ".join(f"{table.delete().compile(dialect=connection.dialect)};" for table in tables)
    await connection.exec_driver_sql(f"DO $$ BEGIN {deletes} END $$")
