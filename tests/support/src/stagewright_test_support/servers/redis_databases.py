"""Lends and takes back the numbered databases of a Valkey or Redis, from whichever process."""

from dataclasses import dataclass
from typing import Self

from stagewright_test_support.servers.database_url import port_of
from stagewright_test_support.servers.errors import ServerError
from stagewright_test_support.servers.redis_client import ask_redis

__all__ = ["COUNT", "RedisDatabases"]

COUNT = 1024
"""How many databases a server of the tests has; the first one is kept for who has which."""

_LAST = "stagewright-tests:last"
_FREE = "stagewright-tests:free"


@dataclass(frozen=True, slots=True)
class RedisDatabases:
    """The databases of the server on a loopback port.

    A database is a space of keys; channels, functions and scripts are the whole server's.

    Attributes:
        port: Where the server listens on 127.0.0.1.
    """

    port: int

    @classmethod
    def at(cls, url: str) -> Self:
        """Those of the server that a URL of one of them leads to."""
        return cls(port_of(url))

    def url(self, number: int = 0) -> str:
        """Where a database is; it needs no password."""
        return f"redis://127.0.0.1:{self.port}/{number}"

    def lend(self) -> str:
        """Empties a database that nobody else has, and returns its URL.

        Raises:
            ServerError: All are lent.
        """
        returned = ask_redis(self.port, "SPOP", _FREE)
        number = int(str(ask_redis(self.port, "INCR", _LAST) if returned is None else returned))
        if number >= COUNT:
            raise ServerError("redis", f"all {COUNT - 1} databases are lent")
        ask_redis(self.port, "FLUSHDB", database=number)
        return self.url(number)

    def take_back(self, url: str) -> None:
        """Empties a lent database, which may be lent again."""
        number = int(url.rpartition("/")[2])
        ask_redis(self.port, "FLUSHDB", database=number)
        ask_redis(self.port, "SADD", _FREE, number)
