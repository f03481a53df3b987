"""The scripts, and running them wherever their keys are."""

import asyncio
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any, Final

from stagewright_transport_redis.errors import is_repeatable, needs_another_connection, translated
from stagewright_transport_redis.sending import CallSender, Script

__all__ = ["ScriptRunner", "packed", "script"]

_PAUSES: Final = (0.05, 0.3)
"""Seconds before a call is repeated, which every script bears."""

_PARTS: Final = {"enqueue": ("new_jobs", "enqueue"), "resume": ("new_jobs", "resume")}


@cache
def script(name: str) -> Script:
    """The script of that name, with the library before it."""
    folder = files("stagewright_transport_redis") / "scripts"
    parts = ("library", *_PARTS.get(name, (name,)))
    text = "\n".join((folder / f"{part}.lua").read_text(encoding="utf-8") for part in parts)
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


class ScriptRunner:
    """Runs scripts on the keys of one namespace.

    Args:
        client: An asynchronous client: of a server, of a master that sentinels watch, or of a cluster.
        prefix: What the namespace's keys begin with.
        place: The server as it may be shown.
    """

    def __init__(self, client: Any, prefix: str, place: str) -> None:  # Any: clients share no useful type
        self._client = client
        self._calls = CallSender(client, prefix)
        self.prefix = prefix
        self.place = place

    async def run(self, name: str, *arguments: str | int) -> Any:  # Any: whatever the script answers
        """Run a script, and again if the connection was lost or the server replaced meanwhile.

        Raises:
            RedisUnavailableError, RedisRefusedError: See there.
        """
        values = [packed(argument) for argument in arguments]
        with translated(self.place):
            for pause in _PAUSES:
                try:
                    return await self._calls.send(script(name), values)
                except Exception as error:
                    if not is_repeatable(error):
                        raise
                    if needs_another_connection(error):
                        await self._connect_anew()
                await asyncio.sleep(pause)
            return await self._calls.send(script(name), values)

    async def _connect_anew(self) -> None:
        """Leave connections that lead to a server that was replaced, or nowhere, as those beside the one in use may."""
        pool = getattr(self._client, "connection_pool", None)
        if pool is not None:
            await pool.disconnect(inuse_connections=False)


def packed(value: str | int) -> bytes:
    """An argument as the server gets it, whatever the client's own encoding is."""
    return str(value).encode("utf-8", "surrogatepass")
