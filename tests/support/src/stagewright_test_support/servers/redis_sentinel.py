"""A primary with a replica, and the Sentinel that watches them."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from stagewright_test_support.servers.redis import RedisServer
from stagewright_test_support.servers.redis_client import ask_redis
from stagewright_test_support.servers.redis_group import RedisGroup

__all__ = ["RedisSentinel"]

_NAME = "watched"
# At once, instead of after five seconds in which more replicas might come.
_SETTINGS = {"repl-diskless-sync-delay": "0", "save": '""'}


class _Watcher(RedisServer):
    """The program as a Sentinel."""

    def _command(self) -> list[str]:
        return [*super()._command(), "--sentinel"]

    def _is_ready(self) -> bool:
        return "Sentinel ID is" in self._said()


class RedisSentinel(RedisGroup):
    """A primary, its replica, and one Sentinel, whose word is enough to make the replica the primary."""

    def __init__(self, servers: tuple[RedisServer, ...], watcher: RedisServer, started: ExitStack) -> None:
        super().__init__(servers, started)
        self._watcher = watcher

    @classmethod
    def start(
        cls, kind: str = "valkey", *, settings: Mapping[str, str] | None = None, root: Path | None = None
    ) -> Self:
        """Returns when the replica follows and the Sentinel knows both.

        Args:
            kind: `valkey`, `redis`, `oldest-redis` or `system-redis`.
            settings: Lines of the configuration of both servers.
            root: The folder to make their folders in; usually where temporary files go.

        Raises:
            ServerError: One can't be had or didn't start, or they didn't find each other.
        """
        chosen = _SETTINGS | dict(settings or {})
        with ExitStack() as starting:
            primary = starting.enter_context(RedisServer.start(kind, settings=chosen, root=root))
            follows = {"replicaof": f"127.0.0.1 {primary.port}"}
            replica = starting.enter_context(RedisServer.start(kind, settings=chosen | follows, root=root))
            # A Sentinel that finds no replica at first looks again in ten seconds.
            RedisGroup((replica,), starting)._wait_until(
                lambda: _follows(replica), "a replica doesn't follow"
            )
            watches = {
                f"sentinel monitor {_NAME}": f"127.0.0.1 {primary.port} 1",
                f"sentinel down-after-milliseconds {_NAME}": "500",
                f"sentinel failover-timeout {_NAME}": "5000",
            }
            watcher = starting.enter_context(_Watcher(kind, watches, root=root)._started())
            sentinel = cls((primary, replica), watcher, starting)
            sentinel._wait_until(sentinel._knows_the_replica, "a Sentinel knows no replica that follows")
            sentinel._started = starting.pop_all()
        return sentinel

    @property
    def name(self) -> str:
        """What the Sentinel calls the primary and its replica."""
        return _NAME

    @property
    def port(self) -> int:
        """Where the Sentinel listens on 127.0.0.1."""
        return self._watcher.port

    def primary(self) -> RedisServer:
        """The server that the Sentinel takes for the primary now."""
        place = ask_redis(self.port, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", _NAME)
        return next(server for server in self.servers if place == ["127.0.0.1", str(server.port)])

    def wait_until_primary(self, server: RedisServer) -> None:
        """Returns when the Sentinel has made it the primary, as after a kill of the other one.

        Raises:
            ServerError: It hasn't in time.
        """
        self._wait_until(lambda: self.primary() is server, "the Sentinel hasn't made the replica the primary")

    def _knows_the_replica(self) -> bool:
        """Whether it could be made the primary."""
        return "'master-link-status': 'ok'" in str(ask_redis(self.port, "SENTINEL", "REPLICAS", _NAME))


def _follows(replica: RedisServer) -> bool:
    return "'master_link_status': 'up'" in str(ask_redis(replica.port, "INFO", "replication"))
