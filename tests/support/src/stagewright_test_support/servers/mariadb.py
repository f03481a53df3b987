"""A private MariaDB on a loopback port."""

import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from stagewright_test_support.servers.account import Account, unprivileged_account
from stagewright_test_support.servers.errors import ServerError
from stagewright_test_support.servers.launch import free_port, last_lines, launch
from stagewright_test_support.servers.mariadb_databases import MariadbDatabases
from stagewright_test_support.servers.mariadb_programs import mariadb_environment, mariadb_program
from stagewright_test_support.servers.process_table import end_family, kill_family
from stagewright_test_support.servers.server_folder import ServerFolder

__all__ = ["MariadbServer"]

# The name of the socket stands in the data folder: its path would be too long for one in some places.
_SETTINGS = {
    "bind-address": "127.0.0.1",
    "socket": "server.sock",
    "pid-file": "server.pid",
    "skip-name-resolve": "ON",
    "skip-log-bin": "ON",
    "innodb-buffer-pool-size": "64M",
    "max-connections": "300",
    # The largest value that the tests keep, with room for what escapes its bytes.
    "max-allowed-packet": "256M",
}
_HASTY = {"innodb-flush-log-at-trx-commit": "0", "innodb-doublewrite": "0"}
_DURABLE = {"innodb-flush-log-at-trx-commit": "1", "innodb-doublewrite": "1"}

_PORTS_TO_TRY = 5
_SECONDS_TO_START = 60.0
_SECONDS_TO_STOP = 10.0


class MariadbServer:
    """A server of this process, with a data folder of its own; it ends with this process at the latest.

    Every method blocks; in a coroutine, call it through `asyncio.to_thread`.
    """

    def __init__(self, folder: ServerFolder, account: Account | None, settings: Mapping[str, str]) -> None:
        self._folder = folder
        self._account = account
        self._settings = settings
        self._data = folder.give("data", account)
        # A server that starts removes every file of a temporary table there, those of another server too.
        self._temporary = folder.give("temporary", account)
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(
        cls, *, durable: bool = False, settings: Mapping[str, str] | None = None, root: Path | None = None
    ) -> Self:
        """Makes a data folder and returns when the server on it takes connections.

        Args:
            durable: Keeps what is committed when the server is killed; otherwise speed comes first.
            settings: Options of the server on top of, or instead of, the usual ones.
            root: The folder to make the data folder in; usually where temporary files go.

        Raises:
            ServerError: It can't be had or didn't start; the last lines of its log are told.
        """
        mariadb_program("mariadbd")
        account = unprivileged_account()
        chosen = _SETTINGS | (_DURABLE if durable else _HASTY) | dict(settings or {})
        folder = ServerFolder.create("mariadb", account, root)
        try:
            server = cls(folder, account, chosen)
        except BaseException:
            folder.remove()
            raise
        try:
            server._initialise()
            server._run_on_a_free_port()
        except BaseException:
            server.stop()
            raise
        return server

    @property
    def port(self) -> int:
        """Where it listens on 127.0.0.1; a restart keeps it."""
        return self._port

    @property
    def address(self) -> str:
        """Its URL, without a database."""
        return self.databases.url()

    @property
    def log(self) -> Path:
        """The file with what the server wrote, until `stop`."""
        return self._folder.log

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def databases(self) -> MariadbDatabases:
        return MariadbDatabases(self._port)

    def create_database(self, name: str) -> str:
        """Makes an empty database and returns its URL; see `MariadbDatabases.create`."""
        return self.databases.create(name)

    def kill(self) -> None:
        """Ends the server with SIGKILL, as a crash would; the data folder stays for `restart`."""
        if self._process is not None:
            # Asked first: the number of one that has ended may be another's by now.
            if self._process.poll() is None:
                kill_family(self._process.pid)
                self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Starts the server on the same data folder and port, after a `kill` or where it runs.

        Raises:
            ServerError: It didn't start; the last lines of its log are told.
        """
        if self._process is not None and self._process.poll() is None:
            end_family(self._process.pid, signal.SIGTERM, _SECONDS_TO_STOP)
            self._process.wait()
        self._run()

    def stop(self) -> None:
        """Ends the server and removes its folder; again, it does nothing."""
        # Nothing of it is kept, so it needs no time to write.
        self.kill()
        self._folder.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _initialise(self) -> None:
        options = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
        ended = self._launch("mariadb-install-db", *options).wait(_SECONDS_TO_START)
        if ended != 0:
            raise self._failure(f"mariadb-install-db ended with {ended}")

    def _run_on_a_free_port(self) -> None:
        for left in reversed(range(_PORTS_TO_TRY)):
            self._port = free_port()
            try:
                self._run()
            except ServerError as error:
                if left == 0 or "Address already in use" not in error.log:
                    raise
                self._folder.log.unlink()
            else:
                return

    def _run(self) -> None:
        options = [f"--{name}={value}" for name, value in self._settings.items()]
        # A killed server leaves its note, which must not count for the next one.
        (self._data / "server.pid").unlink(missing_ok=True)
        self._process = self._launch("mariadbd", f"--port={self._port}", *options)
        self._folder.remember(self._process.pid)
        deadline = time.monotonic() + _SECONDS_TO_START
        while not self._is_ready():
            ended = self._process.poll()
            if ended is not None:
                self._process = None
                raise self._failure(f"the server ended with {ended} while it started")
            if time.monotonic() > deadline:
                self.kill()
                raise self._failure(f"the server took no connections within {_SECONDS_TO_START:g} s")
            time.sleep(0.01)

    def _is_ready(self) -> bool:
        """Whether it has written its note, and greets who connects."""
        if not (self._data / "server.pid").is_file():
            return False
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=5) as probe:
                return bool(probe.recv(1))
        except OSError:
            return False

    def _launch(self, program: str, *options: str) -> subprocess.Popen[bytes]:
        return launch(
            [str(mariadb_program(program)), "--no-defaults", f"--datadir={self._data}", *options],
            log=self._folder.log,
            account=self._account,
            farewell=signal.SIGKILL,
            environment=mariadb_environment() | {"TMPDIR": str(self._temporary)},
        )

    def _failure(self, reason: str) -> ServerError:
        return ServerError("mariadb", reason, last_lines(self._folder.log))
