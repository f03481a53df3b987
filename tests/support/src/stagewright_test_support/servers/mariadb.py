"""A private MariaDB on a loopback port."""

import signal
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from stagewright_test_support.servers.account import unprivileged_account
from stagewright_test_support.servers.loopback_server import LoopbackServer
from stagewright_test_support.servers.mariadb_databases import MariadbDatabases
from stagewright_test_support.servers.mariadb_programs import mariadb_environment, mariadb_program

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


class MariadbServer(LoopbackServer):
    """A MariaDB of this process, with a data folder of its own; it ends with this process at the latest.

    Every method blocks; in a coroutine, call it through `asyncio.to_thread`.
    """

    _farewell = signal.SIGKILL
    _to_stop = signal.SIGKILL

    def __init__(self, settings: Mapping[str, str], root: Path | None) -> None:
        super().__init__("mariadb", unprivileged_account(), root)
        self._settings = settings
        # A server that starts removes every file of a temporary table there, those of another server too.
        self._temporary = self._folder.path / "temporary"

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
        chosen = _SETTINGS | (_DURABLE if durable else _HASTY) | dict(settings or {})
        return cls(chosen, root)._started()

    @property
    def address(self) -> str:
        """Its URL, without a database."""
        return self.databases.url()

    @property
    def databases(self) -> MariadbDatabases:
        return MariadbDatabases(self._port)

    def create_database(self, name: str) -> str:
        """Makes an empty database and returns its URL; see `MariadbDatabases.create`."""
        return self.databases.create(name)

    def _initialise(self) -> None:
        super()._initialise()
        self._folder.give("temporary", self._account)
        options = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
        self._complete("mariadb-install-db", [*self._program("mariadb-install-db"), *options])

    def _command(self) -> list[str]:
        options = [f"--{name}={value}" for name, value in self._settings.items()]
        return [*self._program("mariadbd"), f"--port={self._port}", *options]

    def _environment(self) -> dict[str, str]:
        return mariadb_environment() | {"TMPDIR": str(self._temporary)}

    def _run(self) -> None:
        # A killed server leaves its note, which must not count for the next one.
        (self._data / "server.pid").unlink(missing_ok=True)
        super()._run()

    def _is_ready(self) -> bool:
        """Whether it has written its note, and greets who connects."""
        if not (self._data / "server.pid").is_file():
            return False
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=5) as probe:
                return bool(probe.recv(1))
        except OSError:
            return False

    def _program(self, name: str) -> list[str]:
        return [str(mariadb_program(name)), "--no-defaults", f"--datadir={self._data}"]
