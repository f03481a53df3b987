"""Blobs in a bucket of S3, or of a service that speaks its protocol."""

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
from stagewright_blob_s3.bucket import DELETED_AT_ONCE, Bucket
from stagewright_blob_s3.client import Answer, connect, session_of
from stagewright_blob_s3.presigning import presign
from stagewright_blob_s3.settings import S3Options, S3Settings
from stagewright_blob_s3.streams import Coming, Going
from stagewright_blob_s3.upload import put_in_parts

__all__ = ["S3BlobStore"]

_MOST_BY_ONE_CALL: Final = 64 << 20
"""Bytes; S3 takes 5 GiB, and the more a call has, the more is sent again when it breaks off."""


class S3BlobStore:
    """A `BlobStore`, `Presigner` and `DatesBlobs` over one client of boto3, whose calls run in threads of their own.

    Credentials come from where Amazon's tools take them: the environment, the shared files, a container, an instance.
    Names of objects are the prefix, a slash and the key as it is, so a key has less than 1,024 bytes of UTF-8.

    Args:
        url: `s3://bucket/prefix`; every option may stand behind it as a parameter too.
        session: The session of boto3 that makes the client; one of its own by default.
        options: The settings by name, as `S3Settings` describes them.

    Raises:
        InvalidSettingError: If the URL or an option is none of what it may be.
    """

    def __init__(
        self,
        url: str,
        *,
        session: Any = None,  # Any: boto3 has no types
        **options: Unpack[S3Options],
    ) -> None:
        self._place = BucketUrl.parse(url, "s3", S3Settings.names())
        self._settings = S3Settings.of(self._place, options)
        self._names = ObjectNames(self._place.prefix)
        self._session = session
        self._threads: VendorThreads[Bucket] = VendorThreads(
            repr(self),
            size=self._settings.connections,
            connect=self._connect,
            disconnect=lambda bucket: bucket.client.close(),
        )

    def __repr__(self) -> str:
        return f"S3BlobStore('{self._place}')"

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
        put = Bucket.put if len(data) <= _MOST_BY_ONE_CALL else put_in_parts
        kept, headers = bytes(data), _headers(content_type)
        return await self._threads.finish(lambda bucket: put(bucket, key, kept, headers, if_absent=if_absent))

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
        if self._names.that_may_exist([key]):
            await self._threads.finish(lambda bucket: bucket.delete(key))

    async def delete_many(self, keys: Collection[str]) -> None:
        """Remove blobs, a thousand by a call; those that don't exist don't matter."""
        names = self._names.that_may_exist(keys)
        for start in range(0, len(names), DELETED_AT_ONCE):
            some = names[start : start + DELETED_AT_ONCE]
            await self._threads.finish(partial(Bucket.delete_names, names=some))

    async def list(self, prefix: str) -> AsyncIterator[str]:
        """All keys that start with a prefix, in ascending order, asked for page by page."""
        if prefix and not self._names.that_may_exist([prefix]):
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
        going = Going(self._threads, key, _headers(content_type))
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
        return await self._presigned(key, "PUT", expires, _headers(content_type))

    async def presign_get(self, key: str, *, expires: Duration) -> PresignedUrl:
        """A URL that answers a GET of the blob until it expires."""
        self._names.of(key)
        return await self._presigned(key, "GET", expires, {})

    async def _presigned(self, key: str, method: str, expires: Duration, headers: Answer) -> PresignedUrl:
        return await self._threads.call(
            partial(presign, key=key, method=method, expires=expires, headers=headers)
        )

    def _connect(self) -> Bucket:
        session = self._session or session_of(self._settings)
        client = connect(session, self._settings)
        return Bucket(client, session.get_credentials(), self._settings, self._place, self._names)


def _headers(content_type: str | None) -> Answer:
    return {} if content_type is None else {"ContentType": content_type}
