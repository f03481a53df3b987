"""Makes and drops the databases of a MariaDB server, from whichever process."""

import subprocess
from dataclasses import dataclass
from typing import Self

from stagewright_test_support.servers.database_url import checked_name, port_of
from stagewright_test_support.servers.errors import ServerError
from stagewright_test_support.servers.mariadb_programs import mariadb_environment, mariadb_program

__all__ = ["MariadbDatabases"]


@dataclass(frozen=True, slots=True)
class MariadbDatabases:
    """The databases of the server on a loopback port.

    Attributes:
        port: Where the server listens on 127.0.0.1.
    """

    port: int

    @classmethod
    def at(cls, url: str) -> Self:
        """Those of the server that a URL of one of them leads to."""
        return cls(port_of(url))

    def url(self, name: str = "") -> str:
        """Where a database is; it needs no password."""
        return f"mariadb://root@127.0.0.1:{self.port}/{name}"

    def create(self, name: str) -> str:
        """Makes an empty database and returns its URL.

        Args:
            name: Small letters, digits and underscores, at most 63, no digit first.

        Raises:
            ServerError: The server refused, for instance because the name is taken.
        """
        # As careless as a database can be made: texts that differ in case or in spaces at their end are one to it.
        self.execute(
            f"CREATE DATABASE `{checked_name(name)}` CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"
        )
        return self.url(name)

    def drop(self, name: str) -> None:
        """Drops a database, and ends the connections to it; one that isn't there is dropped already.

        Raises:
            ServerError: The server refused.
        """
        kills = f"SELECT CONCAT('KILL ', id) FROM information_schema.processlist WHERE db = '{checked_name(name)}'"
        for kill in self.execute(kills).splitlines():
            try:
                self.execute(kill)
            except ServerError as error:
                if "Unknown thread id" not in error.reason:
                    raise
        self.execute(f"DROP DATABASE IF EXISTS `{checked_name(name)}`")

    def execute(self, statement: str) -> str:
        """Sends one statement as the server's root, and returns what it answers, a line for each row.

        Raises:
            ServerError: The server refused.
        """
        where = ["--protocol=tcp", "--host=127.0.0.1", f"--port={self.port}", "--user=root", "--skip-ssl"]
        command = [str(mariadb_program("mariadb")), "--no-defaults", *where, "--batch", "--skip-column-names"]
        ended = subprocess.run(
            [*command, "--execute", statement],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            env=mariadb_environment(),
        )
        if ended.returncode != 0:
            said = ended.stderr.decode(errors="replace").strip()
            raise ServerError("mariadb", f"{statement} failed: {said}")
        return ended.stdout.decode()
