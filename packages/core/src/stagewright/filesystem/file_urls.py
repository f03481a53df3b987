"""Which folder a `file:` URL or a path names."""

import os
import stat
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

from stagewright.errors import InvalidSettingError

__all__ = ["folder_named"]

_SETTING: Final = "blob_store"
_EXAMPLE: Final = "such as file:///var/lib/app/blobs"


def folder_named(place: str | os.PathLike[str]) -> Path:
    """The absolute path of the folder.

    Raises:
        InvalidSettingError: If it names none.
    """
    given: object = place
    if not isinstance(given, str | os.PathLike):
        raise InvalidSettingError(_SETTING, given, f"must be the path of a folder, or a URL {_EXAMPLE}")
    path = os.fspath(given)
    if not isinstance(path, str):
        raise InvalidSettingError(_SETTING, path, f"must be text: the path of a folder, or a URL {_EXAMPLE}")
    if path.lower().startswith("file:"):
        path = _path_in(path)
    if "\0" in path or not path.strip():
        raise InvalidSettingError(_SETTING, str(place), f"names no folder; write a path, or a URL {_EXAMPLE}")
    folder = Path(path).absolute()
    if folder == folder.parent:
        problem = f"names the root of the file system; give blobs a folder of their own, {_EXAMPLE}"
        raise InvalidSettingError(_SETTING, str(place), problem)
    _require_room_for(folder, str(place))
    return folder


def _require_room_for(folder: Path, given: str) -> None:
    for path in (folder, *folder.parents):
        try:
            is_folder = stat.S_ISDIR(path.stat().st_mode)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return  # Whether it can be used shows when it is.
        if not is_folder:
            which = "is a file" if path == folder else f"lies in {str(path)!r}, which is a file"
            raise InvalidSettingError(_SETTING, given, f"{which}; name a folder, {_EXAMPLE}")
        return


def _path_in(url: str) -> str:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        problem = f"has {parts.netloc!r} in the place of a host; a folder's path is absolute, {_EXAMPLE}"
        raise InvalidSettingError(_SETTING, url, problem)
    if parts.query or parts.fragment or "?" in url or "#" in url:
        problem = (
            "has a query or a fragment, and a folder has none; write '?' in its name as %3F and '#' as %23"
        )
        raise InvalidSettingError(_SETTING, url, problem)
    if not parts.path.startswith("/"):
        raise InvalidSettingError(_SETTING, url, f"is relative; a folder's path is absolute, {_EXAMPLE}")
    return url2pathname(parts.path)
