"""How keys of blobs are names of objects below a prefix in a bucket."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from stagewright.blob_keys import require_blob_key
from stagewright.errors import BlobNotFoundError, InvalidBlobKeyError

__all__ = ["ObjectNames"]

_MOST_BYTES: Final = 1_024
"""Of UTF-8: what S3 and Cloud Storage take as a name."""


@dataclass(frozen=True, slots=True)
class ObjectNames:
    """Names of objects out of keys: the prefix, a slash, and the key as it is.

    Attributes:
        prefix: Empty for keys that are names themselves.
        refused: Names that the bucket doesn't take, whatever the reason.
    """

    prefix: str
    refused: Collection[str] = ()

    @property
    def start(self) -> str:
        """What every name begins with."""
        return f"{self.prefix}/" if self.prefix else ""

    def of(self, key: str) -> str:
        """The name for a key.

        Raises:
            InvalidBlobKeyError: If it is no key, or its name would be longer than a bucket takes.
        """
        require_blob_key(key)
        name = f"{self.start}{key}"
        size = len(name.encode())
        if size > _MOST_BYTES:
            problem = (
                f"with the store's prefix it has {size} bytes of UTF-8, and a bucket takes {_MOST_BYTES}"
            )
            raise InvalidBlobKeyError(key, problem)
        if name in self.refused:
            raise InvalidBlobKeyError(key, "a bucket has no object of this name; give the store a prefix")
        return name

    def existing(self, key: str) -> str:
        """The name of a blob that is to be read.

        Raises:
            BlobNotFoundError: If there can't be one, because this is no key.
        """
        try:
            return self.of(key)
        except InvalidBlobKeyError as error:
            raise BlobNotFoundError(key) from error

    def that_may_exist(self, keys: Collection[str]) -> list[str]:
        """The names of those that are keys, in order and each once."""
        names: set[str] = set()
        for key in keys:
            try:
                names.add(self.of(key))
            except InvalidBlobKeyError:
                continue
        return sorted(names)

    def key(self, name: str) -> str:
        """The key that has a name."""
        return name.removeprefix(self.start)
