import re
from typing import Final

from stagewright.errors import InvalidBlobKeyError

__all__ = ["require_blob_key"]

_LONGEST: Final = 900
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
