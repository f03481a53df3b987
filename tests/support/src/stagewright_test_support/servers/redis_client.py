"""One question to a Valkey or Redis on a loopback port, for what launchers and fixtures ask of it."""

from collections.abc import Callable
from contextlib import closing

__all__ = ["ask_redis"]


def ask_redis(port: int, *words: str | int, database: int = 0) -> object:
    """Sends one command, by a connection of its own, and returns what its client makes of the answer, in texts."""
    # The plugin is loaded where the servers' packages are missing, too.
    from redis import Redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    client = Redis(
        host="127.0.0.1",
        port=port,
        db=database,
        protocol=3,
        decode_responses=True,
        socket_timeout=10,
        retry=Retry(NoBackoff(), 0),
    )
    with closing(client):
        # The package leaves it without types.
        execute: Callable[..., object] = client.execute_command
        return execute(*words)
