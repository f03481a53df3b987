"""Learning over a connection of its own that there is something to do."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final, TypeAlias

__all__ = ["Listener", "OpenListening"]

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
_CONNECT_WITHIN: Final = 10.0
_QUIET: Final = 3.0
"""Seconds of silence after which the server is asked for a sign of life, and has to give one."""

_log: Final = logging.getLogger("stagewright.transport.redis")

OpenListening: TypeAlias = Callable[[], Awaitable[Any]]
"""Gives a client of one server that nobody else uses."""


class Listener:
    """A task that listens, and begins anew whenever its connection is lost.

    Args:
        connect: Gives the client to listen by; the listener closes it.
        channel: The channel's name.
        tell: Called for every notification, and whenever it begins to hear, since something may have come before.
    """

    def __init__(self, connect: OpenListening, channel: str, tell: Callable[[], None]) -> None:
        self._connect = connect
        self._channel = channel
        self._tell = tell
        self._task: asyncio.Task[None] | None = None
        self._is_reported = False
        self.is_healthy = False
        self.last_error: str | None = None

    def start(self) -> None:
        """Begin to listen on the running event loop, unless that has happened."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="stagewright-redis-listener")

    async def stop(self) -> None:
        """Stop listening."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self.is_healthy = False

    async def _run(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            try:
                await self._listen()
            except Exception as error:  # whatever it was, another connection may do better
                self.last_error = f"{type(error).__name__}: {error}"
            if self.is_healthy:
                pause = _FIRST_PAUSE
            self.is_healthy = False
            if not self._is_reported:
                self._is_reported = True
                _log.warning("notifications are lost until Redis can be listened to: %s", self.last_error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _listen(self) -> None:
        async with asyncio.timeout(_CONNECT_WITHIN):
            client = await self._connect()
        async with aclosing(client):
            subscription = client.pubsub()
            async with aclosing(subscription):
                async with asyncio.timeout(_CONNECT_WITHIN):
                    await subscription.subscribe(self._channel)
                await self._hear(subscription)

    async def _hear(self, subscription: Any) -> None:  # Any: the client's own types are of no use
        is_asked = False
        while True:
            message = await subscription.get_message(timeout=_QUIET)
            if message is not None:
                is_asked = False
                if message["type"] == "subscribe":
                    self._begun()
                elif message["type"] == "message":
                    self._tell()
            elif is_asked:
                # A connection that died without a word is found out by this.
                raise TimeoutError(f"the server gave no sign of life within {_QUIET:g} s")
            else:
                is_asked = True
                async with asyncio.timeout(_QUIET):
                    await subscription.ping()

    def _begun(self) -> None:
        if self._is_reported:
            _log.info("listening to Redis again")
        self._is_reported = False
        self.last_error = None
        self.is_healthy = True
        # Whatever came while nobody listened is found by a look; so this counts as a notification.
        self._tell()
