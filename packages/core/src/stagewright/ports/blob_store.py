"""Where large values and artifacts are kept."""

from collections.abc import AsyncIterator, Collection
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol, runtime_checkable

from stagewright.duration import Duration
from stagewright.presigned_urls import PresignedUrl

__all__ = ["BlobReader", "BlobStore", "BlobWriter", "DatesBlobs", "Presigner"]


class BlobReader(Protocol):
    """A blob that is being read."""

    async def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes more, all that is left for -1, nothing at the end."""
        ...


class BlobWriter(Protocol):
    """A blob that is being written."""

    async def write(self, data: bytes) -> None:
        """Append bytes, as they are now: what becomes of a buffer later doesn't reach the blob."""
        ...


@runtime_checkable
class BlobStore(Protocol):
    """Bytes by key. Keys are text of 1 to 900 characters without control characters; every byte of data counts.

    In UTF-8 a key has 2,600 bytes at the most. Control characters are those of Unicode's category Cc, and a lone
    surrogate is no character: `stagewright.blob_keys.require_blob_key` refuses what is none. Two keys that differ in
    any letter are two, also where only upper and lower case or the form of an accent differs. A blob of many megabytes
    is kept as whole as one of a few bytes.

    Every process that works on a run must use the same store.
    """

    async def put(
        self, key: str, data: bytes, *, content_type: str | None = None, if_absent: bool = False
    ) -> bool:
        """Store bytes under a key, whole or not at all.

        They are stored as they are now: what becomes of a buffer later doesn't reach the blob. What was there is read
        until then, and never a mixture. Bytes are bytes, whatever `content_type` says; a store that has no place for
        it may drop it.

        Returns:
            True when they were stored. With `if_absent` an existing blob is left as it is and the answer is False;
            of several callers at once exactly one is told True.

        Raises:
            InvalidBlobKeyError: If the key is none; nothing is stored.
        """
        ...

    async def get(self, key: str) -> bytes:
        """The bytes under a key.

        Raises:
            BlobNotFoundError: If there are none.
        """
        ...

    async def has(self, key: str) -> bool:
        """Whether there is a blob under that key."""
        ...

    async def delete(self, key: str) -> None:
        """Remove a blob; nothing happens if there is none."""
        ...

    async def delete_many(self, keys: Collection[str]) -> None:
        """Remove blobs; those that don't exist don't matter."""
        ...

    def list(self, prefix: str) -> AsyncIterator[str]:
        """All keys that start with a prefix, letter by letter, in ascending order of their code points.

        An async generator, which is called and not awaited. Whoever walks it may leave early, or delete what it shows.
        """
        ...

    def open_read(self, key: str) -> AbstractAsyncContextManager[BlobReader]:
        """Read a large blob piece by piece; there is no end of it but its own, and an empty read says so.

        Raises:
            BlobNotFoundError: On entering, if there is no such blob.
        """
        ...

    def open_write(
        self, key: str, *, content_type: str | None = None
    ) -> AbstractAsyncContextManager[BlobWriter]:
        """Write a large blob piece by piece; it appears when the block ends and not at all when the block raises.

        Until then nobody sees it by any method; a blob that was there is read meanwhile, stays when the block raises,
        and is replaced when it ends.

        Raises:
            InvalidBlobKeyError: On entering, if the key is none.
        """
        ...


@runtime_checkable
class DatesBlobs(Protocol):
    """Optional: says when blobs were written, so that who looks for what nobody needs leaves alone what is new."""

    async def written_at(self, key: str) -> datetime | None:
        """When the blob under that key was last stored, in UTC, by the clock of the store or of who stored it.

        None if there is none. Storing the same bytes again counts.
        """
        ...


@runtime_checkable
class Presigner(Protocol):
    """Optional: URLs by which somebody without credentials reads or writes one blob for a while.

    A URL is for one key and one method. The credentials that sign it may end before the time that was asked for is
    over, and the URL with them: its `expires_at` says which of the two comes first. It is a secret until then, so
    nobody stores, logs or shows it; who needs it longer asks for another.

    Raises:
        InvalidBlobKeyError: If the key is none.
        InvalidSettingError: If `expires` is no duration, nothing, or more than seven days.
    """

    async def presign_put(
        self, key: str, *, expires: Duration, content_type: str | None = None
    ) -> PresignedUrl:
        """A URL that accepts a PUT of the blob until it expires; with a content type, a PUT of that one alone."""
        ...

    async def presign_get(self, key: str, *, expires: Duration) -> PresignedUrl:
        """A URL that answers a GET of the blob until it expires."""
        ...
