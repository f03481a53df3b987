"""A private Valkey or Redis on a loopback port."""

import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from stagewright_test_support.servers.account import unprivileged_account
from stagewright_test_support.servers.certificate import LoopbackCertificate
from stagewright_test_support.servers.errors import ServerError
from stagewright_test_support.servers.loopback_server import LoopbackServer
from stagewright_test_support.servers.redis_databases import COUNT, RedisDatabases
from stagewright_test_support.servers.redis_programs import (
    redis_environment,
    redis_missing,
    redis_program_for,
)

__all__ = ["RedisServer"]

_SETTINGS = {"databases": str(COUNT), "save": '""'}
_HASTY = {"appendonly": "no"}
_DURABLE = {"appendonly": "yes", "appendfsync": "always"}
# What a sweep looks for is the command line, which the server would write over.
_ALWAYS = {"bind": "127.0.0.1", "set-proc-title": "no", "always-show-logo": "no"}


class RedisServer(LoopbackServer):
    """A Valkey or Redis of this process, with a data folder of its own; it ends with this process at the latest.

    Every method blocks; in a coroutine, call it through `asyncio.to_thread`.
    """

    _farewell = signal.SIGKILL
    _to_stop = signal.SIGKILL

    def __init__(
        self,
        kind: str,
        settings: Mapping[str, str],
        *,
        users: Mapping[str, str] | None = None,
        tls: LoopbackCertificate | None = None,
        root: Path | None = None,
    ) -> None:
        reason = redis_missing(kind)
        if reason is not None:
            raise ServerError(kind, reason)
        super().__init__(kind, unprivileged_account(), root)
        self._settings = dict(settings)
        self._users = dict(users or {})
        self._tls = tls
        self._program = Path()
        # In a folder of the account's, as a replica and a Sentinel write into it what they learn.
        self._configured = self._folder.path / "configured"
        self._file = self._configured / "server.conf"

    @classmethod
    def start(
        cls,
        kind: str = "valkey",
        *,
        durable: bool = False,
        settings: Mapping[str, str] | None = None,
        users: Mapping[str, str] | None = None,
        tls: LoopbackCertificate | None = None,
        root: Path | None = None,
    ) -> Self:
        """Makes a data folder and returns when the server on it takes connections.

        Args:
            kind: `valkey`, `redis`, `oldest-redis` or `system-redis`.
            durable: Writes each command to an append-only file before it is answered, and so keeps it when it is
                killed; otherwise it keeps nothing, and is empty after a restart.
            settings: Lines of its configuration on top of, or instead of, the usual ones.
            users: By name, the ACL rules of each, such as `>secret ~app:* &* +@all`; with any, nobody else gets in.
            tls: Takes connections by TLS alone. Only `system-redis` can: what the packages bring is built without.
            root: The folder to make the data folder in; usually where temporary files go.

        Raises:
            ServerError: It can't be had or didn't start; the last lines of its log are told.
        """
        chosen = _SETTINGS | (_DURABLE if durable else _HASTY) | dict(settings or {})
        return cls(kind, chosen, users=users, tls=tls, root=root)._started()

    @property
    def kind(self) -> str:
        """Which program it is: `valkey`, `redis`, `oldest-redis` or `system-redis`."""
        return self._kind

    @property
    def address(self) -> str:
        """The URL of its first database."""
        return self.url()

    @property
    def databases(self) -> RedisDatabases:
        return RedisDatabases(self._port)

    def url(self, database: int = 0, *, user: str = "", password: str = "") -> str:
        """Where a database is; a user of an ACL comes with a password."""
        scheme, who = "rediss" if self._tls else "redis", f"{user}:{password}@" if user else ""
        return f"{scheme}://{who}127.0.0.1:{self._port}/{database}"

    def forget(self) -> None:
        """Removes what a killed server has written, its append-only file too: as a lost disk, or an old replica's."""
        if self.is_running:
            raise ValueError("only what a killed server has written can be removed")
        for path in self._data.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _initialise(self) -> None:
        super()._initialise()
        self._folder.give("configured", self._account)
        self._program = redis_program_for(self._kind, self._account, self._folder.path / "copy")

    def _take_port(self, port: int) -> None:
        super()._take_port(port)
        listening = {"port": str(port)}
        if self._tls is not None:
            listening = {"port": "0", "tls-port": str(port), "tls-auth-clients": "no"} | self._handed(
                self._tls
            )
        lines = {"dir": f'"{self._data}"', **_ALWAYS, **listening, **self._settings}
        text = [f"{name} {value}" for name, value in lines.items()]
        text += ["user default off"] if self._users else []
        text += [f"user {name} on {rules}" for name, rules in self._users.items()]
        self._write(self._file, "\n".join([*text, ""]))

    def _handed(self, tls: LoopbackCertificate) -> dict[str, str]:
        """Copies for the account, which may not pass to where the certificate is."""
        handed: dict[str, str] = {}
        for name, text in (
            ("tls-cert-file", tls.chain),
            ("tls-key-file", tls.key),
            ("tls-ca-cert-file", tls.authority),
        ):
            file = self._configured / f"{name}.pem"
            self._write(file, text)
            handed[name] = f'"{file}"'
        return handed

    def _write(self, file: Path, text: str) -> None:
        file.write_text(text, encoding="utf-8")
        if self._account is not None:
            os.chown(file, *self._account)

    def _command(self) -> list[str]:
        return [str(self._program), str(self._file)]

    def _environment(self) -> dict[str, str]:
        return redis_environment()

    def _is_ready(self) -> bool:
        """Whether it has read what it kept and says so, which it does once it listens."""
        return "Ready to accept connections" in self._said()
