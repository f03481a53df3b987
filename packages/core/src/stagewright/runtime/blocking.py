"""`ctx` of a plain `def` body: the same as of an `async def` body, with calls that block its thread."""

from functools import cached_property
from typing import Any, TypeVar, overload

from stagewright.json_values import Json
from stagewright.ports import ActivityRun
from stagewright.runtime.blocking_portal import LoopPortal
from stagewright.runtime.contexts import ContextFacts
from stagewright.runtime.reports import StageReports
from stagewright.runtime.steps.calls import BlockingSteps
from stagewright.runtime.steps.invocation import StepInvocation
from stagewright.runtime.storage import PrefixedStorage

__all__ = ["BlockingContext", "BlockingStorage"]

V = TypeVar("V")


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
        self,
        activity: ActivityRun,
        reports: StageReports,
        *,
        input: Any,
        config: Any,
        portal: LoopPortal,
        steps: StepInvocation | None = None,
    ) -> None:
        super().__init__(activity, reports, input=input, config=config, steps=steps)
        self._portal = portal

    @cached_property
    def storage(self) -> BlockingStorage:
        """Blobs of this stage."""
        resources = self._activity.resources
        return BlockingStorage(PrefixedStorage(resources.blob_store, resources.storage_prefix), self._portal)

    @cached_property
    def step(self) -> BlockingSteps:
        """Durable steps."""
        return BlockingSteps(self._steps, self._portal)
