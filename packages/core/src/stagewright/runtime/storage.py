"""`ctx.storage`: a stage's own part of the blob store."""

import json
from typing import Any, TypeVar, overload

from stagewright.definitions import Schema
from stagewright.json_values import Json
from stagewright.ports import BlobStore
from stagewright.runtime.claim_check import encoded

__all__ = ["PrefixedStorage"]

V = TypeVar("V")


class PrefixedStorage:
    """Blobs under one prefix.

    Args:
        blob_store: The store.
        prefix: What every key starts with in the store; callers neither give nor see it.
    """

    def __init__(self, blob_store: BlobStore, prefix: str) -> None:
        self._blob_store = blob_store
        self._prefix = prefix

    async def save(self, key: str, value: object) -> None:
        """Store a JSON value, or a value whose type has a JSON form.

        Raises:
            ValueNotSerializableError: If it has none.
        """
        what = f"the value stored as {key!r}"
        stored = Schema.of(Any if _is_plain(value) else type(value)).dump(value, what=what)
        await self._blob_store.put(self._prefix + key, encoded(stored), content_type="application/json")

    @overload
    async def load(self, key: str, type: type[V]) -> V: ...
    @overload
    async def load(self, key: str, type: None = None) -> Json: ...
    async def load(self, key: str, type: type[V] | None = None) -> V | Json:
        """Read a value back, as plain JSON or as the given type.

        Raises:
            BlobNotFoundError: If nothing is stored under the key.
            SchemaMismatchError: If what is stored doesn't fit the type.
        """
        stored: Json = json.loads(await self._blob_store.get(self._prefix + key))
        return stored if type is None else Schema.of(type).load(stored, what=f"the value stored as {key!r}")

    async def save_bytes(self, key: str, data: bytes) -> None:
        """Store bytes."""
        await self._blob_store.put(self._prefix + key, data)

    async def load_bytes(self, key: str) -> bytes:
        """Read bytes back.

        Raises:
            BlobNotFoundError: If nothing is stored under the key.
        """
        return await self._blob_store.get(self._prefix + key)

    async def exists(self, key: str) -> bool:
        """Whether something is stored under the key."""
        return await self._blob_store.has(self._prefix + key)

    async def delete(self, key: str) -> None:
        """Remove what is stored under the key, if anything is."""
        await self._blob_store.delete(self._prefix + key)

    async def keys(self, prefix: str = "") -> list[str]:
        """The keys that start with the prefix, sorted."""
        found = [key async for key in self._blob_store.list(self._prefix + prefix)]
        return sorted(key.removeprefix(self._prefix) for key in found)


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str | list | dict)
