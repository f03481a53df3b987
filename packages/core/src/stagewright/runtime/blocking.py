"""`ctx` of a plain `def` body: the same as of an `async def` body, with calls that block its thread."""

import asyncio
import threading
from collections.abc import Coroutine
from functools import cached_property
from typing import Any, TypeVar, overload

from stagewright.json_values import Json
from stagewright.ports import ActivityRun
from stagewright.runtime.contexts import ContextFacts
from stagewright.runtime.reports import StageReports
from stagewright.runtime.storage import PrefixedStorage

__all__ = ["BlockingContext", "BlockingStorage", "LoopPortal"]

R = TypeVar("R")
V = TypeVar("V")


class LoopPortal:
    """Lets a thread await something on the event loop that started it; it is made on that loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = threading.get_ident()

    def call(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine on the loop and wait for its result.

        Raises:
            RuntimeError: If the loop has ended, or this is called on the loop's own thread.
        """
        if self._loop.is_closed():
            work.close()
            raise RuntimeError(
                "the event loop that started this stage has ended; its context can't be used any more"
            )
        if threading.get_ident() == self._thread:
            work.close()
            raise RuntimeError(
                "a blocking context can't be used on the event loop's own thread; it would wait forever"
            )
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class BlockingStorage:
    """A `BlockingStageStorage` over the storage of an `async def` body."""

    def __init__(self, storage: PrefixedStorage, portal: LoopPortal) -> None:
        self._storage = storage
        self._portal = portal

    def save(self, key: str, value: object) -> None:
        """Store a JSON value, or a value whose type has a JSON form."""
        self._portal.call(self._storage.save(key, value))

    @overload
    def load(self, key: str, type: type[V]) -> V: ...
    @overload
    def load(self, key: str, type: None = None) -> Json: ...
    def load(self, key: str, type: type[V] | None = None) -> V | Json:
        """Read a value back, as plain JSON or as the given type."""
        return self._portal.call(self._storage.load(key) if type is None else self._storage.load(key, type))

    def save_bytes(self, key: str, data: bytes) -> None:
        """Store bytes."""
        self._portal.call(self._storage.save_bytes(key, data))

    def load_bytes(self, key: str) -> bytes:
        """Read bytes back."""
        return self._portal.call(self._storage.load_bytes(key))

    def exists(self, key: str) -> bool:
        """Whether something is stored under the key."""
        return self._portal.call(self._storage.exists(key))

    def delete(self, key: str) -> None:
        """Remove what is stored under the key, if anything is."""
        self._portal.call(self._storage.delete(key))

    def keys(self, prefix: str = "") -> list[str]:
        """The keys that start with the prefix, sorted."""
        return self._portal.call(self._storage.keys(prefix))


class BlockingContext(ContextFacts):
    """A `BlockingStageContext`."""

    def __init__(
        self, activity: ActivityRun, reports: StageReports, *, input: Any, config: Any, portal: LoopPortal
    ) -> None:
        super().__init__(activity, reports, input=input, config=config)
        self._portal = portal

    @cached_property
    def storage(self) -> BlockingStorage:
        """Blobs of this stage."""
        resources = self._activity.resources
        return BlockingStorage(PrefixedStorage(resources.blob_store, resources.storage_prefix), self._portal)
