"""Renewing leases over a connection of its own, from threads, past event loops that are busy."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from redis.exceptions import NoScriptError

from stagewright.records import HeldLease
from stagewright_transport_redis.encoding import fence_values
from stagewright_transport_redis.errors import is_repeatable, translated
from stagewright_transport_redis.scripts import packed, script

__all__ = ["RedisHeartbeats"]

_AT_ONCE: Final = 200


class RedisHeartbeats:
    """A `HeartbeatChannel` over a synchronous client.

    Args:
        connect: Gives a client that nobody else uses; it connects when it is used.
        prefix: What the namespace's keys begin with.
        place: The server as it may be shown.
    """

    def __init__(self, connect: Callable[[], Any], prefix: str, place: str) -> None:
        self._connect = connect
        self._prefix = prefix
        self._place = place
        self._client: Any = None  # Any: clients share no useful type
        self._turn = threading.Lock()
        self._closed = False

    def renew_many(self, leases: Sequence[HeldLease]) -> list[bool]:
        """Renew leases; where a delivery doesn't own its job any more, the answer is False."""
        _refuse_event_loop()
        with self._turn:
            if self._closed:
                raise RuntimeError("this heartbeat channel is closed; open another one")
            answers = list[bool]()
            for first in range(0, len(leases), _AT_ONCE):
                with translated(self._place):
                    answers += self._renew(leases[first : first + _AT_ONCE])
            return answers

    def close(self) -> None:
        """Close the connection."""
        with self._turn:
            self._closed = True
            self._forget_client()

    def _renew(self, leases: Sequence[HeldLease]) -> list[bool]:
        try:
            return self._renew_once(leases)
        except Exception as error:
            if not is_repeatable(error):
                raise
            # The connection may have been lost since the last beat, which only using it shows.
            self._forget_client()
            return self._renew_once(leases)

    def _renew_once(self, leases: Sequence[HeldLease]) -> list[bool]:
        if self._client is None:
            self._client = self._connect()
        values = [packed(value) for lease in leases for value in (lease.job_id, *fence_values(lease.fence))]
        renew = script("renew")
        try:
            answers = self._client.evalsha(renew.digest, 1, self._prefix, *values)
        except NoScriptError:
            answers = self._client.eval(renew.text, 1, self._prefix, *values)
        return [bool(answer) for answer in answers]

    def _forget_client(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


def _refuse_event_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError("an event loop runs in this thread; renew leases from a thread of its own")
