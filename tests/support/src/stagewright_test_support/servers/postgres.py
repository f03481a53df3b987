"""A private PostgreSQL on a loopback port."""

import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from stagewright_test_support.servers.account import Account, unprivileged_account
from stagewright_test_support.servers.errors import ServerError
from stagewright_test_support.servers.launch import free_port, last_lines, launch
from stagewright_test_support.servers.postgres_binaries import postgres_environment, programs_for
from stagewright_test_support.servers.postgres_databases import PostgresDatabases
from stagewright_test_support.servers.process_table import descendants, kill_family, wait_until_gone
from stagewright_test_support.servers.server_folder import ServerFolder

__all__ = ["PostgresServer"]

_SETTINGS = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "max_connections": "200"}
_HASTY = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}
_DURABLE = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}

_PORTS_TO_TRY = 5
_SECONDS_TO_START = 60.0
_SECONDS_TO_STOP = 10.0


class PostgresServer:
    """A server of this process, with a data folder of its own; it ends with this process at the latest.

    Every method blocks; in a coroutine, call it through `asyncio.to_thread`.
    """

    def __init__(self, folder: ServerFolder, account: Account | None, settings: Mapping[str, str]) -> None:
        self._folder = folder
        self._account = account
        self._settings = settings
        self._programs = programs_for(account, folder.path / "copy")
        self._data = folder.give("data", account)
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(
        cls, *, durable: bool = False, settings: Mapping[str, str] | None = None, root: Path | None = None
    ) -> Self:
        """Makes a data folder and returns when the server on it takes connections.

        Args:
            durable: Keeps what is committed when the server is killed; otherwise speed comes first.
            settings: Settings of the server on top of, or instead of, the usual ones.
            root: The folder to make the data folder in; usually where temporary files go.

        Raises:
            ServerError: It can't be had or didn't start; the last lines of its log are told.
        """
        account = unprivileged_account()
        chosen = _SETTINGS | (_DURABLE if durable else _HASTY) | dict(settings or {})
        folder = ServerFolder.create("postgres", account, root)
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
        """The URL of the database `postgres`."""
        return self.url()

    @property
    def log(self) -> Path:
        """The file with what the server wrote, until `stop`."""
        return self._folder.log

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def databases(self) -> PostgresDatabases:
        return PostgresDatabases(self._port)

    def url(self, database: str = "postgres") -> str:
        return self.databases.url(database)

    def create_database(self, name: str) -> str:
        """Makes an empty database and returns its URL; see `PostgresDatabases.create`."""
        return self.databases.create(name)

    def drop_database(self, name: str) -> None:
        """Drops a database and ends the connections to it; see `PostgresDatabases.drop`."""
        self.databases.drop(name)

    def kill(self) -> None:
        """Ends the server's processes with SIGKILL, as a crash would; the data folder stays for `restart`."""
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
        self._halt(signal.SIGINT)
        self._run()

    def stop(self) -> None:
        """Ends the server and removes its folder; again, it does nothing."""
        self._halt(signal.SIGQUIT)
        self._folder.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _initialise(self) -> None:
        options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-sync", "--no-instructions"]
        # The same order of texts on every system.
        options += ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        ended = self._launch("initdb", *options).wait(_SECONDS_TO_START)
        if ended != 0:
            raise self._failure(f"initdb ended with {ended}")

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
        options = [text for name, value in self._settings.items() for text in ("-c", f"{name}={value}")]
        self._process = self._launch("postgres", "-p", str(self._port), *options)
        self._folder.remember(self._process.pid)
        deadline = time.monotonic() + _SECONDS_TO_START
        while not self._is_ready(self._process.pid):
            ended = self._process.poll()
            if ended is not None:
                self._process = None
                raise self._failure(f"the server ended with {ended} while it started")
            if time.monotonic() > deadline:
                self.kill()
                raise self._failure(f"the server took no connections within {_SECONDS_TO_START:g} s")
            time.sleep(0.01)

    def _is_ready(self, pid: int) -> bool:
        """Reads the server's own note: its process in the first line, its state in the eighth."""
        try:
            lines = (self._data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"

    def _halt(self, how: signal.Signals) -> None:
        if self._process is None or self._process.poll() is not None:
            self._process = None
            return
        family = descendants(self._process.pid)
        self._process.send_signal(how)
        try:
            self._process.wait(_SECONDS_TO_STOP)
        except subprocess.TimeoutExpired:
            self.kill()
        wait_until_gone(family)
        self._process = None

    def _launch(self, program: str, *options: str) -> subprocess.Popen[bytes]:
        return launch(
            [str(self._programs / program), "-D", str(self._data), *options],
            log=self._folder.log,
            account=self._account,
            farewell=signal.SIGQUIT,
            environment=postgres_environment(),
        )

    def _failure(self, reason: str) -> ServerError:
        return ServerError("postgres", reason, last_lines(self._folder.log))
