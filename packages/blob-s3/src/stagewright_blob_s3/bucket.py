"""One bucket, by calls that block: whole objects, pages of names, and ranges."""

import re
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Any, Final, TypeVar
from uuid import uuid4

from botocore.exceptions import ClientError  # type: ignore[import-untyped]  # it has no types of its own

from stagewright.bucket_urls import BucketUrl
from stagewright.errors import BlobStoreUnavailableError, StagewrightError
from stagewright.object_names import ObjectNames
from stagewright_blob_s3.client import Answer, WholeClient
from stagewright_blob_s3.failures import BROKEN_OFF, Doing, code_of, refused_by_code, status_of
from stagewright_blob_s3.settings import S3Settings

__all__ = ["DELETED_AT_ONCE", "WRITER", "Bucket", "Found", "crc32_text"]

R = TypeVar("R")

DELETED_AT_ONCE: Final = 1_000
WRITER: Final = "stagewright-writer"
"""Metadata by which a writer knows its own object again."""

_NO_XML: Final = re.compile(r"[\ufffe\uffff]")
_SECONDS_BETWEEN: Final = 0.05
_SHOWN: Final = 80


@dataclass(frozen=True, slots=True)
class Found:
    """An object that is there.

    Attributes:
        size: Its bytes.
        etag: Which of the objects that had this name it is.
        crc32: The checksum of all of it, in base64; None where there is none.
    """

    size: int
    etag: str
    crc32: str | None


class Bucket:
    """A bucket and the prefix in it that belongs to a store.

    Attributes:
        client: Boto3's.
        credentials: What the client signs with; None where there are none.
        settings: How it is reached.
        place: Which bucket.
        names: The names for keys.
    """

    def __init__(
        self,
        client: WholeClient,
        credentials: Any,  # Any: botocore has no types
        settings: S3Settings,
        place: BucketUrl,
        names: ObjectNames,
    ) -> None:
        self.client = client
        self.credentials = credentials
        self.settings = settings
        self.place = place
        self.names = names

    def doing(self, what: str, key: str | None = None, *, must_exist: bool = False) -> Doing:
        """What errors say of a call."""
        shown = "" if key is None else f" the blob {key[:_SHOWN]!r}{'…' * (len(key) > _SHOWN)}"
        return Doing(str(self.place), f"{what}{shown}", key if must_exist else None)

    def at(self, key: str) -> Answer:
        """The arguments by which a call names an object."""
        return {"Bucket": self.place.bucket, "Key": self.names.of(key)}

    def put(self, key: str, data: bytes, headers: Answer, *, if_absent: bool) -> bool:
        """Store an object by one call; False if `if_absent` and another one is there."""
        arguments = {**self.at(key), **headers, "Body": data}
        if not if_absent:
            with self.doing("store", key).translated():
                self.client.put_object(**arguments)
            return True
        writer = uuid4().hex
        arguments |= {"IfNoneMatch": "*", "Metadata": {WRITER: writer}}
        with self.doing("store", key).translated():
            for attempt in count(1):
                try:
                    self.client.put_object(**arguments)
                    return True
                except ClientError as error:
                    if status_of(error) == 412:
                        # A call that was repeated because its answer was lost meets its own object.
                        return self.written_by(key) == writer
                    if code_of(error) != "ConditionalRequestConflict" or attempt >= self.settings.attempts:
                        raise
                    time.sleep(_SECONDS_BETWEEN * attempt)
        raise AssertionError("unreachable")

    def written_by(self, key: str) -> str | None:
        """Which writer's object is there, where one has left its name."""
        try:
            return str(self.client.head_object(**self.at(key))["Metadata"].get(WRITER))
        except ClientError as error:
            if status_of(error) == 404:
                return None
            raise

    def get(self, key: str) -> bytes:
        """All of an object."""
        with self.doing("read", key, must_exist=True).translated():
            return self._read_through(lambda: self.client.get_object(**self._existing(key)))

    def has(self, key: str) -> bool:
        """Whether there is an object."""
        return self.written_at(key) is not None

    def written_at(self, key: str) -> datetime | None:
        """When an object was stored, to the second; None if there is none."""
        with self.doing("look for", key).translated():
            try:
                head = self.client.head_object(**self.at(key))
            except ClientError as error:
                if status_of(error) == 404:
                    return None
                raise
        stored: datetime = head["LastModified"]
        return stored.astimezone(UTC)

    def find(self, key: str) -> Found:
        """What is there, before it is read range by range."""
        with self.doing("read", key, must_exist=True).translated():
            head = self.client.head_object(**self._existing(key), **self._checksum_mode)
        # That of an object in parts is made of the parts' checksums, unless it says otherwise.
        is_whole = head.get("ChecksumType", "FULL_OBJECT") == "FULL_OBJECT" and "-" not in head["ETag"]
        return Found(
            size=head["ContentLength"],
            etag=head["ETag"],
            crc32=head.get("ChecksumCRC32") if is_whole else None,
        )

    def get_range(self, key: str, found: Found, start: int, size: int) -> bytes:
        """Bytes out of the middle of an object that was found."""
        doing = self.doing("read", key, must_exist=True)
        wanted = f"bytes={start}-{start + size - 1}"
        with doing.translated():
            try:
                data = self._read_through(
                    lambda: self.client.get_object(**self._existing(key), Range=wanted, IfMatch=found.etag)
                )
            except ClientError as error:
                if status_of(error) == 412:
                    raise doing.unavailable("it was replaced while it was read; read it again") from error
                raise
        if len(data) != size:
            # Some services send all of an object, whatever range they are asked for.
            raise doing.unavailable(f"{len(data)} bytes came of {size}; read it again")
        return data

    def delete(self, key: str) -> None:
        """Remove an object, if there is one."""
        with self.doing("delete", key).translated():
            self.client.delete_object(**self.at(key))

    def delete_names(self, names: Sequence[str]) -> None:
        """Remove up to `DELETED_AT_ONCE` objects, those that are there."""
        doing = self.doing(f"delete {len(names)} blobs")
        failure: StagewrightError = doing.unavailable("nothing was deleted")
        with doing.translated():
            by_batch = [
                name for name in names if self.settings.batch_deletes and _NO_XML.search(name) is None
            ]
            for name in sorted(set(names) - set(by_batch)):
                self.client.delete_object(Bucket=self.place.bucket, Key=name)
            for _ in range(self.settings.attempts):
                if not by_batch:
                    return
                by_batch, failure = self._delete_batch(by_batch)
            raise failure

    def pages(self, prefix: str) -> Iterator[list[str]]:
        """The keys that begin with a prefix, in ascending order, by as many as an answer has."""
        arguments: Answer = {"Bucket": self.place.bucket, "Prefix": f"{self.names.start}{prefix}"}
        doing = self.doing(f"list blobs by {prefix[:_SHOWN]!r}")
        while True:
            with doing.translated():
                page = self.client.list_objects_v2(**arguments)
            yield [self.names.key(found["Key"]) for found in page.get("Contents", ())]
            if not page.get("IsTruncated"):
                return
            if not page.get("NextContinuationToken"):
                raise doing.unavailable("the listing was cut off without saying where it goes on")
            arguments["ContinuationToken"] = page["NextContinuationToken"]

    def check(self) -> None:
        """Ask for something, to learn whether the bucket is there and may be listed."""
        with self.doing("be opened").translated():
            self.client.list_objects_v2(Bucket=self.place.bucket, Prefix=self.names.start, MaxKeys=1)

    @property
    def _checksum_mode(self) -> Answer:
        return {"ChecksumMode": "ENABLED"} if self.settings.checksums == "when_supported" else {}

    def _existing(self, key: str) -> Answer:
        return {"Bucket": self.place.bucket, "Key": self.names.existing(key)}

    def _read_through(self, ask: Callable[[], Answer]) -> bytes:
        """The body of an answer, asked for again where it breaks off, as botocore does up to the first byte only."""
        for attempt in count(1):
            body = ask()["Body"]
            try:
                return bytes(body.read())
            except BROKEN_OFF:
                if attempt >= self.settings.attempts:
                    raise
                time.sleep(_SECONDS_BETWEEN * attempt)
            finally:
                body.close()
        raise AssertionError("unreachable")

    def _delete_batch(self, names: Sequence[str]) -> tuple[list[str], StagewrightError]:
        """The names that are worth another try, and why they weren't deleted."""
        wanted = {"Objects": [{"Key": name} for name in names], "Quiet": True}
        answer = self.client.delete_objects(Bucket=self.place.bucket, Delete=wanted)
        again: list[str] = []
        doing = self.doing(f"delete {len(names)} blobs")
        failure: StagewrightError = doing.unavailable("nothing was deleted")
        for error in answer.get("Errors", ()):
            code, name = str(error.get("Code", "")), str(error.get("Key", ""))
            if code == "NoSuchKey":
                continue
            problem = f"{self.names.key(name)[:_SHOWN]!r}: {code}: {error.get('Message', '')}"
            failure = refused_by_code(doing, code, 0, problem)
            if not isinstance(failure, BlobStoreUnavailableError):
                raise failure
            again.append(name)
        return again, failure


def crc32_text(checksum: int) -> str:
    """A CRC32 as S3 writes it."""
    return b64encode(checksum.to_bytes(4, "big")).decode()
