"""A private PgBouncer, which lends the connections of a PostgreSQL for a transaction at a time."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from stagewright_test_support.servers.account import Account, unprivileged_account
from stagewright_test_support.servers.errors import ServerError
from stagewright_test_support.servers.launch import free_port, last_lines, launch
from stagewright_test_support.servers.process_table import end_family
from stagewright_test_support.servers.server_folder import ServerFolder

__all__ = ["PgbouncerServer", "pgbouncer_missing"]

# Few connections, so that a client seldom gets the same one twice.
_SETTINGS = {
    "listen_addr": "127.0.0.1",
    "unix_socket_dir": "",
    "auth_type": "any",
    "pool_mode": "transaction",
    "default_pool_size": "3",
    "server_round_robin": "1",
    "max_client_conn": "500",
}
# Daemons stand where a plain user's PATH doesn't lead.
_PLACES = os.pathsep.join(("/usr/sbin", "/usr/local/sbin"))

_CONFIGURATION = "pgbouncer.ini"
_PORTS_TO_TRY = 5
_SECONDS_TO_START = 30.0


def pgbouncer_missing() -> str | None:
    """Why PgBouncer can't be had here, or `None`."""
    if sys.platform == "win32":
        return "its launcher knows Linux and macOS only"
    if _program() is None:
        return "there is no pgbouncer here; on Debian: apt-get install --no-install-recommends pgbouncer"
    return None


class PgbouncerServer:
    """A pooler of this process in front of a PostgreSQL; it ends with this process at the latest.

    Every method blocks; in a coroutine, call it through `asyncio.to_thread`.
    """

    def __init__(self, folder: ServerFolder, account: Account | None) -> None:
        self._folder = folder
        self._account = account
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(
        cls, postgres_port: int, *, settings: Mapping[str, str] | None = None, root: Path | None = None
    ) -> Self:
        """Returns when it takes connections.

        Args:
            postgres_port: Where the PostgreSQL listens on 127.0.0.1; everybody is its user `postgres` there.
            settings: Settings on top of, or instead of, the usual ones.
            root: The folder to make its folder in; usually where temporary files go.

        Raises:
            ServerError: It can't be had or didn't start; the last lines of its log are told.
        """
        reason = pgbouncer_missing()
        if reason is not None:
            raise ServerError("pgbouncer", reason)
        account = unprivileged_account()
        pooler = cls(ServerFolder.create("pgbouncer", account, root), account)
        try:
            pooler._run_on_a_free_port(postgres_port, _SETTINGS | dict(settings or {}))
        except BaseException:
            pooler.stop()
            raise
        return pooler

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

    def url(self, database: str = "postgres") -> str:
        """Where a database of the PostgreSQL is, through this."""
        return f"postgresql://postgres@127.0.0.1:{self._port}/{database}"

    def restart(self) -> None:
        """Ends it, and with it all connections through it, and starts it again at the same place.

        Raises:
            ServerError: It didn't start; the last lines of its log are told.
        """
        self._end()
        self._folder.log.unlink(missing_ok=True)
        self._run(self._folder.path / _CONFIGURATION)

    def stop(self) -> None:
        """Ends it and removes its folder; again, it does nothing."""
        self._end()
        self._folder.remove()

    def _end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            end_family(self._process.pid, signal.SIGTERM)
            self._process.wait()
        self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run_on_a_free_port(self, postgres_port: int, settings: Mapping[str, str]) -> None:
        for left in reversed(range(_PORTS_TO_TRY)):
            self._port = free_port()
            file = self._configure(postgres_port, {**settings, "listen_port": str(self._port)})
            try:
                self._run(file)
            except ServerError as error:
                if left == 0 or "Address already in use" not in error.log:
                    raise
                self._folder.log.unlink()
            else:
                return

    def _configure(self, postgres_port: int, settings: Mapping[str, str]) -> Path:
        lines = ["[databases]", f"* = host=127.0.0.1 port={postgres_port} user=postgres", "[pgbouncer]"]
        lines += [f"{name} = {value}" for name, value in settings.items()]
        file = self._folder.path / _CONFIGURATION
        file.write_text("\n".join([*lines, ""]), encoding="utf-8")
        file.chmod(0o644)
        return file

    def _run(self, file: Path) -> None:
        self._process = launch(
            [str(_program()), str(file)],
            log=self._folder.log,
            account=self._account,
            farewell=signal.SIGTERM,
            environment={"LC_ALL": "C"},
        )
        self._folder.remember(self._process.pid)
        deadline = time.monotonic() + _SECONDS_TO_START
        while not self._is_ready():
            ended = self._process.poll()
            if ended is not None:
                self._process = None
                raise self._failure(f"it ended with {ended} while it started")
            if time.monotonic() > deadline:
                raise self._failure(f"it took no connections within {_SECONDS_TO_START:g} s")
            time.sleep(0.01)

    def _is_ready(self) -> bool:
        """Whether it says that it is up and takes connections: another program's port would take them too."""
        if "process up" not in last_lines(self._folder.log):
            return False
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def _failure(self, reason: str) -> ServerError:
        return ServerError("pgbouncer", reason, last_lines(self._folder.log))


def _program() -> Path | None:
    path = shutil.which("pgbouncer") or shutil.which("pgbouncer", path=_PLACES)
    return Path(path) if path else None
