"""What every private server has in common: a folder, a loopback port, and an end with its process."""

import signal
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from stagewright_test_support.servers.account import Account
from stagewright_test_support.servers.errors import ServerError
from stagewright_test_support.servers.launch import free_port, last_lines, launch
from stagewright_test_support.servers.process_table import end_family, kill_family
from stagewright_test_support.servers.server_folder import ServerFolder

__all__ = ["LoopbackServer"]

_PORTS_TO_TRY = 5
_SECONDS_TO_START = 60.0
_SECONDS_TO_STOP = 10.0


class LoopbackServer(ABC):
    """A server of this process, with a folder of its own; it ends with this process at the latest.

    Every method blocks; in a coroutine, call it through `asyncio.to_thread`.

    Args:
        kind: How `STAGEWRIGHT_REQUIRE` and errors call it.
        account: The account it runs as; `None` keeps this process's.
        root: The folder to make its folder in; usually where temporary files go.

    Raises:
        ServerError: The account can't pass through the root.
    """

    _farewell: ClassVar[signal.Signals] = signal.SIGTERM
    """What it is sent when this process ends in whatever way, on Linux."""
    _to_restart: ClassVar[signal.Signals] = signal.SIGTERM
    """What ends it with everything written that is to be kept."""
    _to_stop: ClassVar[signal.Signals] = signal.SIGTERM
    """What ends it when nothing of it is kept."""

    def __init__(self, kind: str, account: Account | None, root: Path | None) -> None:
        self._kind = kind
        self._account = account
        self._folder = ServerFolder.create(kind, account, root)
        self._data = self._folder.path / "data"
        self._port = 0
        self._log_starts_at = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        """Where it listens on 127.0.0.1; a restart keeps it."""
        return self._port

    @property
    def log(self) -> Path:
        """The file with what the server wrote, until `stop`."""
        return self._folder.log

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Ends the server's processes with SIGKILL, as a crash would; the data folder stays for `restart`."""
        # Asked first: the number of one that has ended may be another's by now.
        if self._process is not None and self._process.poll() is None:
            kill_family(self._process.pid)
            self._process.wait()
        self._process = None

    def restart(self) -> None:
        """Starts the server on the same data folder and port, after a `kill` or where it runs.

        Raises:
            ServerError: It didn't start; the last lines of its log are told.
        """
        self._end(self._to_restart)
        self._run()

    def stop(self) -> None:
        """Ends the server and removes its folder; again, it does nothing."""
        self._end(self._to_stop)
        self._folder.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _initialise(self) -> None:
        """Makes the data folder and what else stands before the first start."""
        self._folder.give("data", self._account)

    def _take_port(self, port: int) -> None:
        """Takes the port for the next start; an override writes down what depends on it."""
        self._port = port

    @abstractmethod
    def _command(self) -> list[str]:
        """The program's absolute path and its arguments, one of which names the folder."""

    @abstractmethod
    def _environment(self) -> dict[str, str]: ...

    @abstractmethod
    def _is_ready(self) -> bool:
        """Whether this very server takes connections: another program's port would take them too."""

    def _started(self) -> Self:
        try:
            self._initialise()
            self._run_on_a_free_port()
        except BaseException:
            self.stop()
            raise
        return self

    def _run_on_a_free_port(self) -> None:
        for left in reversed(range(_PORTS_TO_TRY)):
            self._take_port(free_port())
            try:
                self._run()
            except ServerError as error:
                if left == 0 or "address already in use" not in error.log.lower():
                    raise
            else:
                return

    def _run(self) -> None:
        self._log_starts_at = self.log.stat().st_size if self.log.is_file() else 0
        process = self._process = self._launch(self._command())
        self._folder.remember(process.pid)
        deadline = time.monotonic() + _SECONDS_TO_START
        while not self._is_ready():
            ended = process.poll()
            if ended is not None:
                self._process = None
                raise self._failure(f"the server ended with {ended} while it started")
            if time.monotonic() > deadline:
                self.kill()
                raise self._failure(f"the server took no connections within {_SECONDS_TO_START:g} s")
            time.sleep(0.01)

    def _complete(self, program: str, command: list[str]) -> None:
        """Runs a program that prepares something to its end."""
        ended = self._launch(command).wait(_SECONDS_TO_START)
        if ended != 0:
            raise self._failure(f"{program} ended with {ended}")

    def _said(self) -> str:
        """What the server wrote since its last start."""
        return self.log.read_bytes()[self._log_starts_at :].decode(errors="replace")

    def _end(self, how: signal.Signals) -> None:
        if how == signal.SIGKILL:
            self.kill()
        elif self._process is not None and self._process.poll() is None:
            end_family(self._process.pid, how, _SECONDS_TO_STOP)
            self._process.wait()
        self._process = None

    def _launch(self, command: list[str]) -> subprocess.Popen[bytes]:
        return launch(
            command,
            log=self._folder.log,
            account=self._account,
            farewell=self._farewell,
            environment=self._environment(),
        )

    def _failure(self, reason: str) -> ServerError:
        return ServerError(self._kind, reason, last_lines(self._folder.log, since=self._log_starts_at))
