"""Blobs, one file for each."""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import IO

from stagewright.blob_keys import require_blob_key
from stagewright.errors import BlobNotFoundError
from stagewright.ports import BlobReader, BlobWriter

from stagewright_folder.files import (
    in_thread,
    name_of,
    publish,
    remove,
    unfinished_file,
)


class FolderBlobStore:
    """A `BlobStore` of one file for each blob, which begins with its key."""

    def __init__(self, folder: Path) -> None:
        self._blobs = folder / "blobs"
        self._unfinished = folder / "unfinished"

    async def put(
        self,
        key: str,
        data: bytes,
        *,
        content_type: str | None = None,
        if_absent: bool = False,
    ) -> bool:
        """Store bytes under a key, whole or not at all; False if `if_absent` and there are some."""
        require_blob_key(key)
        return await in_thread(self._put, key, bytes(data), if_absent)

    def _put(self, key: str, data: bytes, if_absent: bool) -> bool:
        with unfinished_file(self._unfinished) as file:
            file.write(_head(key))
            file.write(data)
            return publish(file, self._path(key), if_absent=if_absent)

    async def get(self, key: str) -> bytes:
        """The bytes under a key."""
        return await in_thread(self._get, key)

    def _get(self, key: str) -> bytes:
        with self._open(key) as file:
            return file.read()

    def _open(self, key: str) -> IO[bytes]:
        try:
            file = self._path(key).open("rb")
        except FileNotFoundError as error:
            raise BlobNotFoundError(key) from error
        _read_key(file)
        return file

    async def has(self, key: str) -> bool:
        """Whether there is a blob under that key."""
        return await in_thread(self._has, key)

    def _has(self, key: str) -> bool:
        try:
            self._path(key).stat()
        except FileNotFoundError:
            return False
        return True

    async def delete(self, key: str) -> None:
        """Remove a blob; nothing happens if there is none."""
        await in_thread(remove, self._path(key))

    async def delete_many(self, keys: Collection[str]) -> None:
        """Remove blobs; those that don't exist don't matter."""
        await in_thread(self._delete_many, [self._path(key) for key in keys])

    def _delete_many(self, paths: Sequence[Path]) -> None:
        for path in paths:
            remove(path)

    async def list(self, prefix: str) -> AsyncIterator[str]:
        """All keys that start with a prefix, in ascending order of their code points."""
        for key in await in_thread(self._keys, prefix):
            yield key

    def _keys(self, prefix: str) -> Sequence[str]:
        keys = (self._key_of(path) for path in self._blobs.iterdir())
        return sorted(key for key in keys if key is not None and key.startswith(prefix))

    def _key_of(self, path: Path) -> str | None:
        try:
            with path.open("rb") as file:
                return _read_key(file)
        except FileNotFoundError:
            return None

    @asynccontextmanager
    async def open_read(self, key: str) -> AsyncIterator[BlobReader]:
        """Read a large blob piece by piece."""
        # The stack has the file also if the call that opens it is cancelled.
        with ExitStack() as stack:
            file = await in_thread(lambda: stack.enter_context(self._open(key)))
            yield _Reader(file)

    @asynccontextmanager
    async def open_write(
        self,
        key: str,
        *,
        content_type: str | None = None,
    ) -> AsyncIterator[BlobWriter]:
        """Write a large blob piece by piece; it appears when the block ends, unless that raises."""
        require_blob_key(key)
        with ExitStack() as stack:
            unfinished = unfinished_file(self._unfinished)
            file = await in_thread(stack.enter_context, unfinished)
            await in_thread(file.write, _head(key))
            yield _Writer(file)
            await in_thread(publish, file, self._path(key))

    def _path(self, key: str) -> Path:
        return self._blobs / name_of(key)


def _head(key: str) -> bytes:
    text = key.encode()
    return len(text).to_bytes(2, "big") + text


def _read_key(file: IO[bytes]) -> str:
    return file.read(int.from_bytes(file.read(2), "big")).decode()


class _Reader:
    """A blob that is being read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    async def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes more, all that is left for -1, nothing at the end."""
        return await in_thread(self._file.read, size)


class _Writer:
    """A blob that is being written."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    async def write(self, data: bytes) -> None:
        """Append bytes, as they are now."""
        await in_thread(self._file.write, bytes(data))
