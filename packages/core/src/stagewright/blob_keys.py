import re
from typing import Final

from stagewright.errors import InvalidBlobKeyError

__all__ = ["require_blob_key"]

_LONGEST: Final = 900
_MOST_BYTES: Final = 2_600
"""Of UTF-8; an index of PostgreSQL has room for little more."""

_REFUSED: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def require_blob_key(key: str) -> None:
    """Refuse what `BlobStore` says is no key.

    Raises:
        InvalidBlobKeyError: If it is empty, too long, or has a character that no key has.
    """
    if not key:
        raise InvalidBlobKeyError(key, "it is empty")
    if len(key) > _LONGEST:
        raise InvalidBlobKeyError(key, f"it has {len(key)} characters, and {_LONGEST} is the most")
    found = _REFUSED.search(key)
    if found is not None:
        what = "a lone surrogate" if found[0] >= "\ud800" else "a control character"
        raise InvalidBlobKeyError(key, f"it has {what}, {found[0]!r}, at position {found.start()}")
    size = len(key.encode())
    if size > _MOST_BYTES:
        raise InvalidBlobKeyError(key, f"it has {size} bytes of UTF-8, and {_MOST_BYTES} is the most")
