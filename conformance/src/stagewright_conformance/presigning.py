"""Presigned URLs: by one of them anybody reads or writes one blob, for a while."""

import asyncio
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import pytest

from stagewright.duration import Duration
from stagewright.errors import InvalidBlobKeyError, InvalidSettingError
from stagewright.ports import BlobStore, Presigner
from stagewright_conformance.job_transport import PassTime
from stagewright_conformance.samples import new_id
from stagewright_conformance.suite import Scale, Suite

__all__ = ["PresignerSuite"]

Now: TypeAlias = Callable[[], datetime]

_CONTENT = bytes(range(256)) * 5
_HOUR = timedelta(hours=1)
_ODD_KEYS = ("plain", "a/b/c.json", "with space+plus%25&amp=?#", "ключ/鍵/👩🏽‍🚀", "..", "a//b/")


@pytest.mark.needs("presigned_urls")
class PresignerSuite(Suite):
    """`Presigner`: what its URLs allow and what they don't; they are opened as a stranger does it.

    Fixtures: `blob_store` (required: an empty store that is a `Presigner`), `pass_time`, which lets time pass on the
    clock by which its URLs expire and otherwise sleeps, and `now`, which reads that clock and otherwise the machine's.
    """

    @pytest.fixture
    def blob_store(self) -> BlobStore:
        """The store under test, empty."""
        raise NotImplementedError("override the fixture `blob_store` with an empty store for each test")

    @pytest.fixture
    def pass_time(self) -> PassTime:
        """Lets time pass on the store's clock; sleeps by default."""

        async def sleep(time: timedelta) -> None:
            await asyncio.sleep(time.total_seconds())

        return sleep

    @pytest.fixture
    def now(self) -> Now:
        """Reads the clock by which URLs expire."""
        return lambda: datetime.now(UTC)

    @pytest.mark.parametrize("key", _ODD_KEYS)
    async def test_a_url_answers_the_blob(self, blob_store: BlobStore, scale: Scale, key: str) -> None:
        """`presign_get`: a URL that answers a GET of the blob, byte for byte."""
        await blob_store.put(key, _CONTENT)
        url = await signing(blob_store).presign_get(key, expires=_HOUR)
        assert await ask(scale, "GET", url) == (200, _CONTENT)
        assert await ask(scale, "GET", url) == (200, _CONTENT)

    @pytest.mark.parametrize("key", _ODD_KEYS)
    async def test_a_url_accepts_the_blob(self, blob_store: BlobStore, scale: Scale, key: str) -> None:
        """`presign_put`: a URL that accepts a PUT of the blob, byte for byte."""
        url = await signing(blob_store).presign_put(key, expires=_HOUR)
        assert not await blob_store.has(key)
        status, _ = await ask(scale, "PUT", url, _CONTENT)
        assert status in range(200, 300)
        assert await blob_store.get(key) == _CONTENT
        assert [each async for each in blob_store.list("")] == [key]

    async def test_a_content_type_is_sent_with_the_blob(self, blob_store: BlobStore, scale: Scale) -> None:
        """`presign_put`: with a content type, a PUT that says the same is accepted."""
        key = new_id("blob")
        url = await signing(blob_store).presign_put(key, expires=_HOUR, content_type="application/json")
        status, _ = await ask(scale, "PUT", url, b"{}", content_type="application/json")
        assert status in range(200, 300)
        assert await blob_store.get(key) == b"{}"

    @pytest.mark.guarantee("stores.presigned-urls-for-one-thing")
    async def test_a_content_type_is_part_of_a_url(self, blob_store: BlobStore, scale: Scale) -> None:
        """`presign_put`: with a content type, a PUT of that one alone."""
        key = new_id("blob")
        url = await signing(blob_store).presign_put(key, expires=_HOUR, content_type="application/json")
        for other in ("text/html", None):
            status, _ = await ask(scale, "PUT", url, b"<p>", content_type=other)
            assert status >= 400, other
        assert not await blob_store.has(key)

    @pytest.mark.guarantee("stores.presigned-urls-for-one-thing")
    async def test_a_url_is_for_one_way_alone(self, blob_store: BlobStore, scale: Scale) -> None:
        """`Presigner`: who may read a blob may not write it, nor the other way round, nor delete it."""
        key = new_id("blob")
        await blob_store.put(key, _CONTENT)
        to_read = await signing(blob_store).presign_get(key, expires=_HOUR)
        to_write = await signing(blob_store).presign_put(key, expires=_HOUR)
        for method, url in (("PUT", to_read), ("DELETE", to_read), ("GET", to_write), ("DELETE", to_write)):
            status, body = await ask(scale, method, url, b"other" if method == "PUT" else None)
            assert status >= 400, method
            assert body != _CONTENT
        assert await blob_store.get(key) == _CONTENT

    @pytest.mark.guarantee("stores.presigned-urls-for-one-thing")
    async def test_a_url_is_for_one_blob_alone(self, blob_store: BlobStore, scale: Scale) -> None:
        """`Presigner`: one blob; a URL that is changed to name another one, or changed at all, is refused."""
        mine, other = "mine-0123456789", "other-987654321"
        await blob_store.put(mine, b"mine")
        await blob_store.put(other, b"other")
        url = await signing(blob_store).presign_get(mine, expires=_HOUR)
        assert mine in url
        status, body = await ask(scale, "GET", url.replace(mine, other))
        assert (status >= 400, body != b"other") == (True, True)
        status, body = await ask(scale, "GET", url.partition("?")[0])
        assert (status >= 400, body != b"mine") == (True, True)
        to_write = await signing(blob_store).presign_put(mine, expires=_HOUR)
        status, _ = await ask(scale, "PUT", to_write.replace(mine, other), b"changed")
        assert status >= 400
        assert await blob_store.get(other) == b"other"

    async def test_a_url_expires(self, blob_store: BlobStore, pass_time: PassTime, scale: Scale) -> None:
        """`Presigner`: until it expires, and not after."""
        key = new_id("blob")
        await blob_store.put(key, _CONTENT)
        to_read = await signing(blob_store).presign_get(key, expires=timedelta(seconds=1))
        to_write = await signing(blob_store).presign_put(key, expires=timedelta(seconds=1))
        lasting = await signing(blob_store).presign_get(key, expires=_HOUR)
        await pass_time(timedelta(seconds=3))
        status, body = await ask(scale, "GET", to_read)
        assert (status >= 400, body != _CONTENT) == (True, True)
        assert (await ask(scale, "PUT", to_write, b"late"))[0] >= 400
        assert await ask(scale, "GET", lasting) == (200, _CONTENT)

    @pytest.mark.guarantee("stores.presigned-urls-say-their-end")
    async def test_a_url_says_when_it_ends(self, blob_store: BlobStore, now: Now) -> None:
        """`Presigner`: its `expires_at` says which of the two comes first, and it is no later than was asked for."""
        store = signing(blob_store)
        key, minute = new_id("blob"), timedelta(minutes=1)
        short = await store.presign_get(key, expires=minute)
        long = await store.presign_put(key, expires=_HOUR)
        assert short.expires_at.utcoffset() is not None
        latest = now() + timedelta(seconds=1)
        assert short.expires_at <= latest + minute
        assert long.expires_at <= latest + _HOUR
        secret = short.rpartition("?")[2]
        assert secret not in repr(short)

    @pytest.mark.parametrize("expires", [timedelta(hours=1), "1h", 3_600])
    async def test_how_long_is_said_as_everywhere(
        self, blob_store: BlobStore, expires: Duration, now: Now
    ) -> None:
        """`Presigner`: `expires` is a `Duration`."""
        store = signing(blob_store)
        for sign in (store.presign_get, store.presign_put):
            url = await sign("k", expires=expires)
            assert now() + timedelta(seconds=1) < url.expires_at <= now() + timedelta(seconds=1) + _HOUR

    @pytest.mark.parametrize(
        "expires", [timedelta(0), timedelta(seconds=-1), timedelta(days=7, seconds=1), "8d", "soon", -1]
    )
    async def test_no_url_is_signed_for_no_time_or_for_too_much(
        self, blob_store: BlobStore, expires: Duration
    ) -> None:
        """`Presigner`: `InvalidSettingError` if `expires` is no duration, nothing, or more than seven days."""
        store = signing(blob_store)
        for sign in (store.presign_get, store.presign_put):
            with pytest.raises(InvalidSettingError) as caught:
                await sign("k", expires=expires)
            assert (caught.value.setting, caught.value.value) == ("expires", expires)

    @pytest.mark.parametrize("key", ["", "x" * 901, "a\n", "a\x00b"])
    async def test_no_url_is_signed_for_what_is_no_key(self, blob_store: BlobStore, key: str) -> None:
        """`Presigner`: `InvalidBlobKeyError` if the key is none."""
        store = signing(blob_store)
        for sign in (store.presign_get, store.presign_put):
            with pytest.raises(InvalidBlobKeyError):
                await sign(key, expires=_HOUR)

    async def test_a_blob_that_is_not_there_is_not_found(self, blob_store: BlobStore, scale: Scale) -> None:
        """`presign_get`: the URL of a blob that isn't there can be had, and answers that there is none."""
        url = await signing(blob_store).presign_get(new_id("blob"), expires=_HOUR)
        assert (await ask(scale, "GET", url))[0] == 404


def signing(blob_store: BlobStore) -> Presigner:
    """The store as what signs its URLs."""
    assert isinstance(blob_store, Presigner), f"{type(blob_store).__name__} is no Presigner"
    return blob_store


async def ask(
    scale: Scale, method: str, url: str, data: bytes | None = None, *, content_type: str | None = None
) -> tuple[int, bytes]:
    """What a URL answers to somebody without credentials: the status, and the body."""
    headers = {} if content_type is None else {"Content-Type": content_type}
    request = urllib.request.Request(url, data=data, method=method, headers=headers)

    def send() -> tuple[int, bytes]:
        try:
            with urllib.request.urlopen(request, timeout=scale.patience) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, refusal.read()

    return await asyncio.to_thread(send)
