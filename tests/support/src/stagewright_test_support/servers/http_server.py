"""A private server that speaks HTTP on a loopback port and keeps what it has in memory."""

import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias

from stagewright_test_support.servers.errors import ServerError
from stagewright_test_support.servers.launch import free_port, last_lines, launch
from stagewright_test_support.servers.process_table import end_family
from stagewright_test_support.servers.server_folder import ServerFolder

__all__ = ["Command", "HttpServer"]

Command: TypeAlias = Callable[[Path, int], tuple[Sequence[str], Mapping[str, str]]]
"""The program with its arguments, one of which names the folder, and its environment, for a folder and a port."""

_PORTS_TO_TRY = 5
_SECONDS_TO_START = 60.0


class HttpServer:
    """A server of this process; it ends with this process at the latest.

    Every method blocks; in a coroutine, call it through `asyncio.to_thread`.
    """

    def __init__(self, kind: str, folder: ServerFolder, command: Command, ready: str) -> None:
        self._kind = kind
        self._folder = folder
        self._command = command
        self._ready = ready
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def run(cls, kind: str, command: Command, *, ready: str, root: Path | None = None) -> Self:
        """Returns when it answers.

        Args:
            kind: What it is, for errors.
            command: What to run.
            ready: The path that it answers with a success once it is ready.
            root: The folder to make its folder in; usually where temporary files go.

        Raises:
            ServerError: It didn't start; the last lines of its log are told.
        """
        server = cls(kind, ServerFolder.create(kind, None, root), command, ready)
        try:
            server._run_on_a_free_port()
        except BaseException:
            server.stop()
            raise
        return server

    @property
    def address(self) -> str:
        """Its URL, `http://127.0.0.1:PORT`; a restart keeps it."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def port(self) -> int:
        """Where it listens on 127.0.0.1."""
        return self._port

    @property
    def log(self) -> Path:
        """The file with what it wrote, until `stop`."""
        return self._folder.log

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Ends it at once; what it had is gone."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Ends it and starts it again, empty, at the same place.

        Raises:
            ServerError: It didn't start; the last lines of its log are told.
        """
        self._end(signal.SIGTERM)
        self._run()

    def stop(self) -> None:
        """Ends it and removes its folder; again, it does nothing."""
        self._end(signal.SIGKILL)
        self._folder.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            end_family(self._process.pid, how)
            self._process.wait()
        self._process = None

    def _run_on_a_free_port(self) -> None:
        for left in reversed(range(_PORTS_TO_TRY)):
            self._port = free_port()
            try:
                self._run()
            except ServerError as error:
                if left == 0 or "address already in use" not in error.log.lower():
                    raise
                self._folder.log.unlink()
            else:
                return

    def _run(self) -> None:
        command, environment = self._command(self._folder.path, self._port)
        self._process = launch(
            command,
            log=self._folder.log,
            account=None,
            farewell=signal.SIGKILL,
            environment=environment,
        )
        self._folder.remember(self._process.pid)
        deadline = time.monotonic() + _SECONDS_TO_START
        while not self._answers():
            ended = self._process.poll()
            if ended is not None:
                self._process = None
                raise self._failure(f"it ended with {ended} while it started")
            if time.monotonic() > deadline:
                raise self._failure(f"it answered nothing within {_SECONDS_TO_START:g} s")
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.address}{self._ready}", timeout=5):
                return True
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    def _failure(self, reason: str) -> ServerError:
        return ServerError(self._kind, reason, last_lines(self._folder.log))
