"""Buckets on fake-gcs-server, and credentials that sign with a key of the test's own."""

import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any

import pytest
import pytest_asyncio
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from google.auth.credentials import AnonymousCredentials, Signing
from google.auth.crypt import RSASigner
from google.cloud import storage  # type: ignore[import-untyped]  # it has no types of its own

from stagewright_blob_gcs import GcsBlobStore
from stagewright_test_support.signed_url_gate import open_gate

_ACCOUNT = "signer@project.iam.gserviceaccount.com"


class KeyHolder(AnonymousCredentials, Signing):
    """Asks for no token, since fake-gcs-server wants none, and signs with a private key as a service account does."""

    def __init__(self, key: rsa.RSAPrivateKey) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # its base has no types
        self._public = key.public_key()
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
        self._signer = RSASigner.from_string(pem)

    @property
    def signer(self) -> Any:
        return self._signer

    @property
    def signer_email(self) -> str:
        return _ACCOUNT

    def sign_bytes(self, message: bytes) -> bytes:
        return bytes(self._signer.sign(message))

    def verify(self, signature: bytes, message: bytes) -> None:
        try:
            self._public.verify(signature, message, padding.PKCS1v15(), hashes.SHA256())
        except InvalidSignature as error:
            raise ValueError("another key or another message") from error


@dataclass(frozen=True)
class Service:
    """A Cloud Storage with a bucket in it, and who may sign for it."""

    address: str
    bucket: str
    credentials: KeyHolder

    def client(self) -> Any:
        options = {"api_endpoint": self.address}
        return storage.Client(project="p", credentials=AnonymousCredentials(), client_options=options)


@pytest.fixture(scope="session")
def key_holder() -> KeyHolder:
    return KeyHolder(rsa.generate_private_key(public_exponent=65_537, key_size=2_048))


@pytest.fixture(scope="module")
def service(gcs_address: str, key_holder: KeyHolder) -> Service:
    """A bucket on the session's fake-gcs-server."""
    service = Service(gcs_address, f"test-{uuid.uuid4().hex[:16]}", key_holder)
    client = service.client()
    client.create_bucket(service.bucket)
    client.close()
    return service


@pytest.fixture
def gated(service: Service) -> Iterator[Service]:
    """The same bucket behind a gate that checks signed URLs."""
    with open_gate(service.address, service.credentials.verify) as address:
        yield replace(service, address=address)


@pytest_asyncio.fixture
async def open_store() -> AsyncIterator[Callable[..., GcsBlobStore]]:
    """`open_store(service, prefix="…", **options)`: a store, closed after the test."""
    async with AsyncExitStack() as opened:

        def open_one(service: Service, *, prefix: str | None = None, **options: Any) -> GcsBlobStore:
            where = uuid.uuid4().hex if prefix is None else prefix
            given: dict[str, Any] = {
                "endpoint_url": service.address,
                "credentials": service.credentials,
                "retry_for": 5.0,
            } | options
            store = GcsBlobStore(f"gs://{service.bucket}/{where}", **given)
            opened.push_async_callback(store.close)
            return store

        yield open_one


@pytest.fixture
def store(service: Service, open_store: Callable[..., GcsBlobStore]) -> GcsBlobStore:
    """An empty store."""
    return open_store(service)
