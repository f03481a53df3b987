"""Blobs in an SQL database: for what is too large for a row of its own and not worth a store of its own."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Executable, Text, bindparam, delete, select

from stagewright.blob_keys import require_blob_key
from stagewright.errors import BlobNotFoundError
from stagewright.ports import BlobReader, BlobWriter
from stagewright_persistence_sqlalchemy.connection import Connection
from stagewright_persistence_sqlalchemy.dialect import DatabaseKind
from stagewright_persistence_sqlalchemy.id_lists import id_list
from stagewright_persistence_sqlalchemy.prefixes import starts_with
from stagewright_persistence_sqlalchemy.statements.reads import blob_by_key, numbered
from stagewright_persistence_sqlalchemy.statements.writes_at_once import insert_absent
from stagewright_persistence_sqlalchemy.tables import Tables, for_tables

__all__ = ["SqlAlchemyBlobStore"]

_PAGE: Final = 500
_DELETED_AT_ONCE: Final = 500


class SqlAlchemyBlobStore(Connection):
    """A `BlobStore`, which takes part in transactions of a persistence over the same database.

    A blob is one row; streams are gathered in memory.
    """

    async def put(
        self, key: str, data: bytes, *, content_type: str | None = None, if_absent: bool = False
    ) -> bool:
        """Store bytes under a key; with `if_absent` an existing blob stays and the answer is False."""
        require_blob_key(key)
        now = self._database.clock.now()
        row = {
            "key": key,
            "data": bytes(data),
            "content_type": content_type,
            "created_at": now,
            "updated_at": now,
        }
        async with self._writing() as tx:
            statement = _put(self._tables, self._database.kind, if_absent=if_absent)
            return await tx.execute(statement, row) > 0

    async def get(self, key: str) -> bytes:
        """The bytes under a key."""
        found = await self._fetch(blob_by_key(self._tables), {"key": key})
        if not found:
            raise BlobNotFoundError(key)
        return bytes(found[0]["data"])

    async def has(self, key: str) -> bool:
        """Whether there is a blob under that key."""
        return bool(await self._fetch(_key_of_blob(self._tables), {"key": key}))

    async def written_at(self, key: str) -> datetime | None:
        """When the blob was stored, by the clock of who stored it; None if there is none."""
        found = await self._fetch(_date_of_blob(self._tables), {"key": key})
        written_at: datetime | None = found[0]["updated_at"] if found else None
        return written_at

    async def delete(self, key: str) -> None:
        """Remove a blob; nothing happens if there is none."""
        await self.delete_many([key])

    async def delete_many(self, keys: Collection[str]) -> None:
        """Remove blobs; those that don't exist don't matter."""
        wanted = sorted(set(keys))
        if not wanted:
            return
        async with self._writing() as tx:
            for start in range(0, len(wanted), _DELETED_AT_ONCE):
                some = id_list(wanted[start : start + _DELETED_AT_ONCE])
                await tx.execute(_delete(self._tables, len(some)), some)

    async def list(self, prefix: str) -> AsyncIterator[str]:
        """All keys that start with a prefix, in ascending order, read page by page."""
        last: str | None = None
        while True:
            blobs = self._tables.blobs.c
            statement = (
                select(blobs.key).where(starts_with(blobs.key, prefix)).order_by(blobs.key).limit(_PAGE)
            )
            if last is not None:
                statement = statement.where(blobs.key > last)
            rows = await self._fetch(statement, {})
            for row in rows:
                yield row["key"]
            if len(rows) < _PAGE:
                return
            last = rows[-1]["key"]

    @asynccontextmanager
    async def open_read(self, key: str) -> AsyncIterator[BlobReader]:
        """Read a blob piece by piece."""
        yield _Reader(await self.get(key))

    @asynccontextmanager
    async def open_write(self, key: str, *, content_type: str | None = None) -> AsyncIterator[BlobWriter]:
        """Write a blob piece by piece; it appears when the block ends and not at all when the block raises."""
        require_blob_key(key)
        writer = _Writer()
        yield writer
        await self.put(key, bytes(writer.data), content_type=content_type)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)

    async def read(self, size: int = -1) -> bytes:
        taken = self._data if size < 0 else self._data[:size]
        self._data = self._data[len(taken) :]
        return bytes(taken)


class _Writer:
    def __init__(self) -> None:
        self.data = bytearray()

    async def write(self, data: bytes) -> None:
        self.data += data


@for_tables(maxsize=16)
def _put(tables: Tables, kind: DatabaseKind, *, if_absent: bool) -> Executable:
    names = list(tables.blobs.c.keys())
    if if_absent:
        absent: Executable = insert_absent(kind, tables.blobs, names)
        return absent
    statement: Any = kind.insert(tables.blobs)
    statement = statement.values({name: bindparam(name, type_=tables.blobs.c[name].type) for name in names})
    changed = ("data", "content_type", "updated_at")
    replaced: Executable = kind.replacing(
        statement, ["key"], lambda given: {name: given[name] for name in changed}
    )
    return replaced


@for_tables(maxsize=1)
def _key_of_blob(tables: Tables) -> Executable:
    return select(tables.blobs.c.key).where(tables.blobs.c.key == bindparam("key", type_=Text()))


@for_tables(maxsize=1)
def _date_of_blob(tables: Tables) -> Executable:
    return select(tables.blobs.c.updated_at).where(tables.blobs.c.key == bindparam("key", type_=Text()))


@for_tables(maxsize=64)
def _delete(tables: Tables, count: int) -> Executable:
    return delete(tables.blobs).where(tables.blobs.c.key.in_(numbered(count)))
