"""A private PostgreSQL on a loopback port."""

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from stagewright_test_support.servers.account import unprivileged_account
from stagewright_test_support.servers.loopback_server import LoopbackServer
from stagewright_test_support.servers.postgres_binaries import postgres_environment, programs_for
from stagewright_test_support.servers.postgres_databases import PostgresDatabases

__all__ = ["PostgresServer"]

_SETTINGS = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "max_connections": "200"}
_HASTY = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}
_DURABLE = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}


class PostgresServer(LoopbackServer):
    """A PostgreSQL of this process, with a data folder of its own; it ends with this process at the latest.

    Every method blocks; in a coroutine, call it through `asyncio.to_thread`.
    """

    _farewell = signal.SIGQUIT
    _to_restart = signal.SIGINT
    _to_stop = signal.SIGQUIT

    def __init__(self, settings: Mapping[str, str], root: Path | None) -> None:
        super().__init__("postgres", unprivileged_account(), root)
        self._settings = settings
        self._programs = Path()

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
        chosen = _SETTINGS | (_DURABLE if durable else _HASTY) | dict(settings or {})
        return cls(chosen, root)._started()

    @property
    def address(self) -> str:
        """The URL of the database `postgres`."""
        return self.url()

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

    def _initialise(self) -> None:
        super()._initialise()
        self._programs = programs_for(self._account, self._folder.path / "copy")
        options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-sync", "--no-instructions"]
        # The same order of texts on every system.
        options += ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        self._complete("initdb", [str(self._programs / "initdb"), "-D", str(self._data), *options])

    def _command(self) -> list[str]:
        options = [text for name, value in self._settings.items() for text in ("-c", f"{name}={value}")]
        return [str(self._programs / "postgres"), "-D", str(self._data), "-p", str(self._port), *options]

    def _environment(self) -> dict[str, str]:
        return postgres_environment()

    def _is_ready(self) -> bool:
        """Reads the server's own note: its process in the first line, its state in the eighth."""
        try:
            lines = (self._data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return False
        pid = "" if self._process is None else str(self._process.pid)
        return len(lines) >= 8 and lines[0] == pid and lines[7].strip() == "ready"
