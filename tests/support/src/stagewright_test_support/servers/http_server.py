"""A private server that speaks HTTP on a loopback port and keeps what it has in memory."""

import signal
import urllib.error
import urllib.request
from abc import abstractmethod
from pathlib import Path
from typing import ClassVar, Self

from stagewright_test_support.servers.errors import ServerError
from stagewright_test_support.servers.loopback_server import LoopbackServer

__all__ = ["HttpServer"]


class HttpServer(LoopbackServer):
    """A server of this process that is empty after each start; it runs as whoever runs the tests."""

    _farewell = signal.SIGKILL
    _to_restart = signal.SIGKILL
    _to_stop = signal.SIGKILL
    _name: ClassVar[str]
    """How `STAGEWRIGHT_REQUIRE` and errors call it."""
    _answered: ClassVar[str]
    """The path that it answers with a success once it is ready, and no other program does."""

    @classmethod
    def start(cls, *, root: Path | None = None) -> Self:
        """Returns when it answers.

        Args:
            root: The folder to make its folder in; usually where temporary files go.

        Raises:
            ServerError: It can't be had or didn't start; the last lines of its log are told.
        """
        reason = cls.why_missing()
        if reason is not None:
            raise ServerError(cls._name, reason)
        return cls(cls._name, None, root)._started()

    @classmethod
    @abstractmethod
    def why_missing(cls) -> str | None:
        """Why it can't be had here, or `None`."""

    @property
    def address(self) -> str:
        """Its URL, `http://127.0.0.1:PORT`; a restart keeps it."""
        return f"http://127.0.0.1:{self.port}"

    def _environment(self) -> dict[str, str]:
        return {"HOME": str(self._folder.path), "TMPDIR": str(self._folder.path)}

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.address}{self._answered}", timeout=5):
                return self.is_running
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False
