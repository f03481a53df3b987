"""Presigned URLs: what they are good for, fetched without any credentials, and how long they live."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3  # type: ignore[import-untyped]  # it has no types of its own
import botocore.session  # type: ignore[import-untyped]  # as above
import httpx
import pytest
from botocore.credentials import RefreshableCredentials  # type: ignore[import-untyped]  # as above

from stagewright.errors import BlobAccessDeniedError, BlobStoreUnavailableError
from stagewright_blob_s3 import S3BlobStore

Open = Callable[..., S3BlobStore]
HOUR = timedelta(hours=1)


def seconds_of(url: str) -> int:
    return int(parse_qs(urlsplit(url).query)["X-Amz-Expires"][0])


def session_that_ends(keys: Any, *lives: timedelta) -> Any:
    """A session whose credentials live so long; each renewal, of which there may be many, gives the next life."""
    left = list(lives)

    def renew() -> dict[str, Any]:
        life = left.pop(0) if len(left) > 1 else left[0]
        ends = datetime.now(UTC) + life
        return {
            "access_key": keys.access_key,
            "secret_key": keys.secret_key,
            "token": None,
            "expiry_time": ends.isoformat(),
        }

    credentials = RefreshableCredentials.create_from_metadata(renew(), renew, method="test")
    inner = botocore.session.get_session()
    inner._credentials = credentials
    return boto3.Session(botocore_session=inner, region_name="us-east-1")


@pytest.mark.guarantee("stores.presigned-urls-for-one-thing")
async def test_without_credentials_a_url_is_good_for_one_thing_alone(store: S3BlobStore) -> None:
    await store.put("other", b"other")
    put = await store.presign_put("mine", expires=HOUR, content_type="application/json")
    get = await store.presign_get("mine", expires=HOUR)
    async with httpx.AsyncClient() as client:
        wrong = {"content-type": "text/plain"}
        right = {"content-type": "application/json"}
        assert (await client.put(put, content=b"{}", headers=wrong)).status_code == 403
        assert (await client.put(put, content=b"{}")).status_code == 403
        assert (
            await client.put(put.replace("/mine", "/other"), content=b"{}", headers=right)
        ).status_code == 403
        assert (await client.put(put, content=b"{}", headers=right)).status_code == 200
        answer = await client.get(get)
        assert (answer.status_code, answer.content) == (200, b"{}")
        assert answer.headers["content-type"] == "application/json"
        assert (await client.get(get.replace("/mine", "/other"))).status_code == 403
        for method in ("PUT", "DELETE", "POST"):
            assert (await client.request(method, get, content=b"x")).status_code == 403
        longer = get.replace(f"X-Amz-Expires={seconds_of(get)}", "X-Amz-Expires=7200")
        assert (await client.get(longer)).status_code == 403
    assert await store.get("other") == b"other"
    assert await store.get("mine") == b"{}"


@pytest.mark.parametrize(
    ("asked", "signed"),
    [(timedelta(seconds=0.1), 1), (timedelta(seconds=1.2), 2), (timedelta(days=7), 604_800)],
)
async def test_a_life_is_in_whole_seconds_rounded_up(
    store: S3BlobStore, asked: timedelta, signed: int
) -> None:
    before = datetime.now(UTC)
    url = await store.presign_get("k", expires=asked)
    assert seconds_of(url) == signed
    assert before <= url.expires_at - timedelta(seconds=signed) <= datetime.now(UTC)


@pytest.mark.guarantee("stores.presigned-urls-say-their-end")
async def test_a_url_lives_no_longer_than_the_credentials_that_signed_it(
    ministack: Any, open_store: Open
) -> None:
    keys = ministack.session.get_credentials()
    begun = datetime.now(UTC)
    ending = open_store(replace(ministack, session=session_that_ends(keys, timedelta(minutes=15))))
    for url in (
        await ending.presign_get("k", expires=timedelta(hours=2)),
        await ending.presign_put("k", expires=timedelta(hours=2)),
    ):
        assert seconds_of(url) <= 15 * 60
        assert begun < url.expires_at <= datetime.now(UTC) + timedelta(minutes=15)
    short = await ending.presign_get("k", expires=timedelta(minutes=3))
    assert seconds_of(short) == 180
    await ending.put("k", b"1")
    async with httpx.AsyncClient() as client:
        assert (await client.get(await ending.presign_get("k", expires=HOUR))).content == b"1"


async def test_credentials_that_can_be_renewed_are_renewed_before_they_sign(
    ministack: Any, open_store: Open
) -> None:
    keys = ministack.session.get_credentials()
    session = session_that_ends(keys, timedelta(minutes=2), timedelta(hours=6))
    store = open_store(replace(ministack, session=session))
    assert seconds_of(await store.presign_get("k", expires=timedelta(hours=2))) == 7_200


async def test_credentials_that_end_at_this_moment_sign_nothing(ministack: Any, open_store: Open) -> None:
    keys = ministack.session.get_credentials()
    store = open_store(replace(ministack, session=session_that_ends(keys, timedelta(seconds=0.9))))
    with pytest.raises((BlobStoreUnavailableError, BlobAccessDeniedError)):
        await store.presign_get("k", expires=HOUR)


async def test_without_credentials_nothing_is_signed(ministack: Any, open_store: Open) -> None:
    inner = botocore.session.get_session()
    inner.get_component("credential_provider").providers = []
    session = boto3.Session(botocore_session=inner, region_name="us-east-1")
    store = open_store(replace(ministack, session=session))
    with pytest.raises(BlobAccessDeniedError, match="no credentials"):
        await store.presign_get("k", expires=HOUR)


@pytest.mark.guarantee("blobs.no-secret-is-told")
async def test_a_url_is_not_logged_and_not_shown_in_passing(
    store: S3BlobStore, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "stagewright"), caplog.at_level(logging.INFO):
        url = await store.presign_get("k", expires=HOUR)
    signature = parse_qs(urlsplit(url).query)["X-Amz-Signature"][0]
    for shown in (caplog.text, repr(url), repr(store), repr([url]), f"{url!r}"):
        assert signature not in shown
        assert "X-Amz-Credential" not in shown


async def test_signing_sends_nothing_and_holds_up_no_loop(store: S3BlobStore) -> None:
    urls = await asyncio.gather(*[store.presign_get(f"k{n}", expires=HOUR) for n in range(20)])
    assert len(set(urls)) == 20
