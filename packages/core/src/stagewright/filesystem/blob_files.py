"""Blobs as files: what blocks, for threads."""

import heapq
import os
import stat
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final
from uuid import uuid4

from stagewright.errors import BlobNotFoundError, DamagedBlobError, OutcomeUnknownError
from stagewright.filesystem.heads import OPEN_FLAGS, BlobHead, open_blob_file
from stagewright.filesystem.key_paths import BLOB, FOLDER, LONG_KEY, folders_of, name_in, path_of

__all__ = ["BlobFiles", "UnfinishedBlob"]

_BLOBS: Final = "blobs"
_INCOMING: Final = "incoming"
_LEFT_OVER: Final = 86_400
"""Seconds after which a file that nobody has written to belongs to a process that was lost."""

_TRIES: Final = 100
"""A folder may be removed as empty by somebody else just before a blob comes into it."""


class BlobFiles:
    """The files below one folder: blobs in one part of it, and what is on its way to become one in another.

    Args:
        root: The folder, which is made when the first blob comes.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._swept = False

    def begin(self, key: str, content_type: str | None) -> "UnfinishedBlob":
        """A new file, of which nobody sees anything before it is published."""
        root = self._root.resolve()
        incoming = root / _INCOMING
        made = [folder for folder in (root, *root.parents) if not folder.exists()]
        incoming.mkdir(parents=True, exist_ok=True)
        for folder in made:
            with suppress(PermissionError):  # that of a folder in which names may be made and not read
                _sync_folder(folder.parent)
        _require_no_links(incoming, key)
        if not self._swept:
            self._swept = True
            _remove_left_over(incoming)
        return UnfinishedBlob(self, key, content_type, incoming / f"{uuid4().hex}.part")

    def open(self, key: str) -> BinaryIO:
        """The file of a blob, where its bytes begin.

        Raises:
            BlobNotFoundError: If there is none.
            DamagedBlobError: If what is there is no blob of that key.
        """
        path = self.path(key)
        try:
            file, head = open_blob_file(path, key)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise BlobNotFoundError(key) from error
        if head.key != key:
            file.close()
            raise DamagedBlobError(key, f"the file {path} is that of another key, {head.key[:80]!r}")
        return file

    def written_at(self, key: str) -> datetime | None:
        """When the blob was written; None if there is none."""
        try:
            found = self.path(key).lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return datetime.fromtimestamp(found.st_mtime, UTC) if stat.S_ISREG(found.st_mode) else None

    def delete(self, keys: Collection[str]) -> None:
        """Remove blobs, and the folders that have become empty; nothing happens for those that aren't there."""
        blobs = self._root.resolve() / _BLOBS
        folders: set[Path] = set()
        for key in keys:
            path = self.path(key)
            with suppress(FileNotFoundError, NotADirectoryError):
                path.unlink()
                folders.add(path.parent)
        for folder in folders:
            with suppress(FileNotFoundError):
                _sync_folder(folder)
        for folder in folders:
            # None is removed that somebody has put a blob into meanwhile.
            with suppress(OSError):
                while folder != blobs:
                    folder.rmdir()
                    folder = folder.parent

    def walk(self, prefix: str) -> Iterator[str]:
        """The keys that start with a prefix, in ascending order; a folder is looked into when its keys' turn comes."""
        *names, rest = prefix.split("/")
        folders = folders_of(names)
        base = "".join(f"{name}/" for name in names[: len(folders)])
        # Where the prefix itself has no room in names, neither has any of its keys.
        start = rest if len(folders) == len(names) else None
        top = (self._root.resolve() / _BLOBS).joinpath(*folders)
        _require_no_links(top, prefix)
        long: list[str] = []
        open_folders = [_entries(top, base, start, prefix, long)]
        while open_folders:
            text, folder = next(open_folders[-1], ("", None))
            if folder is not None:
                open_folders.append(_entries(folder, text, "", prefix, long))
            elif text:
                while long and long[0] < text:
                    yield heapq.heappop(long)
                yield text
            else:
                open_folders.pop()
        while long:
            yield heapq.heappop(long)

    def path(self, key: str) -> Path:
        """Where the blob of a key lies, whether there is one or not.

        Raises:
            DamagedBlobError: If a folder on the way there leads elsewhere.
        """
        path = (self._root.resolve() / _BLOBS).joinpath(*path_of(key))
        _require_no_links(path.parent, key)
        return path

    def sync_folders(self, path: Path) -> None:
        """Have the names of a file and of all folders down to it outlast a loss of power."""
        root = self._root.resolve()
        for folder in path.parents:
            _sync_folder(folder)
            if folder == root:
                return


class UnfinishedBlob:
    """A blob that is being written.

    Args:
        files: Where it belongs.
        key: Its key.
        content_type: What its bytes are.
        path: Where it is written meanwhile.
    """

    def __init__(self, files: BlobFiles, key: str, content_type: str | None, path: Path) -> None:
        self._files = files
        self._key = key
        self._path = path
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | OPEN_FLAGS
        self._file = os.fdopen(os.open(path, flags, 0o666), "wb")
        self._file.write(BlobHead(key, content_type).line())

    def write(self, data: bytes) -> None:
        """Append bytes."""
        self._file.write(data)

    def publish(self, *, if_absent: bool = False) -> bool:
        """Let it appear under its key, whole and to stay.

        Returns:
            False if `if_absent` and there is a blob already; this one is gone then.

        Raises:
            OutcomeUnknownError: If it has appeared, and may be lost with the machine's power.
        """
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        path = self._files.path(self._key)
        if not self._place(path, if_absent=if_absent):
            self.abandon()
            return False
        try:
            self._files.sync_folders(path)
        except OSError as error:
            raise OutcomeUnknownError(f"the blob {self._key!r} is there, and {error}") from error
        self.abandon()
        return True

    def abandon(self) -> None:
        """Remove what is left of it on its way; what was published stays."""
        with suppress(OSError):  # what could not be written before can't be now
            self._file.close()
        self._path.unlink(missing_ok=True)

    def _place(self, path: Path, *, if_absent: bool) -> bool:
        for left in reversed(range(_TRIES)):
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                _require_no_links(path.parent, self._key)
                if not if_absent:
                    self._path.replace(path)
                    return True
                return self._place_as_first(path)
            except (FileNotFoundError, FileExistsError):
                # The latter is what `mkdir` says of a folder that was there, and is gone when it is looked at.
                if not left:
                    raise
        return False

    def _place_as_first(self, path: Path) -> bool:
        try:
            # A link is made for one of several writers, and a whole file is seen or none.
            path.hardlink_to(self._path)
        except FileExistsError:
            return False
        return True


def _entries(
    folder: Path, base: str, start: str | None, prefix: str, long: list[str]
) -> Iterator[tuple[str, Path | None]]:
    """What is in a folder, in the order of its keys: each blob's key, and each folder with what its keys start with.

    Args:
        folder: The folder.
        base: What the keys of everything in it start with.
        start: What names in it have to start with; None for keys that have no room in names alone.
        prefix: What keys have to start with.
        long: Gets the keys that have no room in names.
    """
    found: list[tuple[str, Path | None]] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                mark, name = entry.name[:1], name_in(entry.name[1:])
                if mark == LONG_KEY and entry.is_file(follow_symlinks=False):
                    _note_long_key(Path(entry.path), prefix, long)
                elif start is None or name is None or not name.startswith(start):
                    continue
                elif mark == BLOB and entry.is_file(follow_symlinks=False):
                    found.append((base + name, None))
                elif mark == FOLDER and entry.is_dir(follow_symlinks=False):
                    found.append((f"{base}{name}/", Path(entry.path)))
    except (FileNotFoundError, NotADirectoryError):
        pass  # removed since somebody saw it, or never made
    found.sort(key=lambda each: each[0])
    return iter(found)


def _note_long_key(path: Path, prefix: str, long: list[str]) -> None:
    # Deleted since its folder was looked into, or somebody else's.
    with suppress(FileNotFoundError, DamagedBlobError):
        file, head = open_blob_file(path, str(path))
        file.close()
        if head.key.startswith(prefix) and path.name == path_of(head.key)[-1]:
            heapq.heappush(long, head.key)


def _require_no_links(folder: Path, key: str) -> None:
    try:
        real = folder.resolve()
    except RuntimeError as error:  # links in a circle
        raise DamagedBlobError(key, f"the folder {folder} leads nowhere: {error}") from error
    if real != folder:
        raise DamagedBlobError(
            key, f"the folder {folder} leads to {real}; blobs are kept in none but their own"
        )


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":  # folders can't be opened there, and names are kept by the file system's journal
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_left_over(incoming: Path) -> None:
    before = time.time() - _LEFT_OVER
    for path in incoming.glob("*.part"):
        with suppress(FileNotFoundError):
            if path.lstat().st_mtime < before:
                path.unlink()
