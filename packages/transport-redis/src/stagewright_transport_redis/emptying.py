"""What a namespace holds, and emptying it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from stagewright_transport_redis.connecting import clients_of
from stagewright_transport_redis.errors import translated
from stagewright_transport_redis.naming import prefix_of
from stagewright_transport_redis.redis_url import address_of

__all__ = ["contents", "empty"]


async def contents(url: str) -> str | None:
    """What the namespace of a URL holds, in a few words; None for nothing. Nothing is changed."""
    async with _opened(url) as (client, prefix):
        jobs = await client.zcard(f"{prefix}all")
    return f"{jobs} jobs" if jobs else None


async def empty(url: str) -> None:
    """Delete every key of the namespace of a URL."""
    async with _opened(url) as (client, prefix):
        found = [key async for key in client.scan_iter(match=f"{prefix}*", count=1_000)]
        for first in range(0, len(found), 500):
            await client.unlink(*found[first : first + 500])


@asynccontextmanager
async def _opened(url: str) -> AsyncIterator[tuple[Any, str]]:
    address = address_of(url)
    clients = clients_of(address)
    try:
        with translated(address.shown):
            yield clients.commands, prefix_of(address.options.namespace)
    finally:
        await clients.close()
