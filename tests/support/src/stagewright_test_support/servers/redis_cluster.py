"""Three nodes that share the slots of a cluster."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from stagewright_test_support.servers.launch import free_port
from stagewright_test_support.servers.redis import RedisServer
from stagewright_test_support.servers.redis_client import ask_redis
from stagewright_test_support.servers.redis_group import RedisGroup

__all__ = ["RedisCluster"]

_SLOTS = 16_384
_NODES = 3
_USUALLY_FURTHER = 10_000
_SETTINGS = {"cluster-enabled": "yes", "cluster-node-timeout": "2000", "save": '""'}


class _Node(RedisServer):
    """A node, which tells the others of itself on a second port."""

    gossip_port = 0

    def _take_port(self, port: int) -> None:
        if self.kind == "oldest-redis":
            self.gossip_port = port + _USUALLY_FURTHER
        else:
            # The usual one may be one that connections go out from.
            self.gossip_port = free_port()
            self._settings["cluster-port"] = str(self.gossip_port)
        super()._take_port(port)


class RedisCluster(RedisGroup):
    """Three primaries without replicas: a killed one takes its slots along until it is back."""

    @classmethod
    def start(
        cls, kind: str = "valkey", *, settings: Mapping[str, str] | None = None, root: Path | None = None
    ) -> Self:
        """Returns when every node takes commands for all slots.

        Args:
            kind: `valkey`, `redis`, `oldest-redis` or `system-redis`.
            settings: Lines of the configuration of all nodes.
            root: The folder to make their folders in; usually where temporary files go.

        Raises:
            ServerError: One can't be had or didn't start, or they didn't find each other.
        """
        chosen = _SETTINGS | dict(settings or {})
        with ExitStack() as starting:
            nodes = [starting.enter_context(_Node(kind, chosen, root=root)._started()) for _ in range(_NODES)]
            cluster = cls(tuple(nodes), starting)
            _share(nodes)
            cluster.wait_until_whole()
            cluster._started = starting.pop_all()
        return cluster

    @property
    def address(self) -> str:
        """The URL of the first node."""
        return self.servers[0].address

    def wait_until_whole(self) -> None:
        """Returns when every node takes commands for all slots, as after a restart of one.

        Raises:
            ServerError: They didn't find each other.
        """
        self._wait_until(
            lambda: all(_is_whole(server) for server in self.servers),
            "the nodes of a cluster haven't found each other",
        )


def _share(nodes: list[_Node]) -> None:
    for at, node in enumerate(nodes):
        first, last = _SLOTS * at // _NODES, _SLOTS * (at + 1) // _NODES - 1
        ask_redis(node.port, "CLUSTER", "SET-CONFIG-EPOCH", at + 1)
        ask_redis(node.port, "CLUSTER", "ADDSLOTS", *range(first, last + 1))
        ask_redis(node.port, "CLUSTER", "MEET", "127.0.0.1", nodes[0].port, nodes[0].gossip_port)


def _is_whole(server: RedisServer) -> bool:
    told = str(ask_redis(server.port, "CLUSTER", "INFO"))
    return "cluster_state:ok" in told and f"cluster_known_nodes:{_NODES}" in told
