"""A blob on its way into a bucket in parts: it is there once the last one has come, or never."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from uuid import uuid4

from botocore.exceptions import ClientError  # type: ignore[import-untyped]  # it has no types of its own

from stagewright.errors import StagewrightError
from stagewright_blob_s3.bucket import WRITER, Bucket, crc32_text
from stagewright_blob_s3.client import Answer
from stagewright_blob_s3.failures import code_of, status_of

__all__ = ["Upload", "put_in_parts"]

_MOST_PARTS: Final = 10_000


class Upload:
    """An upload that was begun. Calls block, and one follows the other.

    Attributes:
        is_open: Whether it still has to be completed or aborted.
    """

    def __init__(self, bucket: Bucket, key: str, headers: Answer) -> None:
        self._bucket = bucket
        self._key = key
        self._writer = uuid4().hex
        self._parts: list[Answer] = []
        self._doing = bucket.doing("store", key)
        self._checked: Answer = (
            {"ChecksumAlgorithm": "CRC32"} if bucket.settings.checksums == "when_supported" else {}
        )
        arguments = {**bucket.at(key), **headers, **self._checked, "Metadata": {WRITER: self._writer}}
        with self._doing.translated():
            begun = bucket.client.create_multipart_upload(**arguments)
        self._at: Answer = {**bucket.at(key), "UploadId": begun["UploadId"]}
        self.is_open = True

    def send(self, data: bytes) -> None:
        """Send the next part: of the size that all have, unless it is the last."""
        number = len(self._parts) + 1
        if number > _MOST_PARTS:
            size = self._bucket.settings.part_size
            problem = f"it has more than {_MOST_PARTS:,} parts of part_size={size}; set a larger part_size"
            raise self._doing.refused(problem)
        with self._doing.translated():
            sent = self._bucket.client.upload_part(**self._at, **self._checked, PartNumber=number, Body=data)
        part: Answer = {"PartNumber": number, "ETag": sent["ETag"]}
        if self._checked:
            part["ChecksumCRC32"] = crc32_text(zlib.crc32(data))
        self._parts.append(part)

    def complete(self, *, if_absent: bool = False) -> bool:
        """Let the blob appear; False if `if_absent` and there is another one, and the upload is open still."""
        condition = {"IfNoneMatch": "*"} if if_absent else {}
        with self._doing.translated():
            try:
                self._bucket.client.complete_multipart_upload(
                    **self._at, **condition, MultipartUpload={"Parts": self._parts}
                )
            except ClientError as error:
                lost = code_of(error) == "NoSuchUpload"
                if (lost or status_of(error) == 412) and self._bucket.written_by(self._key) == self._writer:
                    # It was completed before, and the answer was lost.
                    pass
                elif lost:
                    self.is_open = False
                    problem = "somebody has ended the upload, by a rule of the bucket perhaps; write it again"
                    raise self._doing.unavailable(problem) from error
                elif status_of(error) == 412:
                    return False
                else:
                    raise
        self.is_open = False
        return True

    def abort(self) -> None:
        """Forget all parts; after `complete` it does nothing."""
        if not self.is_open:
            return
        with self._doing.translated():
            try:
                self._bucket.client.abort_multipart_upload(**self._at)
            except ClientError as error:
                if code_of(error) != "NoSuchUpload":
                    raise
        self.is_open = False

    @contextmanager
    def aborted_on_error(self) -> Iterator[None]:
        """Forgets all parts when the block raises; where even that fails, the error says so in a note."""
        try:
            yield
        except BaseException as error:
            self.abort_after(error)
            raise

    def abort_after(self, error: BaseException) -> None:
        """Forget all parts because of an error, which stays the one that is raised."""
        try:
            self.abort()
        except StagewrightError as failure:
            error.add_note(f"parts of {self._key!r} are left in the bucket: {failure}")


def put_in_parts(bucket: Bucket, key: str, data: bytes, headers: Answer, *, if_absent: bool) -> bool:
    """Store bytes that are too many for one call; False if `if_absent` and there is a blob."""
    if if_absent and bucket.has(key):
        return False
    upload = Upload(bucket, key, headers)
    size = bucket.settings.part_size
    with upload.aborted_on_error():
        for start in range(0, len(data), size):
            upload.send(data[start : start + size])
        stored = upload.complete(if_absent=if_absent)
    if not stored:
        upload.abort()
    return stored
