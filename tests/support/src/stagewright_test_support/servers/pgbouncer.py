"""A private PgBouncer, which lends the connections of a PostgreSQL for a transaction at a time."""

import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from stagewright_test_support.servers.account import unprivileged_account
from stagewright_test_support.servers.errors import ServerError
from stagewright_test_support.servers.installed_programs import find_program
from stagewright_test_support.servers.loopback_server import LoopbackServer

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


def pgbouncer_missing() -> str | None:
    """Why PgBouncer can't be had here, or `None`."""
    if sys.platform == "win32":
        return "its launcher knows Linux and macOS only"
    if _program() is None:
        return "there is no pgbouncer here; on Debian: apt-get install --no-install-recommends pgbouncer"
    return None


class PgbouncerServer(LoopbackServer):
    """A pooler of this process in front of a PostgreSQL; it ends with this process at the latest.

    Every method blocks; in a coroutine, call it through `asyncio.to_thread`.
    """

    def __init__(self, postgres_port: int, settings: Mapping[str, str], root: Path | None) -> None:
        super().__init__("pgbouncer", unprivileged_account(), root)
        self._postgres_port = postgres_port
        self._settings = settings
        self._file = self._folder.path / "pgbouncer.ini"

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
        return cls(postgres_port, _SETTINGS | dict(settings or {}), root)._started()

    def url(self, database: str = "postgres") -> str:
        """Where a database of the PostgreSQL is, through this."""
        return f"postgresql://postgres@127.0.0.1:{self._port}/{database}"

    def _take_port(self, port: int) -> None:
        super()._take_port(port)
        lines = ["[databases]", f"* = host=127.0.0.1 port={self._postgres_port} user=postgres", "[pgbouncer]"]
        lines += [f"{name} = {value}" for name, value in self._settings.items()]
        lines += [f"listen_port = {port}", ""]
        self._file.write_text("\n".join(lines), encoding="utf-8")
        self._file.chmod(0o644)

    def _command(self) -> list[str]:
        return [str(_program()), str(self._file)]

    def _environment(self) -> dict[str, str]:
        return {"LC_ALL": "C"}

    def _is_ready(self) -> bool:
        """Whether it says that it is up and takes connections: another program's port would take them too."""
        if "process up" not in self._said():
            return False
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0


def _program() -> Path | None:
    return find_program("pgbouncer")
