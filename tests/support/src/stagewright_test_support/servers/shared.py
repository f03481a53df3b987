"""Servers that all tests of a session share, also those of its xdist workers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from stagewright_test_support.servers.errors import ServerError
from stagewright_test_support.servers.fake_gcs import FakeGcsServer
from stagewright_test_support.servers.mariadb import MariadbServer
from stagewright_test_support.servers.mariadb_programs import mariadb_missing
from stagewright_test_support.servers.postgres import PostgresServer
from stagewright_test_support.servers.postgres_binaries import postgres_missing
from stagewright_test_support.servers.redis import RedisServer
from stagewright_test_support.servers.redis_programs import (
    REDIS_KINDS,
    redis_missing,
    redis_offered,
)
from stagewright_test_support.servers.s3_emulators import MinistackServer

__all__ = ["SERVER_KINDS", "Handout", "ServerKind", "SharedServer", "SharedServers"]

Handout = dict[str, dict[str, str]]
"""By the name of its kind, a server's `address`, or under `failure` why it has none."""


class SharedServer(Protocol):
    """What every server offers to the session."""

    @property
    def address(self) -> str: ...

    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ServerKind:
    """A server that the tests can bring along.

    Attributes:
        name: How `STAGEWRIGHT_REQUIRE` and the tests call it.
        why_missing: Answers `None` where it looks as if it can be started, else the reason why not; quick.
        start: Starts one; a `ServerError` says why not.
        is_offered: Answers False where no package brings it for this Python and this system.
    """

    name: str
    why_missing: Callable[[], str | None]
    start: Callable[[], SharedServer]
    is_offered: Callable[[], bool] = lambda: True


SERVER_KINDS: Mapping[str, ServerKind] = {
    "postgres": ServerKind("postgres", postgres_missing, PostgresServer.start),
    "mariadb": ServerKind("mariadb", mariadb_missing, MariadbServer.start),
    **{
        kind: ServerKind(
            kind, partial(redis_missing, kind), partial(RedisServer.start, kind), partial(redis_offered, kind)
        )
        for kind in REDIS_KINDS
    },
    "s3": ServerKind("s3", MinistackServer.why_missing, MinistackServer.start),
    "gcs": ServerKind("gcs", FakeGcsServer.why_missing, FakeGcsServer.start),
}


class SharedServers:
    """At most one server of each kind, started at its first use unless another process handed it out."""

    def __init__(self, handed: Handout | None = None, kinds: Mapping[str, ServerKind] = SERVER_KINDS) -> None:
        self._kinds = kinds
        self._known: Handout = dict(handed or {})
        self._own: list[SharedServer] = []

    def address(self, name: str) -> str:
        """Where the server is.

        Raises:
            ServerError: It didn't start, now or the first time.
        """
        if name not in self._known:
            self._known[name] = self._start(self._kinds[name])
        if "failure" in self._known[name]:
            raise ServerError(name, self._known[name]["failure"])
        return self._known[name]["address"]

    def hand_out(self) -> Handout:
        """Starts what can be had and tells where it is, for the workers."""
        for name, kind in self._kinds.items():
            if name not in self._known and kind.why_missing() is None:
                self._known[name] = self._start(kind)
        return dict(self._known)

    def stop(self) -> None:
        """Stops what this process started."""
        while self._own:
            self._own.pop().stop()

    def _start(self, kind: ServerKind) -> dict[str, str]:
        try:
            server = kind.start()
        except ServerError as error:
            return {"failure": str(error).removeprefix(f"{error.server}: ")}
        self._own.append(server)
        return {"address": server.address}
