"""What goes wrong in a bucket or on the way to it, and what is told of it."""

import asyncio
import logging
import traceback
import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import boto3  # type: ignore[import-untyped]  # it has no types of its own
import pytest
from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]  # as above

from stagewright.errors import (
    BlobAccessDeniedError,
    BlobNotFoundError,
    BlobStoreRefusedError,
    BlobStoreUnavailableError,
    TransientError,
)
from stagewright_blob_s3 import S3BlobStore, blob_store
from stagewright_blob_s3.bucket import DELETED_AT_ONCE
from stagewright_test_support.faulty_http import Fault, FaultyHttp, open_faulty_http
from stagewright_test_support.servers.launch import free_port

Open = Callable[..., S3BlobStore]

SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"
READ_ONLY = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": ["s3:GetObject", "s3:ListBucket"], "Resource": "*"}],
}


@pytest.fixture
def proxy(ministack: Any) -> Iterator[FaultyHttp]:
    with open_faulty_http(ministack.address) as proxy:
        yield proxy


@pytest.fixture
def behind(ministack: Any, proxy: FaultyHttp, open_store: Open) -> S3BlobStore:
    """A store whose requests and answers go through the proxy."""
    return open_store(replace(ministack, address=proxy.address))


async def read_all(store: S3BlobStore, key: str) -> bytes:
    async with store.open_read(key) as reader:
        return await reader.read()


async def write(store: S3BlobStore, key: str, data: bytes) -> None:
    async with store.open_write(key) as writer:
        await writer.write(data)


async def list_all(store: S3BlobStore) -> list[str]:
    return [key async for key in store.list("")]


CALLS: dict[str, Callable[[S3BlobStore], Awaitable[object]]] = {
    "check": S3BlobStore.check,
    "put": lambda store: store.put("k", b"1"),
    "put if absent": lambda store: store.put("k", b"1", if_absent=True),
    "get": lambda store: store.get("k"),
    "has": lambda store: store.has("k"),
    "delete": lambda store: store.delete("k"),
    "delete_many": lambda store: store.delete_many(["k", "l"]),
    "list": list_all,
    "open_read": lambda store: read_all(store, "k"),
    "open_write": lambda store: write(store, "k", b"1"),
    "a stream of parts": lambda store: write(store, "k", b"1" * (6 << 20)),
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
    call: Callable[[S3BlobStore], Awaitable[object]], ministack: Any, open_store: Open
) -> None:
    nowhere = replace(ministack, address=f"http://127.0.0.1:{free_port()}")
    store = open_store(nowhere, attempts=1, part_size=5 << 20)
    with pytest.raises(BlobStoreUnavailableError) as caught:
        await call(store)
    assert isinstance(caught.value, TransientError)
    assert isinstance(caught.value.__cause__, BotoCoreError)
    assert caught.value.store in repr(store)


@pytest.mark.guarantee("blobs.failures-by-type")
@EVERY_CALL
async def test_who_may_do_nothing_is_denied_everything(
    call: Callable[[S3BlobStore], Awaitable[object]], ministack: Any, open_store: Open
) -> None:
    stranger = replace(ministack, session=ministack.stranger(policy=None))
    with pytest.raises(BlobAccessDeniedError) as caught:
        await call(open_store(stranger, part_size=5 << 20))
    assert not isinstance(caught.value, TransientError)
    assert isinstance(caught.value.__cause__, ClientError)


async def test_who_may_read_alone_reads_and_is_denied_the_rest(
    ministack: Any, store: S3BlobStore, open_store: Open
) -> None:
    reader = replace(ministack, session=ministack.stranger(policy=READ_ONLY))
    prefix = repr(store).rpartition("/")[2].rstrip("')")
    theirs = open_store(reader, prefix=prefix)
    await store.put("k", b"1")
    assert await theirs.get("k") == b"1"
    for denied in (theirs.put("k", b"2"), theirs.delete("k"), theirs.delete_many(["k"])):
        with pytest.raises(BlobAccessDeniedError, match=r"refused to .*AccessDenied"):
            await denied
    assert await store.get("k") == b"1"


@pytest.mark.guarantee("blobs.no-secret-is-told")
@pytest.mark.parametrize("way", ["wrong secret", "unknown key", "expired token"])
async def test_credentials_that_are_wrong_are_denied_and_not_shown(
    way: str, ministack: Any, open_store: Open, caplog: pytest.LogCaptureFixture
) -> None:
    keys = ministack.session.get_credentials()
    secret, token = f"wrong-{uuid.uuid4().hex}", f"token-{uuid.uuid4().hex}"
    given: dict[str, Any] = {
        "aws_access_key_id": "AKIAUNKNOWNUNKNOWN00" if way == "unknown key" else keys.access_key,
        "aws_secret_access_key": secret,
        "aws_session_token": token if way == "expired token" else None,
        "region_name": "us-east-1",
    }
    store = open_store(replace(ministack, session=boto3.Session(**given)))
    with caplog.at_level(logging.INFO), pytest.raises(BlobAccessDeniedError) as caught:
        await store.put("k", b"1")
    told = "".join(traceback.format_exception(caught.value)) + repr(store) + repr(caught.value) + caplog.text
    for hidden in (secret, token, keys.secret_key):
        assert hidden not in told


async def test_no_credentials_at_all_are_denied(
    ministack: Any, monkeypatch: pytest.MonkeyPatch, open_store: Open, tmp_path: Any
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    store = open_store(ministack, session=None)
    with pytest.raises(BlobAccessDeniedError, match="Unable to locate credentials"):
        await store.get("k")


async def test_a_bucket_that_is_not_there_is_refused_and_not_missing(
    ministack: Any, open_store: Open
) -> None:
    store = open_store(replace(ministack, bucket="there-is-none"))
    for call in (store.check(), store.put("k", b"1"), store.get("k"), list_all(store)):
        with pytest.raises(BlobStoreRefusedError, match="NoSuchBucket") as caught:
            await call
        assert not isinstance(caught.value, BlobAccessDeniedError)


async def test_a_busy_bucket_is_asked_again(behind: S3BlobStore, proxy: FaultyHttp) -> None:
    proxy.expect(Fault(method="PUT", status=503, body=SLOW_DOWN))
    assert await behind.put("k", b"1")
    assert proxy.left == 0
    proxy.expect(*[Fault(method="GET", status=503, body=SLOW_DOWN)] * 3)
    with pytest.raises(BlobStoreUnavailableError, match="SlowDown"):
        await behind.get("k")
    assert await behind.get("k") == b"1"


@pytest.mark.guarantee("blobs.first-writer-survives-lost-answers")
async def test_who_was_first_is_told_so_though_the_answer_was_lost(
    behind: S3BlobStore, proxy: FaultyHttp
) -> None:
    proxy.expect(Fault(method="PUT", loses_answer=True))
    assert await behind.put("k", b"mine", if_absent=True)
    assert proxy.left == 0
    proxy.expect(Fault(method="PUT", loses_answer=True))
    assert not await behind.put("k", b"another's", if_absent=True)
    assert await behind.get("k") == b"mine"


async def test_writers_that_hold_each_other_up_try_again(behind: S3BlobStore, proxy: FaultyHttp) -> None:
    conflict = b"<Error><Code>ConditionalRequestConflict</Code><Message>again</Message></Error>"
    proxy.expect(*[Fault(method="PUT", status=409, body=conflict)] * 2)
    assert await behind.put("k", b"1", if_absent=True)
    proxy.expect(*[Fault(method="PUT", status=409, body=conflict)] * 3)
    with pytest.raises(BlobStoreUnavailableError, match="ConditionalRequestConflict"):
        await behind.put("l", b"1", if_absent=True)


@pytest.mark.guarantee("blobs.garbled-bytes-are-noticed")
async def test_bytes_that_change_on_their_way_in_are_not_stored(
    behind: S3BlobStore, proxy: FaultyHttp
) -> None:
    proxy.expect(*[Fault(method="PUT", garbles_request=True)] * 3)
    with pytest.raises((BlobStoreUnavailableError, BlobAccessDeniedError)):
        await behind.put("k", b"stored as they are")
    assert not await behind.has("k")


@pytest.mark.guarantee("blobs.garbled-bytes-are-noticed")
async def test_bytes_that_change_on_their_way_out_are_asked_for_again(
    behind: S3BlobStore, proxy: FaultyHttp
) -> None:
    await behind.put("k", b"read as they are" * 100)
    proxy.expect(Fault(method="GET", garbles_answer=True), Fault(method="GET", cuts_answer=True))
    assert await behind.get("k") == b"read as they are" * 100
    assert proxy.left == 0
    proxy.expect(*[Fault(method="GET", garbles_answer=True)] * 3)
    with pytest.raises(BlobStoreUnavailableError):
        await behind.get("k")
    proxy.expect(Fault(method="GET", garbles_answer=True))
    with pytest.raises(BlobStoreUnavailableError, match="checksum"):
        await read_all(behind, "k")


async def test_a_stream_goes_on_where_it_broke_off(
    ministack: Any, proxy: FaultyHttp, open_store: Open
) -> None:
    store = open_store(replace(ministack, address=proxy.address), part_size=5 << 20)
    data = bytes(range(256)) * (12 << 12)
    await store.put("k", data)
    proxy.expect(Fault(method="GET", cuts_answer=True), Fault(method="GET", loses_answer=True))
    assert await read_all(store, "k") == data
    assert proxy.left == 0
    asked = [one.headers["Range"] for one in proxy.seen if one.method == "GET"]
    assert set(asked) == {"bytes=0-5242879", "bytes=5242880-10485759", "bytes=10485760-12582911"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda store: store.put("k", b"b" * (6 << 20)), BlobStoreUnavailableError),
        (lambda store: store.delete("k"), BlobNotFoundError),
    ],
    ids=["replaced", "removed"],
)
async def test_a_blob_that_is_replaced_or_removed_while_it_is_read_is_noticed(
    change: Callable[[S3BlobStore], Awaitable[object]],
    told: type[Exception],
    ministack: Any,
    open_store: Open,
) -> None:
    store = open_store(ministack, part_size=5 << 20)
    await store.put("k", b"a" * (6 << 20))
    async with store.open_read("k") as reader:
        assert await reader.read(10) == b"a" * 10
        await change(store)
        with pytest.raises(told, match=r"it was replaced while it was read|nothing under the key 'k'"):
            await reader.read()


async def test_a_range_of_another_length_is_not_taken_for_it(behind: S3BlobStore, proxy: FaultyHttp) -> None:
    await behind.put("k", b"0123456789")
    proxy.expect(Fault(method="GET", status=200, body=b"0123456789 and more"))
    with pytest.raises(BlobStoreUnavailableError, match="19 bytes came of 10"):
        await read_all(behind, "k")
    assert await read_all(behind, "k") == b"0123456789"


async def test_of_many_deletes_those_that_fail_in_passing_are_repeated(
    behind: S3BlobStore, proxy: FaultyHttp
) -> None:
    for key in ("a", "b"):
        await behind.put(key, b"1")
    prefix = repr(behind).rpartition("/")[2].rstrip("')")
    failed = f"<DeleteResult><Error><Key>{prefix}/a</Key><Code>InternalError</Code></Error></DeleteResult>"
    proxy.expect(Fault(method="POST", within="delete", status=200, body=failed.encode()))
    await behind.delete_many(["a", "b"])
    assert await list_all(behind) == ["b"], "the answer was made up, so only what was repeated is gone"
    denied = failed.replace("InternalError", "AccessDenied")
    proxy.expect(Fault(method="POST", within="delete", status=200, body=denied.encode()))
    with pytest.raises(BlobAccessDeniedError, match="'a': AccessDenied"):
        await behind.delete_many(["a", "b"])


async def test_more_deletes_than_a_call_takes_are_several_calls(
    behind: S3BlobStore, proxy: FaultyHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert DELETED_AT_ONCE == 1_000, "what S3 takes"
    monkeypatch.setattr(blob_store, "DELETED_AT_ONCE", 2)
    keys = ["a", "b", "c", "d", "e"]
    for key in keys:
        await behind.put(key, b"1")
    await behind.delete_many([*keys, "none"])
    assert await list_all(behind) == []
    assert len([one for one in proxy.seen if one.method == "POST" and "delete" in one.path]) == 3


async def test_a_listing_that_is_cut_off_is_an_error(behind: S3BlobStore, proxy: FaultyHttp) -> None:
    cut = b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"
    proxy.expect(Fault(method="GET", within="list-type=2", status=200, body=cut))
    with pytest.raises(BlobStoreUnavailableError, match="cut off"):
        await list_all(behind)


async def test_a_service_without_batches_is_told_the_setting(
    ministack: Any, behind: S3BlobStore, proxy: FaultyHttp, open_store: Open
) -> None:
    missing = b"<Error><Code>MissingContentMD5</Code><Message>Missing header</Message></Error>"
    proxy.expect(Fault(method="POST", within="delete", status=400, body=missing))
    with pytest.raises(BlobStoreRefusedError, match="set batch_deletes=False"):
        await behind.delete_many(["a"])
    single = open_store(replace(ministack, address=proxy.address), batch_deletes=False)
    await asyncio.gather(*[single.put(key, b"1") for key in ("a", "b", "c")])
    await single.delete_many(["a", "b", "none"])
    assert await list_all(single) == ["c"]


async def test_what_xml_has_no_words_for_is_deleted_too(store: S3BlobStore) -> None:
    for key in ("odd\ufffe", "odd\uffff", "even"):
        await store.put(key, b"1")
    await store.delete_many(["odd\ufffe", "odd\uffff", "even"])
    assert await list_all(store) == []
