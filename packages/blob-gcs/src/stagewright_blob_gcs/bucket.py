"""One bucket of Cloud Storage, by calls that block: whole objects, pages of names, and ranges."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

from google.api_core.exceptions import NotFound, PreconditionFailed

from stagewright.bucket_urls import BucketUrl
from stagewright.object_names import ObjectNames
from stagewright_blob_gcs.client import calling
from stagewright_blob_gcs.failures import Doing
from stagewright_blob_gcs.settings import GcsSettings

__all__ = ["DEFAULT_TYPE", "Bucket", "Found"]

DEFAULT_TYPE: Final = "application/octet-stream"
_WRITER: Final = "stagewright-writer"
"""Metadata by which a writer knows its own object again."""

_WORTH_A_LOOK: Final = 8 << 20
"""Bytes above which it is asked whether a blob is there before they are sent in vain."""

_PAGE: Final = 1_000
_SHOWN: Final = 80


@dataclass(frozen=True, slots=True)
class Found:
    """An object that is there.

    Attributes:
        size: Its bytes.
        generation: Which of the objects that had this name it is.
        crc32c: The checksum of all of it, in base64; None where there is none.
    """

    size: int
    generation: int
    crc32c: str | None


class Bucket:
    """A bucket and the prefix in it that belongs to a store.

    Attributes:
        client: Google's.
        credentials: What the client signs with.
        settings: How it is reached.
        place: Which bucket.
        names: The names for keys.
    """

    def __init__(
        self,
        client: Any,  # Any: Google's libraries have few types
        credentials: Any,
        settings: GcsSettings,
        place: BucketUrl,
        names: ObjectNames,
    ) -> None:
        self.client = client
        self.credentials = credentials
        self.settings = settings
        self.place = place
        self.names = names
        self.calling = calling(settings)
        self._bucket = client.bucket(place.bucket)

    def doing(self, what: str, key: str | None = None, *, must_exist: bool = False) -> Doing:
        """What errors say of a call."""
        shown = "" if key is None else f" the blob {key[:_SHOWN]!r}{'…' * (len(key) > _SHOWN)}"
        return Doing(str(self.place), f"{what}{shown}", key if must_exist else None)

    def blob(self, key: str) -> Any:  # Any: as above
        """Google's object for a blob, with parts of the size that is set; nothing is sent."""
        return self._bucket.blob(self.names.of(key), chunk_size=self.settings.part_size)

    def put(self, key: str, data: bytes, content_type: str | None, *, if_absent: bool) -> bool:
        """Store an object; False if `if_absent` and another one is there."""
        if if_absent and len(data) > _WORTH_A_LOOK and self.has(key):
            return False
        blob, writer = self.blob(key), uuid4().hex
        condition = {"if_generation_match": 0} if if_absent else {}
        if if_absent:
            blob.metadata = {_WRITER: writer}
        with self.doing("store", key).translated():
            try:
                blob.upload_from_string(
                    data, content_type or DEFAULT_TYPE, checksum="crc32c", **condition, **self.calling
                )
            except PreconditionFailed:
                # A call that was repeated because its answer was lost meets its own object.
                found = self._bucket.get_blob(blob.name, **self.calling)
                return found is not None and (found.metadata or {}).get(_WRITER) == writer
            return True

    def get(self, key: str) -> bytes:
        """All of an object."""
        with self.doing("read", key, must_exist=True).translated():
            blob = self._bucket.blob(self.names.existing(key))
            return bytes(blob.download_as_bytes(raw_download=True, checksum="crc32c", **self.calling))

    def has(self, key: str) -> bool:
        """Whether there is an object."""
        with self.doing("look for", key).translated():
            return bool(self.blob(key).exists(**self.calling))

    def written_at(self, key: str) -> datetime | None:
        """When an object was stored; None if there is none."""
        with self.doing("look for", key).translated():
            found = self._bucket.get_blob(self.names.of(key), **self.calling)
        if found is None:
            return None
        stored: datetime = found.time_created
        return stored.astimezone(UTC)

    def find(self, key: str) -> Found:
        """What is there, before it is read range by range."""
        with self.doing("read", key, must_exist=True).translated():
            blob = self._bucket.blob(self.names.existing(key))
            blob.reload(**self.calling)
        return Found(size=blob.size, generation=blob.generation, crc32c=blob.crc32c)

    def get_range(self, key: str, found: Found, start: int, size: int) -> bytes:
        """Bytes out of the middle of an object that was found."""
        doing = self.doing("read", key, must_exist=True)
        with doing.translated():
            blob = self._bucket.blob(self.names.existing(key))
            try:
                data = blob.download_as_bytes(
                    start=start,
                    end=start + size - 1,
                    raw_download=True,
                    checksum=None,
                    if_generation_match=found.generation,
                    **self.calling,
                )
            except PreconditionFailed as error:
                raise doing.unavailable("it was replaced while it was read; read it again") from error
        if len(data) != size:
            raise doing.unavailable(f"{len(data)} bytes came of {size}; read it again")
        return bytes(data)

    def delete(self, name: str) -> None:
        """Remove an object by its name, if there is one."""
        with self.doing("delete", self.names.key(name)).translated():
            try:
                self._bucket.blob(name).delete(**self.calling)
            except NotFound:
                return

    def pages(self, prefix: str) -> Iterator[list[str]]:
        """The keys that begin with a prefix, in ascending order, by as many as an answer has."""
        with self.doing(f"list blobs by {prefix[:_SHOWN]!r}").translated():
            listing = self.client.list_blobs(
                self._bucket,
                prefix=f"{self.names.start}{prefix}",
                page_size=_PAGE,
                fields="items(name),nextPageToken",
                **self.calling,
            )
            for page in listing.pages:
                yield [self.names.key(blob.name) for blob in page]

    def check(self) -> None:
        """Ask for something, to learn whether the bucket is there and may be listed."""
        with self.doing("be opened").translated():
            listing = self.client.list_blobs(
                self._bucket, prefix=self.names.start, max_results=1, fields="items(name)", **self.calling
            )
            next(listing.pages, None)
