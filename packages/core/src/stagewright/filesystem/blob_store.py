"""A blob store in a folder."""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from functools import partial
from typing import BinaryIO, Final, TypeVar

from stagewright.blob_keys import require_blob_key
from stagewright.errors import TransientError
from stagewright.filesystem.blob_files import BlobFiles, UnfinishedBlob
from stagewright.filesystem.file_urls import folder_named
from stagewright.ports import BlobReader, BlobWriter

__all__ = ["FileSystemBlobStore"]

R = TypeVar("R")
_PAGE: Final = 500
_DELETED_AT_ONCE: Final = 100


class FileSystemBlobStore:
    """A `BlobStore` in a folder, for the processes of one machine, or of several that share a file system with locks.

    Every key that a blob store takes is taken, whatever its letters, length or case; none leads out of the folder. A
    blob is written beside its place, made to outlast a loss of power, and moved there whole. It has a first line of
    its own in its file, with its key and content type; its bytes follow. Streams hold one piece of a blob at a time.

    Files are worked on in threads. A call that is cancelled ends once its thread has, so that nothing happens later.

    Args:
        place: The folder, as a path or as a URL such as `file:///var/lib/app/blobs`. It is made when the first blob
            comes, and should hold nothing else.

    Raises:
        InvalidSettingError: If it names no folder.
    """

    def __init__(self, place: str | os.PathLike[str]) -> None:
        self.folder: Final = folder_named(place)
        self._files = BlobFiles(self.folder)

    def __repr__(self) -> str:
        return f"FileSystemBlobStore({str(self.folder)!r})"

    async def put(
        self, key: str, data: bytes, *, content_type: str | None = None, if_absent: bool = False
    ) -> bool:
        """Store bytes under a key; with `if_absent` an existing blob stays and the answer is False."""
        require_blob_key(key)
        kept = bytes(data)
        return await self._do("write", partial(_put, self._files, key, kept, content_type, if_absent))

    async def get(self, key: str) -> bytes:
        """The bytes under a key."""

        def read() -> bytes:
            with self._files.open(key) as file:
                return file.read()

        return await self._do("read", read)

    async def has(self, key: str) -> bool:
        """Whether there is a blob under that key."""
        return await self.written_at(key) is not None

    async def written_at(self, key: str) -> datetime | None:
        """When the blob was written, by the file system's clock; None if there is none."""
        return await self._do("look for", partial(self._files.written_at, key))

    async def delete(self, key: str) -> None:
        """Remove a blob, if there is one."""
        await self.delete_many((key,))

    async def delete_many(self, keys: Collection[str]) -> None:
        """Remove those of these blobs that exist."""
        wanted = sorted(set(keys))
        for start in range(0, len(wanted), _DELETED_AT_ONCE):
            some = wanted[start : start + _DELETED_AT_ONCE]
            await self._do("delete", partial(self._files.delete, some))

    async def list(self, prefix: str) -> AsyncIterator[str]:
        """All keys that start with a prefix, in ascending order, read page by page."""
        keys = self._files.walk(prefix)
        while page := await self._do("list", lambda: tuple(itertools.islice(keys, _PAGE))):
            for key in page:
                yield key

    @asynccontextmanager
    async def open_read(self, key: str) -> AsyncIterator[BlobReader]:
        """Read a blob piece by piece, as it is at this moment."""
        file = await self._do("read", partial(self._files.open, key))
        try:
            yield _Reader(self, file)
        finally:
            await self._do("read", file.close)

    @asynccontextmanager
    async def open_write(self, key: str, *, content_type: str | None = None) -> AsyncIterator[BlobWriter]:
        """Write a blob piece by piece; it appears when the block ends and not at all when the block raises."""
        require_blob_key(key)
        blob = await self._do("write", partial(self._files.begin, key, content_type))
        try:
            yield _Writer(self, blob)
            await self._do("write", blob.publish)
        finally:
            await self._do("write", blob.abandon)

    async def _do(self, what: str, work: Callable[[], R]) -> R:
        """Do something in a thread, and be done with it also when the caller is cancelled.

        Raises:
            TransientError: If the file system couldn't.
        """
        working = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            while not working.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait({working})
            if not working.cancelled():
                working.exception()
            raise
        except OSError as error:
            raise TransientError(f"the folder {self.folder} couldn't {what} a blob: {error}") from error


class _Reader:
    def __init__(self, store: FileSystemBlobStore, file: BinaryIO) -> None:
        self._store = store
        self._file = file

    async def read(self, size: int = -1) -> bytes:
        return await self._store._do("read", partial(self._file.read, size))


class _Writer:
    def __init__(self, store: FileSystemBlobStore, blob: UnfinishedBlob) -> None:
        self._store = store
        self._blob = blob

    async def write(self, data: bytes) -> None:
        await self._store._do("write", partial(self._blob.write, bytes(data)))


def _put(files: BlobFiles, key: str, data: bytes, content_type: str | None, if_absent: bool) -> bool:
    blob = files.begin(key, content_type)
    try:
        blob.write(data)
        return blob.publish(if_absent=if_absent)
    finally:
        blob.abandon()
