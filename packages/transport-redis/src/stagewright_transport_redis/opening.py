"""Opening a URL: whether the server is there and can be used is found out at once."""

import logging
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from stagewright.plugins import AdapterOptions, AdapterSet
from stagewright_transport_redis.errors import RedisRefusedError
from stagewright_transport_redis.job_transport import RedisJobTransport

__all__ = ["open_redis"]

_LEAST: Final = (6, 2)
_log: Final = logging.getLogger("stagewright.transport.redis")


@asynccontextmanager
async def open_redis(url: str, options: AdapterOptions) -> AsyncIterator[AdapterSet]:
    """What `plugin.open_redis` gives; its promises and errors stand there."""
    async with RedisJobTransport.from_url(url, fairness=options.fairness) as transport:
        _check(await transport.server(), transport)
        yield AdapterSet(job_transport=transport)


def _check(server: Mapping[str, str], transport: Any) -> None:
    version = server.get("redis_version", "")
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if numbers and numbers < _LEAST:
        problem = f"{transport!r} is Redis {version}; Redis 6.2 or later, or Valkey, is needed"
        raise RedisRefusedError(problem)
    policy = server.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        _log.warning(
            "%r may throw jobs away when its memory is full (maxmemory-policy %s); set it to noeviction",
            transport,
            policy,
        )
