"""Blobs in a bucket of Google Cloud Storage."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Any, Final, Unpack

from stagewright.bucket_urls import BucketUrl
from stagewright.duration import Duration
from stagewright.object_names import ObjectNames
from stagewright.object_streams import PartWriter, RangeReader
from stagewright.ports import BlobReader, BlobWriter
from stagewright.presigned_urls import PresignedUrl
from stagewright.vendor_threads import VendorThreads
from stagewright_blob_gcs.bucket import Bucket
from stagewright_blob_gcs.client import connect, credentials_of_this_process
from stagewright_blob_gcs.failures import Doing
from stagewright_blob_gcs.presigning import presign
from stagewright_blob_gcs.settings import GcsOptions, GcsSettings
from stagewright_blob_gcs.streams import Coming, Going

__all__ = ["GcsBlobStore"]

_DELETED_AT_ONCE: Final = 100
_NO_NAMES: Final = frozenset({".", ".."})


class GcsBlobStore:
    """A `BlobStore`, `Presigner` and `DatesBlobs` over one client of Google's, whose calls run in threads of their own.

    Credentials are the application's default ones. Names of objects are the prefix, a slash and the key as it is, so a
    key has less than 1,024 bytes of UTF-8.

    Args:
        url: `gs://bucket/prefix`; every option may stand behind it as a parameter too.
        credentials: Credentials of google-auth's; the application's default ones by default.
        options: The settings by name, as `GcsSettings` describes them.

    Raises:
        InvalidSettingError: If the URL or an option is none of what it may be.
    """

    def __init__(
        self,
        url: str,
        *,
        credentials: Any = None,  # Any: Google's libraries have few types
        **options: Unpack[GcsOptions],
    ) -> None:
        self._place = BucketUrl.parse(url, "gs", GcsSettings.names())
        self._settings = GcsSettings.of(self._place, options)
        self._names = ObjectNames(self._place.prefix, _NO_NAMES)
        self._credentials = credentials
        self._threads: VendorThreads[Bucket] = VendorThreads(
            repr(self),
            size=self._settings.connections,
            connect=self._connect,
            disconnect=lambda bucket: bucket.client.close(),
        )

    def __repr__(self) -> str:
        return f"GcsBlobStore('{self._place}')"

    async def check(self) -> None:
        """Ask the bucket for a listing, to learn early what would go wrong later.

        Raises:
            BlobAccessDeniedError, BlobStoreRefusedError: If there is no such bucket, or it may not be listed.
            BlobStoreUnavailableError: If it can't be reached.
        """
        await self._threads.call(Bucket.check)

    async def close(self) -> None:
        """Close all connections; again, it does nothing."""
        await self._threads.close()

    async def put(
        self, key: str, data: bytes, *, content_type: str | None = None, if_absent: bool = False
    ) -> bool:
        """Store bytes under a key; with `if_absent` an existing blob stays and the answer is False."""
        self._names.of(key)
        kept = bytes(data)
        return await self._threads.finish(
            lambda bucket: bucket.put(key, kept, content_type, if_absent=if_absent)
        )

    async def get(self, key: str) -> bytes:
        """The bytes under a key."""
        self._names.existing(key)
        return await self._threads.call(lambda bucket: bucket.get(key))

    async def has(self, key: str) -> bool:
        """Whether there is a blob under that key."""
        if not self._names.that_may_exist([key]):
            return False
        return await self._threads.call(lambda bucket: bucket.has(key))

    async def written_at(self, key: str) -> datetime | None:
        """When the blob under that key was last stored, by the bucket's clock; None if there is none."""
        if not self._names.that_may_exist([key]):
            return None
        return await self._threads.call(lambda bucket: bucket.written_at(key))

    async def delete(self, key: str) -> None:
        """Remove a blob; nothing happens if there is none."""
        await self.delete_many([key])

    async def delete_many(self, keys: Collection[str]) -> None:
        """Remove blobs, as many at once as there are connections; those that don't exist don't matter."""
        names = self._names.that_may_exist(keys)
        for start in range(0, len(names), _DELETED_AT_ONCE):
            some = names[start : start + _DELETED_AT_ONCE]
            deletes = [self._threads.finish(partial(Bucket.delete, name=name)) for name in some]
            ended = await asyncio.gather(*deletes, return_exceptions=True)
            for failure in ended:
                if failure is not None:
                    raise failure

    async def list(self, prefix: str) -> AsyncIterator[str]:
        """All keys that start with a prefix, in ascending order, asked for page by page."""
        if prefix and not self._names.that_may_exist([prefix]) and prefix not in _NO_NAMES:
            return  # No key begins with what is no key.
        pages = await self._threads.call(lambda bucket: bucket.pages(prefix))
        while (page := await self._threads.call(lambda _: next(pages, None))) is not None:
            for key in page:
                yield key

    @asynccontextmanager
    async def open_read(self, key: str) -> AsyncIterator[BlobReader]:
        """Read a blob range by range; one that is replaced meanwhile is a `BlobStoreUnavailableError`."""
        self._names.existing(key)
        found = await self._threads.call(lambda bucket: bucket.find(key))
        coming = Coming(self._threads, key, found)
        yield RangeReader(found.size, self._settings.part_size, coming.fetch)

    @asynccontextmanager
    async def open_write(self, key: str, *, content_type: str | None = None) -> AsyncIterator[BlobWriter]:
        """Write a blob part by part; it appears when the block ends and not at all when the block raises."""
        self._names.of(key)
        going = Going(self._threads, key, content_type)
        writer = PartWriter(self._settings.part_size, going.send)
        try:
            yield writer
            await going.complete(writer.last())
        except BaseException as error:
            await going.abort(error)
            raise

    async def presign_put(
        self, key: str, *, expires: Duration, content_type: str | None = None
    ) -> PresignedUrl:
        """A URL that accepts a PUT of the blob until it expires, of that content type if one is given."""
        self._names.of(key)
        sign = partial(presign, key=key, method="PUT", expires=expires, content_type=content_type)
        return await self._threads.call(sign)

    async def presign_get(self, key: str, *, expires: Duration) -> PresignedUrl:
        """A URL that answers a GET of the blob until it expires."""
        self._names.of(key)
        return await self._threads.call(partial(presign, key=key, method="GET", expires=expires))

    def _connect(self) -> Bucket:
        with Doing(str(self._place), "be opened").translated():
            credentials = self._credentials or credentials_of_this_process()
            client = connect(credentials, self._settings)
        return Bucket(client, credentials, self._settings, self._place, self._names)
