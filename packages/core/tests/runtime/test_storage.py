"""`ctx.storage`: a stage's values under its own prefix, and nobody else's."""

from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel

from stagewright.errors import BlobNotFoundError, SchemaMismatchError, ValueNotSerializableError
from stagewright.memory import InMemoryBlobStore
from stagewright.runtime.storage import PrefixedStorage


class Invoice(BaseModel):
    due: date
    rows: list[int] = []


@pytest.fixture
def storage(blob_store: InMemoryBlobStore) -> PrefixedStorage:
    return PrefixedStorage(blob_store, "run/s/storage/")


@pytest.mark.parametrize("value", [None, True, 0, 1.5, "ü\U0001f600", [], {"a": [{"b": None}]}])
async def test_json_comes_back_as_it_was(storage: PrefixedStorage, value: Any) -> None:
    await storage.save("k", value)
    loaded = await storage.load("k")
    assert loaded == value
    assert type(loaded) is type(value)


async def test_a_typed_value_comes_back_as_its_type(storage: PrefixedStorage) -> None:
    invoice = Invoice(due=date(2025, 1, 2), rows=[1])
    await storage.save("k", invoice)
    assert await storage.load("k", Invoice) == invoice
    assert await storage.load("k") == {"due": "2025-01-02", "rows": [1]}
    await storage.save("day", date(2025, 1, 2))
    assert await storage.load("day", date) == date(2025, 1, 2)
    with pytest.raises(SchemaMismatchError, match="the value stored as 'k'"):
        await storage.load("k", int)


@pytest.mark.parametrize("value", [object(), float("nan"), {1: 2}, "nul\x00", [lambda: 1]])
async def test_what_has_no_json_form_is_refused(
    storage: PrefixedStorage, blob_store: InMemoryBlobStore, value: object
) -> None:
    with pytest.raises((ValueNotSerializableError, SchemaMismatchError)):
        await storage.save("k", value)
    assert [key async for key in blob_store.list("")] == []


async def test_bytes_come_back_exactly(storage: PrefixedStorage) -> None:
    data = bytes(range(256))
    await storage.save_bytes("raw", data)
    assert await storage.load_bytes("raw") == data


async def test_what_is_not_there(storage: PrefixedStorage) -> None:
    assert not await storage.exists("k")
    await storage.delete("k")
    for load in (storage.load, storage.load_bytes):
        with pytest.raises(BlobNotFoundError):
            await load("k")


async def test_keys_are_listed_without_the_prefix_and_only_this_stages(
    storage: PrefixedStorage, blob_store: InMemoryBlobStore
) -> None:
    for key in ("b", "a/2", "a/1", "a_3", "run/s/storage/x"):
        await storage.save(key, 1)
    await blob_store.put("run/s/storage2", b"")
    await blob_store.put("run/other/storage/z", b"")
    assert await storage.keys() == ["a/1", "a/2", "a_3", "b", "run/s/storage/x"]
    assert await storage.keys("a/") == ["a/1", "a/2"]
    assert await storage.keys("A") == []
    await storage.delete("a/1")
    assert await storage.keys("a/") == ["a/2"]
    assert await storage.exists("a/2")
