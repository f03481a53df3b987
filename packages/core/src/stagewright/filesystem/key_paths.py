"""Where the blob of a key lies below a folder, on any file system.

A key's parts between slashes are folders, its last part is a file. Names are written in small letters, digits and
punctuation that every file system keeps apart and none reserves, and begin with a mark that says what they are: `+` for
a folder, `=` for a blob, `~` for a blob whose key has no room in names, which stands in the file itself.
"""

import hashlib
import re
from typing import Final

__all__ = ["BLOB", "FOLDER", "LONG_KEY", "folders_of", "name_in", "path_of"]

FOLDER: Final = "+"
BLOB: Final = "="
LONG_KEY: Final = "~"

_LONGEST_NAME: Final = 240
_LONGEST_PATH: Final = 1_400
"""Of folders below the root, so that the root has room for some 2,000 more on systems that take 4,096."""

_KEPT: Final = re.compile(r"[a-z0-9_.%-]")
_WRITTEN: Final = re.compile(r"\^([a-z])|!([0-9a-f]{1,6});|([a-z0-9_.%-])")


def path_of(key: str) -> tuple[str, ...]:
    """The names of the folders that the blob of a key lies in, and of its file."""
    *folders, last = key.split("/")
    parts = folders_of(folders)
    name = BLOB + _written(last)
    if len(parts) == len(folders) and len(name) <= _LONGEST_NAME:
        return (*parts, name)
    digest = hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()
    return (*parts, LONG_KEY + digest)


def folders_of(names: list[str]) -> tuple[str, ...]:
    """The folders for the first parts of a key, as many as there is room for."""
    parts: list[str] = []
    room = _LONGEST_PATH
    for name in names:
        folder = FOLDER + _written(name)
        room -= len(folder) + 1
        if len(folder) > _LONGEST_NAME or room < 0:
            break
        parts.append(folder)
    return tuple(parts)


def name_in(written: str) -> str | None:
    """The part of a key that the name of a file or folder stands for, without its mark; None if it is no such name."""
    letters: list[str] = []
    position = 0
    while position < len(written):
        found = _WRITTEN.match(written, position)
        if found is None:
            return None
        capital, code, kept = found.groups()
        if code is not None and int(code, 16) > 0x10FFFF:
            return None
        letters.append(capital.upper() if capital else chr(int(code, 16)) if code else kept)
        position = found.end()
    name = "".join(letters)
    # What could be written in two ways would be two files of one key.
    return name if _written(name) == written else None


def _written(name: str) -> str:
    text = "".join(_letter(letter) for letter in name)
    # Some systems drop a dot at the end.
    return f"{text[:-1]}!2e;" if text.endswith(".") else text


def _letter(letter: str) -> str:
    if _KEPT.fullmatch(letter):
        return letter
    return f"^{letter.lower()}" if "A" <= letter <= "Z" else f"!{ord(letter):x};"
