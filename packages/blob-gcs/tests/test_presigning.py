"""Presigned URLs: what they are good for, fetched without any credentials, who signs them, and how long they live."""

import json
import logging
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from google.auth import iam
from google.auth.credentials import AnonymousCredentials, Credentials
from google.auth.impersonated_credentials import Credentials as Impersonated

from stagewright.errors import BlobAccessDeniedError, BlobStoreRefusedError, BlobStoreUnavailableError
from stagewright_blob_gcs import GcsBlobStore
from stagewright_test_support.signed_url_gate import why_refused

Open = Callable[..., GcsBlobStore]
HOUR = timedelta(hours=1)
ACCOUNT = "worker@project.iam.gserviceaccount.com"


class Keyless(Credentials):
    """A machine's identity: a token, the name of its account once it has asked for it, and no private key."""

    def __init__(self, account: str | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # its base has no types
        self.service_account_email = None if account is None else "default"
        self._account = account

    def refresh(self, request: Any) -> None:
        self.service_account_email = self._account

    def before_request(self, request: Any, method: str, url: str, headers: dict[str, str]) -> None:
        headers["authorization"] = "Bearer token-of-the-machine"


class SigningService:
    """Google's signBlob, with the key of an account.

    Attributes:
        asked: The account, the token and the message of each request.
        status: What it answers next.
    """

    def __init__(self, sign: Callable[[bytes], bytes]) -> None:
        self.asked: list[tuple[str, str, bytes]] = []
        self.status = 200
        self.sign = sign

    def answer(self, path: str, token: str, body: bytes) -> tuple[int, bytes]:
        payload = b64decode(json.loads(body)["payload"])
        self.asked.append((path.rpartition("/")[2].removesuffix(":signBlob"), token, payload))
        if self.status != 200:
            words = {"error": {"code": self.status, "status": "PERMISSION_DENIED" * (self.status == 403)}}
            return self.status, json.dumps(words).encode()
        signed = b64encode(self.sign(payload)).decode()
        return 200, json.dumps({"keyId": "k", "signedBlob": signed}).encode()


@contextmanager
def serving(service: SigningService) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, answer = service.answer(self.path, self.headers.get("authorization", ""), body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/projects/-/serviceAccounts/{{}}:signBlob"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def signing_service(service: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[SigningService]:
    """The signing service, which Google's library asks in this test."""
    made = SigningService(service.credentials.sign_bytes)
    with serving(made) as url:
        monkeypatch.setattr(iam, "_IAM_SIGN_ENDPOINT", url)
        yield made


def query_of(url: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


def refusal(url: str, method: str, verify: Any, *, at: datetime | None = None, **headers: str) -> str | None:
    parts = urlsplit(url)
    sent = {"host": parts.netloc} | {name.replace("_", "-"): value for name, value in headers.items()}
    return why_refused(method, f"{parts.path}?{parts.query}", sent, verify, now=at)


@pytest.mark.guarantee("stores.presigned-urls-for-one-thing")
async def test_without_credentials_a_url_is_good_for_one_thing_alone(gated: Any, open_store: Open) -> None:
    """Behind a gate that checks signatures, which fake-gcs-server doesn't."""
    store = open_store(gated)
    await store.put("other", b"other")
    put = await store.presign_put("mine", expires=HOUR, content_type="application/json")
    get = await store.presign_get("mine", expires=HOUR)
    async with httpx.AsyncClient() as client:
        right = {"content-type": "application/json"}
        assert (
            await client.put(put, content=b"{}", headers={"content-type": "text/plain"})
        ).status_code == 403
        assert (await client.put(put, content=b"{}")).status_code == 403
        assert (
            await client.put(put.replace("/mine", "/other"), content=b"", headers=right)
        ).status_code == 403
        assert (await client.put(put, content=b"{}", headers=right)).status_code == 200
        answer = await client.get(get)
        assert (answer.status_code, answer.content) == (200, b"{}")
        assert answer.headers["content-type"] == "application/json"
        assert (await client.get(get.replace("/mine", "/other"))).status_code == 403
        for method in ("PUT", "DELETE", "POST"):
            assert (await client.request(method, get, content=b"x")).status_code == 403
        assert (await client.get(get.replace("Expires=3600", "Expires=7200"))).status_code == 403
    assert await store.get("other") == b"other"
    assert await store.get("mine") == b"{}"


@pytest.mark.guarantee("stores.presigned-urls-for-one-thing")
async def test_a_signature_is_of_the_key_the_method_the_type_and_the_time(
    service: Any, store: GcsBlobStore
) -> None:
    """The signature is computed anew by the rules of version 4, apart from Google's library."""
    verify = service.credentials.verify
    put = await store.presign_put("k ey/+%&", expires=HOUR, content_type="text/x-test")
    assert refusal(put, "PUT", verify, content_type="text/x-test") is None
    assert refusal(put, "PUT", verify, content_type="text/html") == "the signature is of something else"
    assert refusal(put, "GET", verify, content_type="text/x-test") == "the signature is of something else"
    moved = put.replace("k%20ey", "k%20eye")
    assert refusal(moved, "PUT", verify, content_type="text/x-test") == "the signature is of something else"
    late = put.expires_at + timedelta(seconds=2)
    assert refusal(put, "PUT", verify, at=late, content_type="text/x-test") == "it has expired"
    get = await store.presign_get("k", expires=HOUR)
    assert refusal(get, "GET", verify) is None
    assert refusal(get.replace("Expires=3600", "Expires=9999"), "GET", verify) is not None
    assert query_of(get)["X-Goog-Credential"].startswith(f"{service.credentials.signer_email}/")


@pytest.mark.parametrize(
    ("asked", "signed"),
    [(timedelta(seconds=0.1), 1), (timedelta(seconds=1.2), 2), (timedelta(days=7), 604_800)],
)
async def test_a_life_is_in_whole_seconds_rounded_up(
    store: GcsBlobStore, asked: timedelta, signed: int
) -> None:
    before = datetime.now(UTC)
    url = await store.presign_get("k", expires=asked)
    assert query_of(url)["X-Goog-Expires"] == str(signed)
    assert before <= url.expires_at - timedelta(seconds=signed) <= datetime.now(UTC)


@pytest.mark.guarantee("blobs.keyless-identities-sign")
async def test_an_identity_without_a_key_asks_the_signing_service(
    gated: Any, open_store: Open, signing_service: SigningService
) -> None:
    store = open_store(replace(gated, credentials=Keyless(ACCOUNT)))
    await store.put("k", b"1")
    url = await store.presign_get("k", expires=HOUR)
    [(account, token, message)] = signing_service.asked
    assert (account, token) == (ACCOUNT, "Bearer token-of-the-machine")
    assert message.startswith(b"GOOG4-RSA-SHA256\n")
    assert query_of(url)["X-Goog-Credential"].startswith(f"{ACCOUNT}/")
    async with httpx.AsyncClient() as client:
        assert (await client.get(url)).content == b"1"


@pytest.mark.guarantee("stores.presigned-urls-say-their-end")
async def test_what_the_signing_service_signs_lives_for_half_a_day(
    service: Any, open_store: Open, signing_service: SigningService
) -> None:
    store = open_store(replace(service, credentials=Keyless(ACCOUNT)))
    url = await store.presign_put("k", expires=timedelta(days=2))
    assert query_of(url)["X-Goog-Expires"] == str(12 * 3_600)
    assert url.expires_at <= datetime.now(UTC) + timedelta(hours=12)
    short = await store.presign_put("k", expires=timedelta(minutes=5))
    assert query_of(short)["X-Goog-Expires"] == "300"


@pytest.mark.guarantee("blobs.keyless-identities-sign")
async def test_another_account_can_be_signed_for(
    service: Any, open_store: Open, signing_service: SigningService
) -> None:
    other = "signer-for-all@project.iam.gserviceaccount.com"
    for credentials in (Keyless(None), Keyless(ACCOUNT), service.credentials):
        store = open_store(replace(service, credentials=credentials), signing_account=other)
        url = await store.presign_get("k", expires=HOUR)
        assert query_of(url)["X-Goog-Credential"].startswith(f"{other}/")
    assert [account for account, _, _ in signing_service.asked] == [other] * 3


async def test_one_that_impersonates_an_account_signs_for_half_a_day_too(
    service: Any, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    impersonating = Impersonated(
        source_credentials=AnonymousCredentials(),
        target_principal=ACCOUNT,
        target_scopes=[],
    )
    signed_for: list[bytes] = []

    def sign(message: bytes) -> bytes:
        signed_for.append(message)
        return b"signed"

    monkeypatch.setattr(impersonating, "sign_bytes", sign)
    store = open_store(replace(service, credentials=impersonating))
    url = await store.presign_get("k", expires=timedelta(days=1))
    assert query_of(url)["X-Goog-Expires"] == str(12 * 3_600)
    assert len(signed_for) == 1


async def test_who_is_no_account_is_told_the_setting(service: Any, open_store: Open) -> None:
    store = open_store(replace(service, credentials=Keyless(None)))
    with pytest.raises(BlobStoreRefusedError, match="signing_account"):
        await store.presign_get("k", expires=HOUR)


async def test_a_signing_service_that_refuses_or_is_away_is_told_by_type(
    service: Any, open_store: Open, signing_service: SigningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(replace(service, credentials=Keyless(ACCOUNT)))
    signing_service.status = 403
    with pytest.raises(BlobAccessDeniedError, match="PERMISSION_DENIED"):
        await store.presign_get("k", expires=HOUR)
    signing_service.status = 429
    with pytest.raises(BlobStoreUnavailableError):
        await store.presign_get("k", expires=HOUR)


@pytest.mark.guarantee("blobs.no-secret-is-told")
async def test_a_url_is_not_logged_and_not_shown_in_passing(
    store: GcsBlobStore, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "stagewright"), caplog.at_level(logging.INFO):
        url = await store.presign_get("k", expires=HOUR)
    signature = query_of(url)["X-Goog-Signature"]
    for shown in (caplog.text, repr(url), repr(store), repr([url]), f"{url!r}"):
        assert signature not in shown
        assert "X-Goog-Credential" not in shown
