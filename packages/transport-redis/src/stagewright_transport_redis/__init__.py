"""Stagewright's job transport on Redis and Valkey. A name is imported, and redis-py with it, when it is first used."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stagewright_transport_redis.errors import RedisRefusedError, RedisUnavailableError
    from stagewright_transport_redis.job_transport import RedisJobTransport
else:
    _HOMES = {
        "RedisJobTransport": "job_transport",
        "RedisRefusedError": "errors",
        "RedisUnavailableError": "errors",
    }

    def __getattr__(name):
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *_HOMES})


__all__ = ["RedisJobTransport", "RedisRefusedError", "RedisUnavailableError"]
