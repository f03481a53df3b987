"""Makes and drops the databases of a PostgreSQL server, from whichever process."""

import subprocess
from dataclasses import dataclass
from typing import Self

from stagewright_test_support.servers.database_url import checked_name, port_of
from stagewright_test_support.servers.errors import ServerError
from stagewright_test_support.servers.postgres_binaries import postgres_environment, programs

__all__ = ["PostgresDatabases"]


@dataclass(frozen=True, slots=True)
class PostgresDatabases:
    """The databases of the server on a loopback port.

    Attributes:
        port: Where the server listens on 127.0.0.1.
    """

    port: int

    @classmethod
    def at(cls, url: str) -> Self:
        """Those of the server that a URL of one of them leads to."""
        return cls(port_of(url))

    def url(self, name: str = "postgres") -> str:
        """Where a database is; it needs no password."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{name}"

    def create(self, name: str, *, template: str = "template0") -> str:
        """Makes an empty database, or the copy of another one, and returns its URL.

        Args:
            name: Small letters, digits and underscores, at most 63, no digit first.
            template: The database that it is a copy of, to which nobody is connected.

        Raises:
            ServerError: The server refused, for instance because the name is taken.
        """
        self._execute(f'CREATE DATABASE "{checked_name(name)}" TEMPLATE "{checked_name(template)}"')
        return self.url(name)

    def drop(self, name: str) -> None:
        """Drops a database, and ends the connections to it; one that isn't there is dropped already.

        Raises:
            ServerError: The server refused.
        """
        self._execute(f'DROP DATABASE IF EXISTS "{checked_name(name)}" WITH (FORCE)')

    def _execute(self, statement: str) -> None:
        command = [str(programs() / "psql"), "-X", "-q", "-w", "-d", self.url(), "-c", statement]
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, check=False, env=postgres_environment()
        )
        if ended.returncode != 0:
            said = ended.stderr.decode(errors="replace").strip()
            raise ServerError("postgres", f"{statement} failed: {said}")
