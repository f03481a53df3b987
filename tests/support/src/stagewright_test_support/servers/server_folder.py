"""The folder of one server, and the sweep of those that dead processes left behind."""

import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Self

from stagewright_test_support.servers.account import Account, is_reachable
from stagewright_test_support.servers.errors import ServerError
from stagewright_test_support.servers.process_table import command_line, end_family

__all__ = ["ServerFolder", "sweep"]

_PREFIX = "stagewright-server-"
_LOCK = "owner.lock"
_PID = "server.pid"


class ServerFolder:
    """A folder that is locked for as long as the process that made it lives.

    Attributes:
        path: The folder; others may read it.
        log: The file for what the server writes.
    """

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self.log = path / "server.log"
        self._lock: int | None = lock

    @classmethod
    def create(cls, server: str, account: Account | None, root: Path | None = None) -> Self:
        """Makes the folder under `root`, or else where temporary files go, after a sweep of that place.

        Raises:
            ServerError: The account the server runs as can't pass there.
        """
        places = [root] if root is not None else [Path(tempfile.gettempdir()), Path("/tmp")]
        place = next((place.resolve() for place in places if is_reachable(place.resolve(), account)), None)
        if place is None:
            raise ServerError(server, f"its account can't pass through {places[0]}")
        sweep(place)
        # The name that a sweep looks for comes with the lock, not before.
        new = Path(tempfile.mkdtemp(prefix=".new-", dir=place))
        lock = os.open(new / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        _take(lock)
        new.chmod(0o755)
        path = place / f"{_PREFIX}{server}-{new.name.removeprefix('.new-')}"
        new.rename(path)
        return cls(path, lock)

    def give(self, name: str, account: Account | None) -> Path:
        """Makes a folder inside that belongs to the account alone."""
        folder = self.path / name
        folder.mkdir(mode=0o700)
        if account is not None:
            os.chown(folder, *account)
        return folder

    def remember(self, pid: int) -> None:
        """Notes the server's process, for a later sweep."""
        (self.path / _PID).write_text(str(pid), encoding="utf-8")

    def remove(self) -> None:
        """Removes the folder and opens its lock; again, it does nothing."""
        if self._lock is not None:
            shutil.rmtree(self.path)
            os.close(self._lock)
            self._lock = None


def sweep(place: Path) -> list[Path]:
    """Removes the folders in `place` whose owner is dead, with the server where it still runs."""
    return [folder for folder in sorted(place.glob(f"{_PREFIX}*")) if _sweep_one(folder)]


def _sweep_one(folder: Path) -> bool:
    try:
        if folder.lstat().st_uid != os.geteuid():
            return False
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        _take(lock)
        _end_server_of(folder)
        shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True


def _take(lock: int) -> None:
    import fcntl  # Windows has none, and loads the plugin all the same.

    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _end_server_of(folder: Path) -> None:
    note = folder / _PID
    text = note.read_text(encoding="utf-8").strip() if note.is_file() else ""
    # The number may belong to another process by now; the server's arguments name its folder.
    if text.isdecimal() and str(folder) in command_line(int(text)):
        # Asked to, it gives back its shared memory.
        end_family(int(text), signal.SIGQUIT)
