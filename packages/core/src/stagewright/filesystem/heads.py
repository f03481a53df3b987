"""The first line of a blob's file, which says whose bytes follow."""

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from stagewright.errors import DamagedBlobError

__all__ = ["OPEN_FLAGS", "BlobHead", "open_blob_file"]

OPEN_FLAGS: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""No link is followed, no pipe waited for, and no byte changed, where a system could do that."""

_LONGEST: Final = 1 << 20
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class BlobHead:
    """What stands before a blob's bytes.

    Attributes:
        key: The blob's key.
        content_type: What its bytes are, if its writer said so.
    """

    key: str
    content_type: str | None

    def line(self) -> bytes:
        """The line, with its end."""
        head = {"stagewright_blob": _VERSION, "content_type": self.content_type, "key": self.key}
        return json.dumps(head).encode() + b"\n"


def open_blob_file(path: Path, key: str) -> tuple[BinaryIO, BlobHead]:
    """Open the file of a blob, where its bytes begin.

    Args:
        path: The file.
        key: How it is called in errors.

    Raises:
        FileNotFoundError, NotADirectoryError: If there is none.
        DamagedBlobError: If what is there is no blob.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | OPEN_FLAGS)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        if path.is_symlink():
            raise DamagedBlobError(key, f"{path} is a symbolic link") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DamagedBlobError(key, f"{path} is no file")
    file = os.fdopen(descriptor, "rb")
    try:
        return file, _head_of(file, path, key)
    except BaseException:
        file.close()
        raise


def _head_of(file: BinaryIO, path: Path, key: str) -> BlobHead:
    line = file.readline(_LONGEST)
    try:
        head: object = json.loads(line)
    except ValueError:
        head = None
    if not line.endswith(b"\n") or not isinstance(head, dict) or head.get("stagewright_blob") != _VERSION:
        raise DamagedBlobError(key, f"the first line of {path} is not that of a blob")
    return BlobHead(str(head.get("key")), head.get("content_type"))
