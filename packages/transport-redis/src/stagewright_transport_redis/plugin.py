"""What this distribution adds to Stagewright: the job transport for `redis://` and its relatives.

Every `stagewright` command loads this module. So whatever needs the client is imported when a URL is opened.
"""

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from functools import partial

from stagewright.plugins import AdapterOptions, AdapterRegistry, AdapterSet, ConformanceTarget, hookimpl
from stagewright_transport_redis.redis_url import SCHEMES

__all__ = [
    "contents",
    "empty",
    "open_redis",
    "stagewright_conformance_targets",
    "stagewright_register_adapters",
]


def open_redis(url: str, options: AdapterOptions) -> AbstractAsyncContextManager[AdapterSet]:
    """Open Redis or Valkey as a job transport.

    Raises:
        InvalidSettingError: If the URL can't be used.
        RedisUnavailableError, RedisRefusedError: If the server can't be reached, or refuses.
    """
    from stagewright_transport_redis import opening

    return opening.open_redis(url, options)


@hookimpl
def stagewright_register_adapters(registry: AdapterRegistry) -> None:
    """Open `redis://`, `rediss://`, `valkey://`, `valkeys://`, each with `+sentinel` and `+cluster`, and `unix://`."""
    for scheme in SCHEMES:
        registry.add(scheme, open_redis)


async def contents(url: str) -> str | None:
    """What the namespace of a URL holds, in a few words; None for nothing. Nothing is changed."""
    from stagewright_transport_redis import emptying

    return await emptying.contents(url)


async def empty(url: str) -> None:
    """Delete every key of the namespace of a URL."""
    from stagewright_transport_redis import emptying

    await emptying.empty(url)


@hookimpl
def stagewright_conformance_targets() -> Iterable[ConformanceTarget]:
    """Redis and Valkey."""
    target = partial(ConformanceTarget, holds=contents, empty=empty)
    return (
        target(name="Redis", url="redis://{server}", server="redis", schemes=("rediss", "unix")),
        target(name="Valkey", url="valkey://{server}", server="valkey", schemes=("valkeys",)),
    )
