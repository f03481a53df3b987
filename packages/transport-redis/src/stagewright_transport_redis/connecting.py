"""Clients for an address: one for commands, one of its own for listening, and one without an event loop for leases."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import redis
from redis import asyncio as aioredis
from redis.asyncio import cluster as aiocluster
from redis.asyncio import sentinel as aiosentinel
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.credentials import UsernamePasswordCredentialProvider
from redis.retry import Retry
from redis.sentinel import Sentinel

from stagewright_transport_redis.redis_url import RedisAddress

__all__ = ["RedisClients", "clients_of"]

# redis-py leaves their arguments without types.
_ASYNC_SENTINEL: Final[Any] = aiosentinel.Sentinel
_SENTINEL: Final[Any] = Sentinel
_NODE: Final[Any] = ClusterNode


@dataclass(frozen=True, slots=True)
class RedisClients:
    """What a transport connects by; redis-py's clients share no type of use.

    Attributes:
        commands: An asynchronous client.
        listening: Gives an asynchronous client of one server that nobody else uses, for pub/sub.
        heartbeats: Gives a synchronous client that nobody else uses; None if there is no way to another connection.
        close: Closes `commands`, unless it is somebody else's.
    """

    commands: Any
    listening: Callable[[], Awaitable[Any]]
    heartbeats: Callable[[], Any] | None
    close: Callable[[], Awaitable[None]]


def clients_of(address: RedisAddress) -> RedisClients:
    """Clients for an address; nothing is connected yet.

    None of them repeats a call by itself: whether that is safe is known to who calls.
    """
    makers = {"server": _of_server, "socket": _of_server, "sentinel": _of_sentinels, "cluster": _of_cluster}
    return makers[address.kind](address)


def _of_server(address: RedisAddress) -> RedisClients:
    if address.kind == "socket":
        place: dict[str, Any] = {"path": address.path}
        connection_class: Any = aioredis.UnixDomainSocketConnection
        sync_place: dict[str, Any] = {"unix_socket_path": address.path}
    else:
        ((host, port),) = address.hosts
        place = sync_place = {"host": host, "port": port}
        connection_class = aioredis.SSLConnection if address.is_tls else aioredis.Connection

    def connect(most: int) -> Any:
        pool = aioredis.BlockingConnectionPool(
            connection_class=connection_class,
            max_connections=most,
            timeout=address.options.socket_timeout.total_seconds(),
            retry=AsyncRetry(NoBackoff(), 0),
            db=address.db,
            **place,
            **_common(address),
            **(address.tls if address.is_tls else {}),
        )
        return aioredis.Redis.from_pool(pool)

    async def listen() -> Any:
        return connect(1)

    commands = connect(address.options.max_connections)
    return RedisClients(
        commands,
        listen,
        lambda: redis.Redis(
            **sync_place, db=address.db, retry=Retry(NoBackoff(), 0), **_common(address), **_tls(address)
        ),
        commands.aclose,
    )


def _of_sentinels(address: RedisAddress) -> RedisClients:
    of_sentinels = _common(address) | _tls(address)
    of_sentinels |= _credentials(address.sentinel_username, address.sentinel_password)
    of_master: dict[str, Any] = _common(address) | _tls(address) | {"db": address.db}
    hosts = list(address.hosts)

    def watched() -> Any:
        kwargs = of_sentinels | {"retry": AsyncRetry(NoBackoff(), 0)}
        return _ASYNC_SENTINEL(hosts, sentinel_kwargs=kwargs, **of_master)

    async def close_all(sentinel: Any, client: Any) -> None:
        await client.aclose()
        for one in sentinel.sentinels:
            await one.aclose()

    def connect() -> tuple[Any, Callable[[], Awaitable[None]]]:
        sentinel = watched()
        client = sentinel.master_for(address.service, retry=AsyncRetry(NoBackoff(), 0))
        return client, lambda: close_all(sentinel, client)

    async def listen() -> Any:
        sentinel = watched()
        try:
            host, port = await sentinel.discover_master(address.service)
        finally:
            for one in sentinel.sentinels:
                await one.aclose()
        # Of the master as it is now: once it is another one, listening begins anew.
        return aioredis.Redis(host=host, port=port, retry=AsyncRetry(NoBackoff(), 0), **of_master)

    def beat() -> Any:
        kwargs = of_sentinels | {"retry": Retry(NoBackoff(), 0)}
        sentinel = _SENTINEL(hosts, sentinel_kwargs=kwargs, **of_master)
        return sentinel.master_for(address.service, retry=Retry(NoBackoff(), 0))

    commands, close = connect()
    return RedisClients(commands, listen, beat, close)


def _of_cluster(address: RedisAddress) -> RedisClients:
    options = _common(address) | _tls(address)
    commands = aiocluster.RedisCluster(
        startup_nodes=[aiocluster.ClusterNode(host, port) for host, port in address.hosts],
        max_connections=address.options.max_connections,
        **options,
    )

    async def listen() -> Any:
        await commands.initialize()
        # What is published reaches every node.
        node = commands.get_random_node()
        return aioredis.Redis(
            host=node.host, port=int(node.port), retry=AsyncRetry(NoBackoff(), 0), **options
        )

    def beat() -> Any:
        nodes = [_NODE(host, port) for host, port in address.hosts]
        return RedisCluster(startup_nodes=nodes, **options)

    return RedisClients(commands, listen, beat, commands.aclose)


def _common(address: RedisAddress) -> dict[str, Any]:
    options = address.options
    return {
        **_credentials(address.username, address.password),
        "socket_timeout": options.socket_timeout.total_seconds(),
        "socket_connect_timeout": options.connect_timeout.total_seconds(),
        "client_name": options.client_name or None,
    }


def _credentials(username: str | None, password: str | None) -> dict[str, Any]:
    """By a provider, as clients show the arguments that they were given."""
    given = username is not None or password is not None
    provider = UsernamePasswordCredentialProvider(username, password or "") if given else None
    return {"credential_provider": provider}


def _tls(address: RedisAddress) -> dict[str, Any]:
    return {"ssl": True, **address.tls} if address.is_tls else {}
