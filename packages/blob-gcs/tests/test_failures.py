"""What goes wrong in a bucket or on the way to it, and what is told of it."""

import asyncio
import gc
import logging
import traceback
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from threading import Event
from typing import Any

import pytest
from google.api_core.exceptions import GoogleAPIError
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import RefreshError

from stagewright.errors import (
    BlobAccessDeniedError,
    BlobNotFoundError,
    BlobStoreRefusedError,
    BlobStoreUnavailableError,
    TransientError,
)
from stagewright_blob_gcs import GcsBlobStore
from stagewright_blob_gcs.failures import VendorFailure
from stagewright_test_support.faulty_http import Fault, FaultyHttp, open_faulty_http
from stagewright_test_support.servers.launch import free_port

Open = Callable[..., GcsBlobStore]
PART = 256 << 10


class NoToken(AnonymousCredentials):
    """Credentials that their issuer has taken back, or can't renew for now."""

    def __init__(self, *, for_now: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # its base has no types
        self._for_now = for_now

    def before_request(self, request: Any, method: str, url: str, headers: Any) -> None:
        raise RefreshError("the token endpoint said no", retryable=self._for_now)


@pytest.fixture
def proxy(service: Any) -> Iterator[FaultyHttp]:
    with open_faulty_http(service.address) as proxy:
        yield proxy
    # Google's client leaves the connection of a download that fails to the garbage collector.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def behind(service: Any, proxy: FaultyHttp, open_store: Open) -> GcsBlobStore:
    """A store whose requests and answers go through the proxy."""
    return open_store(replace(service, address=proxy.address), part_size=PART)


async def read_all(store: GcsBlobStore, key: str) -> bytes:
    async with store.open_read(key) as reader:
        return await reader.read()


async def write(store: GcsBlobStore, key: str, data: bytes) -> None:
    async with store.open_write(key) as writer:
        await writer.write(data)


async def list_all(store: GcsBlobStore) -> list[str]:
    return [key async for key in store.list("")]


CALLS: dict[str, Callable[[GcsBlobStore], Awaitable[object]]] = {
    "check": GcsBlobStore.check,
    "put": lambda store: store.put("k", b"1"),
    "put if absent": lambda store: store.put("k", b"1", if_absent=True),
    "get": lambda store: store.get("k"),
    "has": lambda store: store.has("k"),
    "delete": lambda store: store.delete("k"),
    "delete_many": lambda store: store.delete_many(["k", "l"]),
    "list": list_all,
    "open_read": lambda store: read_all(store, "k"),
    "open_write": lambda store: write(store, "k", b"1"),
    "a stream of parts": lambda store: write(store, "k", b"1" * (2 * PART)),
}
USUAL = ("put", "get", "list", "a stream of parts")
EVERY_CALL = pytest.mark.parametrize(
    "call",
    [
        pytest.param(call, id=name, marks=() if name in USUAL else pytest.mark.wide)
        for name, call in CALLS.items()
    ],
)


@pytest.mark.guarantee("blobs.failures-by-type")
@EVERY_CALL
async def test_a_bucket_that_cannot_be_reached_is_told_by_type(
    call: Callable[[GcsBlobStore], Awaitable[object]], service: Any, open_store: Open
) -> None:
    nowhere = replace(service, address=f"http://127.0.0.1:{free_port()}")
    store = open_store(nowhere, retry_for=0.01, part_size=PART)
    with pytest.raises(BlobStoreUnavailableError) as caught:
        await call(store)
    assert isinstance(caught.value, TransientError)
    assert caught.value.__cause__ is not None
    assert caught.value.store in repr(store)


@pytest.mark.guarantee("blobs.failures-by-type")
@pytest.mark.parametrize("status", [401, 403])
@EVERY_CALL
async def test_who_may_do_nothing_is_denied_everything(
    call: Callable[[GcsBlobStore], Awaitable[object]],
    status: int,
    behind: GcsBlobStore,
    proxy: FaultyHttp,
) -> None:
    refused = b'{"error": {"code": 403, "message": "caller lacks storage.objects.get"}}'
    proxy.expect(*[Fault(status=status, body=refused)] * 4)
    with pytest.raises(BlobAccessDeniedError) as caught:
        await call(behind)
    assert not isinstance(caught.value, TransientError)
    assert caught.value.__cause__ is not None


async def test_credentials_that_were_taken_back_are_denied_and_those_that_wait_are_not(
    service: Any, open_store: Open
) -> None:
    gone = open_store(replace(service, credentials=NoToken(for_now=False)))
    with pytest.raises(BlobAccessDeniedError, match="said no"):
        await gone.get("k")
    late = open_store(replace(service, credentials=NoToken(for_now=True)), retry_for=0.01)
    with pytest.raises(BlobStoreUnavailableError, match="said no"):
        await late.get("k")


async def test_no_credentials_at_all_are_denied(
    service: Any, open_store: Open, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    store = open_store(replace(service, credentials=None))
    with pytest.raises(BlobAccessDeniedError, match=r"none\.json"):
        await store.get("k")


@pytest.mark.parametrize("name", ["check", "put", "get", "list", "open_read", "a stream of parts"])
async def test_a_bucket_that_is_not_there_is_refused_and_not_missing(
    name: str, behind: GcsBlobStore, proxy: FaultyHttp
) -> None:
    # fake-gcs-server says no more than "Not Found"; these are Cloud Storage's words.
    missing = b'{"error": {"code": 404, "message": "The specified bucket does not exist."}}'
    proxy.expect(Fault(status=404, body=missing))
    with pytest.raises(BlobStoreRefusedError, match="bucket does not exist") as caught:
        await CALLS[name](behind)
    assert not isinstance(caught.value, BlobAccessDeniedError)


async def test_a_busy_bucket_is_asked_again(service: Any, proxy: FaultyHttp, open_store: Open) -> None:
    store = open_store(replace(service, address=proxy.address), retry_for=20.0)
    proxy.expect(Fault(method="POST", status=503), Fault(method="GET", status=429))
    assert await store.put("k", b"1")
    assert await store.get("k") == b"1"
    assert proxy.left == 0
    hasty = open_store(replace(service, address=proxy.address), retry_for=0.01)
    proxy.expect(Fault(method="GET", status=503))
    with pytest.raises(BlobStoreUnavailableError) as caught:
        await hasty.get("k")
    assert isinstance(caught.value.__cause__, GoogleAPIError)


@pytest.mark.guarantee("blobs.first-writer-survives-lost-answers")
async def test_who_was_first_is_told_so_though_the_answer_was_lost(
    service: Any, proxy: FaultyHttp, open_store: Open
) -> None:
    store = open_store(replace(service, address=proxy.address), retry_for=20.0)
    proxy.expect(Fault(method="POST", loses_answer=True))
    assert await store.put("k", b"mine", if_absent=True)
    assert proxy.left == 0
    proxy.expect(Fault(method="POST", loses_answer=True))
    assert not await store.put("k", b"another's", if_absent=True)
    assert await store.get("k") == b"mine"


@pytest.mark.guarantee("blobs.garbled-bytes-are-noticed")
async def test_bytes_that_change_on_their_way_are_noticed(behind: GcsBlobStore, proxy: FaultyHttp) -> None:
    await behind.put("k", b"read as they are" * 100)
    proxy.expect(Fault(method="GET", within="alt=media", garbles_answer=True))
    with pytest.raises(BlobStoreUnavailableError, match="checksum"):
        await read_all(behind, "k")
    proxy.expect(*[Fault(method="GET", within="alt=media", garbles_answer=True)] * 2)
    with pytest.raises(BlobStoreUnavailableError):
        await behind.get("k")


async def test_a_stream_goes_on_where_it_broke_off(service: Any, proxy: FaultyHttp, open_store: Open) -> None:
    store = open_store(replace(service, address=proxy.address), retry_for=20.0, part_size=PART)
    data = bytes(range(256)) * (5 << 9)
    await store.put("k", data)
    proxy.expect(Fault(method="GET", within="alt=media", loses_answer=True))
    proxy.expect(Fault(method="GET", within="alt=media", status=503))
    assert await read_all(store, "k") == data
    assert proxy.left == 0


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda store: store.put("k", b"b" * (2 * PART)), BlobStoreUnavailableError),
        (lambda store: store.delete("k"), BlobNotFoundError),
    ],
    ids=["replaced", "removed"],
)
async def test_a_blob_that_is_replaced_or_removed_while_it_is_read_is_noticed(
    change: Callable[[GcsBlobStore], Awaitable[object]],
    told: type[Exception],
    service: Any,
    open_store: Open,
) -> None:
    store = open_store(service, part_size=PART)
    await store.put("k", b"a" * (2 * PART))
    async with store.open_read("k") as reader:
        assert await reader.read(10) == b"a" * 10
        await change(store)
        with pytest.raises(told, match=r"don't have the checksum|nothing under the key 'k'"):
            await reader.read()


async def test_all_ranges_are_of_one_and_the_same_object(behind: GcsBlobStore, proxy: FaultyHttp) -> None:
    """fake-gcs-server reads on in the other object; Cloud Storage answers 412."""
    await behind.put("k", b"a" * (2 * PART))
    proxy.expect(Fault(method="GET", within="alt=media", status=412))
    with pytest.raises(BlobStoreUnavailableError, match="it was replaced while it was read"):
        await read_all(behind, "k")
    assert await read_all(behind, "k") == b"a" * (2 * PART)
    asked = [one.path for one in proxy.seen if "alt=media" in one.path]
    assert len(asked) == 3
    assert len({path.partition("ifGenerationMatch=")[2].partition("&")[0] for path in asked} - {""}) == 1
    assert all("ifGenerationMatch=" in path for path in asked)


@pytest.mark.parametrize("refused", ["POST", "PUT"])
async def test_an_upload_in_parts_is_refused_where_a_blob_is(
    behind: GcsBlobStore, proxy: FaultyHttp, refused: str
) -> None:
    """fake-gcs-server replaces what is there; Cloud Storage answers 412 when the upload begins or ends."""
    large = b"b" * (9 << 20)
    proxy.expect(Fault(method=refused, within="upload", status=412))
    assert not await behind.put("k", large, if_absent=True)
    assert proxy.left == 0
    begun, *_ = [one.path for one in proxy.seen if "uploadType=resumable" in one.path]
    assert "ifGenerationMatch=0" in begun
    assert not await behind.has("k")


async def test_of_many_deletes_a_failure_is_told_and_the_others_are_done(
    behind: GcsBlobStore, proxy: FaultyHttp
) -> None:
    keys = [f"k{n:03}" for n in range(120)]
    for key in keys[:3]:
        await behind.put(key, b"1")
    proxy.expect(Fault(method="DELETE", within="k001", status=403))
    with pytest.raises(BlobAccessDeniedError, match="k001"):
        await behind.delete_many(keys)
    assert await list_all(behind) == ["k001"]
    await behind.delete_many(keys)
    assert await list_all(behind) == []


@pytest.mark.guarantee("blobs.no-secret-is-told")
async def test_the_address_of_an_upload_is_not_told(
    service: Any, open_store: Open, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever knows it may write the rest of the blob."""
    caplog.set_level(logging.INFO)
    goes_on = Event()
    with ExitStack() as until_then:
        proxy = until_then.enter_context(open_faulty_http(service.address))
        proxy.expect(Fault(method="PUT", within="upload_id", holds=goes_on, loses_answer=True))
        store = open_store(replace(service, address=proxy.address), retry_for=2.0, part_size=PART)
        writing = asyncio.create_task(write(store, "k", b"x" * (3 * PART)))
        await asyncio.to_thread(proxy.wait_for, "PUT", "upload_id")
        await asyncio.to_thread(until_then.close)
    goes_on.set()
    with pytest.raises(BlobStoreUnavailableError) as caught:
        await writing
    [place] = {one.path for one in proxy.seen if one.method == "PUT"}
    secret = place.partition("upload_id=")[2].partition("&")[0]
    assert secret
    assert isinstance(caught.value.__cause__, VendorFailure)
    assert "upload_id=***" in str(caught.value.__cause__)
    told = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + caplog.text
    assert secret not in told
