"""Reading and writing a large blob, with no more of it in memory than a part."""

import zlib
from functools import partial

from stagewright.vendor_threads import VendorThreads
from stagewright_blob_s3.bucket import Bucket, Found, crc32_text
from stagewright_blob_s3.client import Answer
from stagewright_blob_s3.upload import Upload

__all__ = ["PartWriter", "RangeReader"]


class RangeReader:
    """A `BlobReader` that asks for a range of a part's size at a time, all of one and the same object.

    Args:
        threads: Where calls block.
        key: The blob.
        found: What is there.
    """

    def __init__(self, threads: VendorThreads[Bucket], key: str, found: Found, size: int) -> None:
        self._threads = threads
        self._key = key
        self._found = found
        self._size = size
        self._next = 0
        self._checksum = 0
        self._held = memoryview(b"")

    async def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes more, all that is left for -1, nothing at the end."""
        if size >= 0:
            return await self._some(size)
        pieces: list[bytes] = []
        while piece := await self._some(self._size):
            pieces.append(piece)
        return b"".join(pieces)

    async def _some(self, size: int) -> bytes:
        if size and not self._held and self._next < self._found.size:
            await self._fetch()
        taken = self._held[:size]
        self._held = self._held[len(taken) :]
        return bytes(taken)

    async def _fetch(self) -> None:
        wanted = min(self._size, self._found.size - self._next)
        data = await self._threads.call(
            lambda bucket: bucket.get_range(self._key, self._found, self._next, wanted)
        )
        self._next += len(data)
        self._checksum = zlib.crc32(data, self._checksum)
        if self._next >= self._found.size and self._found.crc32 is not None:
            await self._threads.call(self._compare)
        self._held = memoryview(data)

    def _compare(self, bucket: Bucket) -> None:
        if crc32_text(self._checksum) != self._found.crc32:
            problem = "its bytes don't have the checksum that they were stored with; read it again"
            raise bucket.doing("read", self._key).unavailable(problem)


class PartWriter:
    """A `BlobWriter` that sends a part whenever it holds one.

    Args:
        threads: Where calls block.
        key: The blob.
        headers: What is stored with it.
        size: Bytes of a part.
    """

    def __init__(self, threads: VendorThreads[Bucket], key: str, headers: Answer, size: int) -> None:
        self._threads = threads
        self._key = key
        self._headers = headers
        self._size = size
        self._held = bytearray()
        self._upload: Upload | None = None

    async def write(self, data: bytes) -> None:
        """Append bytes, as they are now."""
        self._held += data
        # The last part may be of any size, so one is sent only when there is more.
        while len(self._held) > self._size:
            part = bytes(self._held[: self._size])
            del self._held[: self._size]
            await self._threads.finish(partial(self._send, part=part))

    async def complete(self) -> None:
        """Let the blob appear."""
        await self._threads.finish(self._end)

    async def abort(self, error: BaseException) -> None:
        """Leave nothing behind, because of an error."""
        upload = self._upload
        if upload is not None:
            await self._threads.finish(lambda bucket: upload.abort_after(error))

    def _send(self, bucket: Bucket, part: bytes) -> None:
        if self._upload is None:
            self._upload = Upload(bucket, self._key, self._headers)
        self._upload.send(part)

    def _end(self, bucket: Bucket) -> None:
        if self._upload is None:
            bucket.put(self._key, bytes(self._held), self._headers, if_absent=False)
            return
        self._upload.send(bytes(self._held))
        self._upload.complete()
