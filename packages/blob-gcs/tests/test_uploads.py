"""Large blobs in parts: whole or not at all, and nothing is left lying about."""

import asyncio
import gc
from collections.abc import Callable
from dataclasses import replace
from threading import Event
from typing import Any

import pytest

from stagewright import vendor_threads
from stagewright.errors import BlobAccessDeniedError
from stagewright_blob_gcs import GcsBlobStore
from stagewright_test_support.faulty_http import Fault, open_faulty_http

Open = Callable[..., GcsBlobStore]
PART = 256 << 10


async def write(store: GcsBlobStore, key: str, *pieces: bytes) -> None:
    async with store.open_write(key, content_type="text/x-test") as writer:
        for piece in pieces:
            await writer.write(piece)


async def read(store: GcsBlobStore, key: str) -> bytes:
    async with store.open_read(key) as reader:
        return await reader.read()


@pytest.mark.parametrize("size", [0, 1, PART - 1, PART, PART + 1, 2 * PART, 2 * PART + 1, 5 * PART])
async def test_any_size_comes_back(service: Any, open_store: Open, size: int) -> None:
    store = open_store(service, part_size=PART)
    data = (bytes(range(251)) * (size // 251 + 1))[:size]
    await write(store, "k", data)
    assert await store.get("k") == data
    assert await read(store, "k") == data
    client = service.client()
    prefix = repr(store).rpartition("/")[2].rstrip("')")
    assert client.bucket(service.bucket).get_blob(f"{prefix}/k").content_type == "text/x-test"
    client.close()


@pytest.mark.guarantee("blobs.aborted-uploads-leave-nothing")
@pytest.mark.parametrize("cause", [LookupError, asyncio.CancelledError, KeyboardInterrupt])
async def test_a_block_that_raises_ends_its_upload(
    service: Any, open_store: Open, cause: type[BaseException]
) -> None:
    with open_faulty_http(service.address) as proxy:
        store = open_store(replace(service, address=proxy.address), part_size=PART)

        async def fail() -> None:
            async with store.open_write("k") as writer:
                await writer.write(b"x" * (2 * PART + 1))
                raise cause

        with pytest.raises(cause):
            await fail()
        assert not await store.has("k")
        ended = [one for one in proxy.seen if one.method == "DELETE"]
        assert len(ended) == 1
        assert "upload_id=" in ended[0].path


@pytest.mark.guarantee("blobs.aborted-uploads-leave-nothing")
async def test_a_writer_that_is_cancelled_while_it_sends_ends_its_upload(
    service: Any, open_store: Open
) -> None:
    goes_on = Event()
    with open_faulty_http(service.address) as proxy:
        proxy.expect(Fault(method="PUT", within="upload_id", holds=goes_on))
        store = open_store(replace(service, address=proxy.address), part_size=PART)
        writing = asyncio.create_task(write(store, "k", b"x" * (3 * PART)))
        await asyncio.to_thread(proxy.wait_for, "PUT", "upload_id")
        writing.cancel()
        await asyncio.sleep(0)
        goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await writing
        assert [one.method for one in proxy.seen if "upload_id" in one.path][-1] == "DELETE"
        assert not await store.has("k")


@pytest.mark.guarantee("blobs.aborted-uploads-leave-nothing")
async def test_an_upload_that_begins_when_its_writer_has_gone_is_ended(
    service: Any, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vendor_threads, "_SECONDS_OF_GRACE", 0.05)
    goes_on = Event()
    with open_faulty_http(service.address) as proxy:
        proxy.expect(Fault(method="POST", within="uploadType=resumable", holds=goes_on))
        store = open_store(replace(service, address=proxy.address), part_size=PART)
        writing = asyncio.create_task(write(store, "k", b"x" * (3 * PART)))
        await asyncio.to_thread(proxy.wait_for, "POST", "uploadType=resumable")
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        goes_on.set()
        await store.close()
        assert [one.method for one in proxy.seen if "upload_id" in one.path][-1:] == ["DELETE"]


@pytest.mark.guarantee("blobs.aborted-uploads-leave-nothing")
async def test_an_upload_that_could_not_begin_is_not_begun_by_the_garbage_collector(
    service: Any, open_store: Open
) -> None:
    """Google's file, when it is collected, sends what it holds as if that were all."""
    with open_faulty_http(service.address) as proxy:
        store = open_store(replace(service, address=proxy.address), part_size=PART)
        proxy.expect(Fault(method="POST", within="uploadType=resumable", status=403))
        with pytest.raises(BlobAccessDeniedError):
            await write(store, "k", b"x" * (3 * PART))
        before = len(proxy.seen)
        gc.collect()
        assert len(proxy.seen) == before
        assert not await store.has("k")


async def test_bytes_that_are_too_many_for_one_call_go_in_parts(service: Any, open_store: Open) -> None:
    """One after the other: that of two at once one wins, fake-gcs-server doesn't see to for uploads in parts."""
    store = open_store(service, part_size=PART)
    assert await store.put("k", b"a" * (9 << 20), if_absent=True)
    assert not await store.put("k", b"c" * (9 << 20), if_absent=True)
    assert await store.get("k") == b"a" * (9 << 20)
    assert await store.put("k", b"d" * (9 << 20))
    assert await store.get("k") == b"d" * (9 << 20)
