"""A large blob that comes by ranges or goes by parts."""

from base64 import b64encode
from typing import Any, Final

import google_crc32c

from stagewright.errors import StagewrightError
from stagewright.vendor_threads import VendorThreads
from stagewright_blob_gcs.bucket import DEFAULT_TYPE, Bucket, Found
from stagewright_blob_gcs.failures import Doing

__all__ = ["Coming", "Going"]

_FORGOTTEN: Final = (404, 410, 499)
"""What the end of an upload is answered: gone already, or ended by its client."""


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
        self._checksum = google_crc32c.Checksum()

    async def fetch(self, start: int, size: int) -> bytes:
        """So many bytes from a place, each time from where the last ones ended.

        Raises:
            BlobStoreUnavailableError: If it can't be had now, was replaced, or differs from what was stored.
        """
        return await self._threads.call(lambda bucket: self._fetch(bucket, start, size))

    def _fetch(self, bucket: Bucket, start: int, size: int) -> bytes:
        data = bucket.get_range(self._key, self._found, start, size)
        self._checksum.update(data)
        is_last = start + size >= self._found.size
        if is_last and self._found.crc32c not in (None, b64encode(self._checksum.digest()).decode()):
            problem = "its bytes don't have the checksum that they were stored with; read it again"
            raise bucket.doing("read", self._key).unavailable(problem)
        return data


class Going:
    """An object that is begun when its first part is sent, and appears with its last.

    Args:
        threads: Where calls block.
        key: The blob.
        content_type: What is stored with it.
    """

    def __init__(self, threads: VendorThreads[Bucket], key: str, content_type: str | None) -> None:
        self._threads = threads
        self._key = key
        self._content_type = content_type
        self._upload: Any = None  # Any: Google's libraries have few types
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
            await self._threads.finish(lambda bucket: self._abort(bucket, error))

    def _send(self, bucket: Bucket, part: bytes) -> None:
        with bucket.doing("store", self._key).translated():
            if self._upload is None:
                self._upload = bucket.blob(self._key).open(
                    "wb", checksum="crc32c", content_type=self._content_type or DEFAULT_TYPE, **bucket.calling
                )
            try:
                self._upload.write(part)
            finally:
                if self._given_up is not None:
                    # Whoever waited for this has gone, and may have seen no upload yet.
                    self._abort(bucket, self._given_up)

    def _complete(self, bucket: Bucket, last: bytes) -> None:
        if self._upload is None:
            bucket.put(self._key, last, self._content_type, if_absent=False)
            return
        with bucket.doing("store", self._key).translated():
            self._upload.write(last)
            self._upload.close()

    def _abort(self, bucket: Bucket, error: BaseException) -> None:
        doing = bucket.doing("forget the beginning of", self._key)
        try:
            with doing.translated():
                self._forget(bucket, doing)
        except StagewrightError as failure:
            error.add_note(f"the bucket keeps the beginning of {self._key!r} for a week: {failure}")
        finally:
            # A file that is open still would end the upload, and let half a blob appear, when it is collected.
            self._upload._buffer.close()

    def _forget(self, bucket: Bucket, doing: Doing) -> None:
        # Google's own way out deletes the address at which uploads begin, and the upload stays.
        begun: tuple[Any, Any] | None = self._upload._upload_and_transport
        if begun is None:
            return
        upload, transport = begun
        if upload.finished or upload.resumable_url is None:
            return
        answer = transport.delete(upload.resumable_url, timeout=bucket.calling["timeout"])
        if answer.status_code not in _FORGOTTEN and not answer.ok:
            raise doing.refused(f"status {answer.status_code}")
