"""The pytest plugin of this repository, loaded through its `pytest11` entry point."""

import signal
from typing import Protocol

import pytest

from stagewright_test_support.fixtures import (
    SERVERS,
    mariadb_server,
    mariadb_url,
    pgbouncer_server,
    pgbouncer_url,
    postgres_server,
    postgres_url,
    sqlite_url,
)
from stagewright_test_support.object_store_fixtures import (
    gcs_address,
    moto_address,
    s3_address,
)
from stagewright_test_support.redis_fixtures import (
    loopback_certificate,
    oldest_redis_url,
    redis_cluster,
    redis_prefix,
    redis_sentinel,
    redis_server,
    redis_url,
    system_redis_url,
    valkey_url,
)
from stagewright_test_support.servers import SharedServers
from stagewright_test_support.services import missing_backends, required_backends

__all__ = [
    "gcs_address",
    "loopback_certificate",
    "mariadb_server",
    "mariadb_url",
    "moto_address",
    "oldest_redis_url",
    "pgbouncer_server",
    "pgbouncer_url",
    "postgres_server",
    "postgres_url",
    "pytest_configure",
    "pytest_configure_node",
    "pytest_unconfigure",
    "redis_cluster",
    "redis_prefix",
    "redis_sentinel",
    "redis_server",
    "redis_url",
    "s3_address",
    "sqlite_url",
    "system_redis_url",
    "valkey_url",
]

_HANDOUT = "stagewright_servers"


class _Node(Protocol):
    """What xdist's controller knows of a worker."""

    config: pytest.Config
    workerinput: dict[str, object]


def pytest_configure(config: pytest.Config) -> None:
    """Makes the marker known and refuses to start without a required backend."""
    config.addinivalue_line(
        "markers", "guarantee(slug): the test proves the promise of that slug in docs/guarantees"
    )
    # Where a shell starts it in the background, SIGINT is ignored, also by every process that a test starts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    missing = missing_backends(required_backends())
    if missing:
        raise pytest.UsageError("required backends are missing:\n  " + "\n  ".join(missing))
    config.stash[SERVERS] = SharedServers(getattr(config, "workerinput", {}).get(_HANDOUT))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: _Node) -> None:
    """Starts the servers before the first xdist worker and tells each worker where they are."""
    node.workerinput[_HANDOUT] = node.config.stash[SERVERS].hand_out()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stops the servers that this process started."""
    servers = config.stash.get(SERVERS, None)
    if servers is not None:
        servers.stop()
