"""Several Valkeys or Redises that must find each other, and end together."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from stagewright_test_support.servers.errors import ServerError
from stagewright_test_support.servers.redis import RedisServer

__all__ = ["RedisGroup"]

_SECONDS_TO_AGREE = 30.0


class RedisGroup:
    """Servers of one kind, which end with this process at the latest.

    Every method blocks; in a coroutine, call it through `asyncio.to_thread`.

    Attributes:
        servers: Those that hold data, to be killed and started again.
    """

    def __init__(self, servers: tuple[RedisServer, ...], started: ExitStack) -> None:
        self.servers = servers
        self._started = started

    def stop(self) -> None:
        """Ends all servers and removes their folders; again, it does nothing."""
        self._started.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _wait_until(self, agreed: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + _SECONDS_TO_AGREE
        while not agreed():
            if time.monotonic() > deadline:
                raise ServerError(self.servers[0].kind, f"{otherwise} after {_SECONDS_TO_AGREE:g} s")
            time.sleep(0.02)
