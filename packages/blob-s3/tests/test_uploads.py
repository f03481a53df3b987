"""Large blobs in parts: whole or not at all, and nothing is left lying about."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from threading import Event
from typing import Any

import pytest

from stagewright import vendor_threads
from stagewright.errors import BlobStoreRefusedError, BlobStoreUnavailableError
from stagewright_blob_s3 import S3BlobStore, blob_store, upload
from stagewright_test_support.faulty_http import Fault, open_faulty_http

Open = Callable[..., S3BlobStore]
PART = 5 << 20


def open_uploads(service: Any) -> list[dict[str, Any]]:
    client = service.client()
    found: list[dict[str, Any]] = client.list_multipart_uploads(Bucket=service.bucket).get("Uploads", [])
    client.close()
    return found


async def write(store: S3BlobStore, key: str, *pieces: bytes) -> None:
    async with store.open_write(key, content_type="text/x-test") as writer:
        for piece in pieces:
            await writer.write(piece)


async def read(store: S3BlobStore, key: str) -> bytes:
    async with store.open_read(key) as reader:
        return await reader.read()


@pytest.mark.parametrize("size", [0, 1, PART - 1, PART, PART + 1, 2 * PART, 2 * PART + 1])
async def test_any_size_comes_back(service: Any, open_store: Open, size: int) -> None:
    store = open_store(service, part_size=PART)
    data = (bytes(range(251)) * (size // 251 + 1))[:size]
    await write(store, "k", data)
    assert await store.get("k") == data
    assert await read(store, "k") == data
    assert open_uploads(service) == []


async def test_parts_are_of_one_size_and_keep_the_content_type(ministack: Any, open_store: Open) -> None:
    with open_faulty_http(ministack.address) as proxy:
        store = open_store(replace(ministack, address=proxy.address), part_size=PART)
        await write(store, "k", b"a" * 3, b"b" * (2 * PART), b"c" * 7)
    parts = [one for one in proxy.seen if "partNumber" in one.path]
    assert [one.size for one in parts] == [PART, PART, 10]
    assert all("x-amz-checksum-crc32" in map(str.lower, one.headers) for one in parts)
    client = ministack.client()
    prefix = repr(store).rpartition("/")[2].rstrip("')")
    assert client.head_object(Bucket=ministack.bucket, Key=f"{prefix}/k")["ContentType"] == "text/x-test"
    client.close()


@pytest.mark.guarantee("blobs.aborted-uploads-leave-nothing")
@pytest.mark.parametrize("cause", [LookupError, asyncio.CancelledError, KeyboardInterrupt])
async def test_a_block_that_raises_leaves_no_part(
    service: Any, open_store: Open, cause: type[BaseException]
) -> None:
    store = open_store(service, part_size=PART)

    async def fail() -> None:
        async with store.open_write("k") as writer:
            await writer.write(b"x" * (2 * PART + 1))
            assert len(open_uploads(service)) == 1
            raise cause

    with pytest.raises(cause):
        await fail()
    assert open_uploads(service) == []
    assert not await store.has("k")


@pytest.mark.guarantee("blobs.aborted-uploads-leave-nothing")
async def test_a_writer_that_is_cancelled_while_it_sends_leaves_no_part(
    ministack: Any, open_store: Open
) -> None:
    goes_on = Event()
    with open_faulty_http(ministack.address) as proxy:
        proxy.expect(Fault(method="PUT", within="partNumber=2", holds=goes_on))
        store = open_store(replace(ministack, address=proxy.address), part_size=PART)
        writing = asyncio.create_task(write(store, "k", b"x" * (3 * PART)))
        await asyncio.to_thread(proxy.wait_for, "PUT", "partNumber=2")
        writing.cancel()
        await asyncio.sleep(0)
        goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await writing
        assert open_uploads(ministack) == []
        assert not await store.has("k")
        assert [one.method for one in proxy.seen if "uploadId" in one.path][-1] == "DELETE"


@pytest.mark.guarantee("blobs.aborted-uploads-leave-nothing")
async def test_an_upload_that_begins_when_its_writer_has_gone_leaves_no_part(
    ministack: Any, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vendor_threads, "_SECONDS_OF_GRACE", 0.05)
    goes_on = Event()
    with open_faulty_http(ministack.address) as proxy:
        proxy.expect(Fault(method="POST", within="uploads", holds=goes_on))
        store = open_store(replace(ministack, address=proxy.address), part_size=PART)
        writing = asyncio.create_task(write(store, "k", b"x" * (3 * PART)))
        await asyncio.to_thread(proxy.wait_for, "POST", "uploads")
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        goes_on.set()
        await store.close()
        assert [one.method for one in proxy.seen] == ["POST", "DELETE"]
    assert open_uploads(ministack) == []


async def test_where_even_that_fails_the_error_says_so(ministack: Any, open_store: Open) -> None:
    refused = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"
    with open_faulty_http(ministack.address) as proxy:
        proxy.expect(Fault(method="DELETE", status=403, body=refused))
        store = open_store(replace(ministack, address=proxy.address), part_size=PART)

        async def fail() -> None:
            async with store.open_write("k") as writer:
                await writer.write(b"x" * (PART + 1))
                raise LookupError("mine")

        with pytest.raises(LookupError, match="mine") as caught:
            await fail()
    [note] = caught.value.__notes__
    assert "parts of 'k' are left in the bucket" in note
    assert "AccessDenied" in note


@pytest.mark.guarantee("blobs.first-writer-survives-lost-answers")
async def test_a_blob_whose_last_answer_was_lost_is_there(ministack: Any, open_store: Open) -> None:
    with open_faulty_http(ministack.address) as proxy:
        proxy.expect(Fault(method="POST", within="uploadId", loses_answer=True))
        store = open_store(replace(ministack, address=proxy.address), part_size=PART)
        await write(store, "k", b"x" * (PART + 1))
        assert proxy.left == 0
        assert await store.get("k") == b"x" * (PART + 1)


async def test_an_upload_that_somebody_has_ended_is_to_be_written_again(
    ministack: Any, open_store: Open
) -> None:
    store = open_store(ministack, part_size=PART)
    client = ministack.client()

    async def write_and_lose() -> None:
        async with store.open_write("k") as writer:
            await writer.write(b"x" * (PART + 1))
            for one in open_uploads(ministack):
                client.abort_multipart_upload(
                    Bucket=ministack.bucket, Key=one["Key"], UploadId=one["UploadId"]
                )

    with pytest.raises((BlobStoreUnavailableError, BlobStoreRefusedError)):
        await write_and_lose()
    client.close()
    assert not await store.has("k")


async def test_more_parts_than_there_may_be_are_refused_with_the_fix(
    ministack: Any, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload, "_MOST_PARTS", 2)
    store = open_store(ministack, part_size=PART)
    with pytest.raises(BlobStoreRefusedError, match=r"more than 2 parts .* set a larger part_size"):
        await write(store, "k", b"x" * (3 * PART))
    assert open_uploads(ministack) == []


async def test_bytes_that_are_too_many_for_one_call_go_in_parts(
    service: Any, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blob_store, "_MOST_BY_ONE_CALL", PART)
    store, rival = (
        open_store(service, prefix="p", part_size=PART),
        open_store(service, prefix="p", part_size=PART),
    )
    await store.delete("k")
    both = [one.put("k", mark * (PART + 9), if_absent=True) for one, mark in ((store, b"a"), (rival, b"b"))]
    told = await asyncio.gather(*both)
    assert sorted(told) == [False, True]
    assert await store.get("k") == (b"a", b"b")[told.index(True)] * (PART + 9)
    assert not await store.put("k", b"c" * (PART + 9), if_absent=True)
    assert await store.put("k", b"d" * (PART + 9))
    assert await store.get("k") == b"d" * (PART + 9)
    assert open_uploads(service) == []


async def test_parts_that_are_too_small_are_refused_by_a_setting() -> None:
    with pytest.raises(ValueError, match=r"part_size=1 must be a number from 5,242,880 to"):
        S3BlobStore("s3://bucket/x", part_size=1)
