"""What a test asks for to get a Valkey or Redis."""

import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

import pytest

from stagewright_test_support.fixtures import shared_address
from stagewright_test_support.servers import (
    LoopbackCertificate,
    RedisCluster,
    RedisDatabases,
    RedisSentinel,
    RedisServer,
)
from stagewright_test_support.starting import starting

__all__ = [
    "StartRedis",
    "StartRedisCluster",
    "StartRedisSentinel",
    "loopback_certificate",
    "oldest_redis_url",
    "redis_cluster",
    "redis_prefix",
    "redis_sentinel",
    "redis_server",
    "redis_url",
    "system_redis_url",
    "valkey_url",
]


class StartRedis(Protocol):
    """Starts a Valkey or Redis for one test; the fixture stops it."""

    def __call__(
        self,
        kind: str = "valkey",
        *,
        durable: bool = False,
        settings: Mapping[str, str] | None = None,
        users: Mapping[str, str] | None = None,
        tls: LoopbackCertificate | None = None,
    ) -> RedisServer: ...


class StartRedisSentinel(Protocol):
    """Starts a Sentinel with a primary and a replica for one test; the fixture stops them."""

    def __call__(
        self, kind: str = "valkey", *, settings: Mapping[str, str] | None = None
    ) -> RedisSentinel: ...


class StartRedisCluster(Protocol):
    """Starts a cluster of three nodes for one test; the fixture stops them."""

    def __call__(
        self, kind: str = "valkey", *, settings: Mapping[str, str] | None = None
    ) -> RedisCluster: ...


@pytest.fixture(scope="module")
def valkey_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a database of Valkey for one test module, `redis://127.0.0.1:PORT/NUMBER`."""
    yield from _lent(request, "valkey")


@pytest.fixture(scope="module")
def redis_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a database of Redis 8 for one test module, `redis://127.0.0.1:PORT/NUMBER`."""
    yield from _lent(request, "redis")


@pytest.fixture(scope="module")
def oldest_redis_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a database of Redis 6.2 for one test module, `redis://127.0.0.1:PORT/NUMBER`."""
    yield from _lent(request, "oldest-redis")


@pytest.fixture(scope="module")
def system_redis_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a database of the system's Redis for one test module, `redis://127.0.0.1:PORT/NUMBER`."""
    yield from _lent(request, "system-redis")


@pytest.fixture
def redis_prefix() -> str:
    """A word that no other test begins its keys and channels with."""
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture
def redis_server() -> Iterator[StartRedis]:
    """Starts servers for one test, which may kill them; `durable=True` keeps what is answered."""
    with starting(RedisServer.start) as start:
        yield start


@pytest.fixture
def redis_sentinel() -> Iterator[StartRedisSentinel]:
    """Starts Sentinels for one test, each over a primary and a replica that it may kill."""
    with starting(RedisSentinel.start) as start:
        yield start


@pytest.fixture
def redis_cluster() -> Iterator[StartRedisCluster]:
    """Starts clusters for one test, each of three nodes that it may kill."""
    with starting(RedisCluster.start) as start:
        yield start


@pytest.fixture
def loopback_certificate(tmp_path: Path) -> LoopbackCertificate:
    """A certificate for servers on the loopback address, by an authority of the test's own."""
    return LoopbackCertificate.make(tmp_path)


def _lent(request: pytest.FixtureRequest, kind: str) -> Iterator[str]:
    databases = RedisDatabases.at(shared_address(request.config, kind))
    url = databases.lend()
    yield url
    databases.take_back(url)
