"""A large blob that comes by ranges or goes by parts."""

import zlib

from stagewright.vendor_threads import VendorThreads
from stagewright_blob_s3.bucket import Bucket, Found, crc32_text
from stagewright_blob_s3.client import Answer
from stagewright_blob_s3.upload import Upload

__all__ = ["Coming", "Going"]


class Coming:
    """An object that is read from its start to its end, and then compared with its checksum.

    Args:
        threads: Where calls block.
        key: The blob.
        found: Which object it was when it was opened.
    """

    def __init__(self, threads: VendorThreads[Bucket], key: str, found: Found) -> None:
        self._threads = threads
        self._key = key
        self._found = found
        self._checksum = 0

    async def fetch(self, start: int, size: int) -> bytes:
        """So many bytes from a place, each time from where the last ones ended.

        Raises:
            BlobStoreUnavailableError: If it can't be had now, was replaced, or differs from what was stored.
        """
        return await self._threads.call(lambda bucket: self._fetch(bucket, start, size))

    def _fetch(self, bucket: Bucket, start: int, size: int) -> bytes:
        data = bucket.get_range(self._key, self._found, start, size)
        self._checksum = zlib.crc32(data, self._checksum)
        is_last = start + size >= self._found.size
        if is_last and self._found.crc32 not in (None, crc32_text(self._checksum)):
            problem = "its bytes don't have the checksum that they were stored with; read it again"
            raise bucket.doing("read", self._key).unavailable(problem)
        return data


class Going:
    """An object that is begun when its first part is sent, and appears with its last.

    Args:
        threads: Where calls block.
        key: The blob.
        headers: What is stored with it.
    """

    def __init__(self, threads: VendorThreads[Bucket], key: str, headers: Answer) -> None:
        self._threads = threads
        self._key = key
        self._headers = headers
        self._upload: Upload | None = None
        self._given_up: BaseException | None = None

    async def send(self, part: bytes) -> None:
        """Send a part that isn't the last."""
        await self._threads.finish(lambda bucket: self._send(bucket, part))

    async def complete(self, last: bytes) -> None:
        """Send the last part, or all there is, and let the blob appear."""
        await self._threads.finish(lambda bucket: self._complete(bucket, last))

    async def abort(self, error: BaseException) -> None:
        """Leave nothing behind, because of an error; what is still on its way goes once it has ended."""
        self._given_up = error
        if self._upload is not None:
            await self._threads.finish(lambda _: self._abort(error))

    def _send(self, bucket: Bucket, part: bytes) -> None:
        if self._upload is None:
            self._upload = Upload(bucket, self._key, self._headers)
        if self._given_up is None:
            self._upload.send(part)
        if self._given_up is not None:
            # Whoever waited for this has gone, and may have seen no upload yet.
            self._upload.abort_after(self._given_up)

    def _complete(self, bucket: Bucket, last: bytes) -> None:
        if self._upload is None:
            bucket.put(self._key, last, self._headers, if_absent=False)
            return
        self._upload.send(last)
        self._upload.complete()

    def _abort(self, error: BaseException) -> None:
        if self._upload is not None:
            self._upload.abort_after(error)
