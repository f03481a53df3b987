from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from datetime import datetime

from stagewright.blob_keys import require_blob_key
from stagewright.errors import BlobNotFoundError
from stagewright.memory.connection import Connection
from stagewright.memory.rows import BlobRow

__all__ = ["InMemoryBlobStore"]


class InMemoryBlobStore(Connection):
    """Blobs in this process's memory: a `BlobStore` that enlists.

    Args:
        database: The database; one of its own unless given.
    """

    async def put(
        self, key: str, data: bytes, *, content_type: str | None = None, if_absent: bool = False
    ) -> bool:
        """Store bytes under a key; False if `if_absent` and there is a blob already."""
        require_blob_key(key)
        blobs, kept = self._database.blobs, bytes(data)
        async with self._statement("blob_store.put") as tx:
            lock = (blobs.name, key)
            locked_here = await tx.lock(lock)
            if if_absent and tx.get(blobs, key) is not None:
                if locked_here:
                    tx.unlock(lock)
                return False
            tx.put(blobs, BlobRow(key, kept, content_type, self._database.clock.now()))
            return True

    async def get(self, key: str) -> bytes:
        """The bytes under a key."""
        async with self._statement("blob_store.get") as tx:
            blob = tx.get(self._database.blobs, key)
        if blob is None:
            raise BlobNotFoundError(key)
        return blob.data

    async def has(self, key: str) -> bool:
        """Whether there is a blob under that key."""
        async with self._statement("blob_store.has") as tx:
            return tx.get(self._database.blobs, key) is not None

    async def written_at(self, key: str) -> datetime | None:
        """When the blob was stored, by the database's clock; None if there is none."""
        async with self._statement("blob_store.written_at") as tx:
            blob = tx.get(self._database.blobs, key)
        return None if blob is None else blob.written_at

    async def delete(self, key: str) -> None:
        """Remove a blob, if there is one."""
        await self.delete_many((key,))

    async def delete_many(self, keys: Collection[str]) -> None:
        """Remove those of these blobs that exist."""
        async with self._statement("blob_store.delete_many") as tx:
            for key in sorted(set(keys)):
                if await tx.lock_row(self._database.blobs, key) is not None:
                    tx.delete(self._database.blobs, key)

    async def list(self, prefix: str) -> AsyncIterator[str]:
        """All keys that start with a prefix, in ascending order."""
        async with self._statement("blob_store.list") as tx:
            keys = sorted(blob.key for blob in tx.all(self._database.blobs) if blob.key.startswith(prefix))
        for key in keys:
            yield key

    @asynccontextmanager
    async def open_read(self, key: str) -> AsyncIterator["_Reader"]:
        """Read a blob piece by piece, as it is at this moment."""
        yield _Reader(await self.get(key))

    @asynccontextmanager
    async def open_write(self, key: str, *, content_type: str | None = None) -> AsyncIterator["_Writer"]:
        """Write a blob piece by piece; it appears when the block ends without an error."""
        require_blob_key(key)
        writer = _Writer()
        yield writer
        await self.put(key, writer.content(), content_type=content_type)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    async def read(self, size: int = -1) -> bytes:
        start = self._position
        end = len(self._data) if size < 0 else min(start + size, len(self._data))
        self._position = end
        return self._data[start:end]


class _Writer:
    def __init__(self) -> None:
        self._data = bytearray()

    async def write(self, data: bytes) -> None:
        self._data += data

    def content(self) -> bytes:
        return bytes(self._data)
