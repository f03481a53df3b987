"""The jobs of one namespace on one server, as all handles on them in this process share it."""

import asyncio
import logging
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, Final

from stagewright_transport_redis.connecting import RedisClients
from stagewright_transport_redis.heartbeats import RedisHeartbeats
from stagewright_transport_redis.listening import Listener
from stagewright_transport_redis.naming import prefix_of
from stagewright_transport_redis.scripts import ScriptRunner
from stagewright_transport_redis.work_channel import WorkChannel

__all__ = ["Namespace"]

_log: Final = logging.getLogger("stagewright.transport.redis")


class Namespace:
    """Connections, scripts and notifications.

    Args:
        clients: What to connect by.
        namespace: Its name.
        place: The server as it may be shown.
        keep_ended: How long a job that has ended is kept.

    Attributes:
        scripts: Runs scripts on its keys.
        work: Wakes those who wait in this process.
        listener: Hears of other processes.
    """

    def __init__(self, clients: RedisClients, namespace: str, place: str, keep_ended: timedelta) -> None:
        prefix = prefix_of(namespace)
        self.name = namespace
        self.place = place
        self.keep_ended = keep_ended
        self.scripts = ScriptRunner(clients.commands, prefix, place)
        self.work = WorkChannel()
        self.channel = f"{prefix}work"
        self.listener = Listener(clients.listening, self.channel, self.work.tell)
        self._clients = clients
        self._unfinished = set[asyncio.Task[None]]()

    @property
    def client(self) -> Any:  # Any: clients share no useful type
        """The client for commands."""
        return self._clients.commands

    def heartbeats(self) -> RedisHeartbeats | None:
        """A channel that renews leases from threads; None where there is no way to another connection."""
        connect = self._clients.heartbeats
        return None if connect is None else RedisHeartbeats(connect, self.scripts.prefix, self.place)

    def finish(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something though nobody waits for it any more; what fails is logged."""
        task = asyncio.create_task(work)
        self._unfinished.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: "asyncio.Task[None]") -> None:
        self._unfinished.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.warning("what a cancelled claim may have taken comes back when its lease ends: %s", error)

    async def close(self) -> None:
        """Stop listening, and close the connections that are its own."""
        await asyncio.gather(*self._unfinished, return_exceptions=True)
        self.work.close()
        await self.listener.stop()
        await self._clients.close()
