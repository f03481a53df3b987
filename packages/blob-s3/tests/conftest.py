"""Buckets on two emulators, reached with the keys of a user who may do anything in S3."""

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from stagewright_blob_s3 import S3BlobStore
from stagewright_test_support.buckets import s3_session, s3_session_of_a_new_user


@dataclass(frozen=True)
class Service:
    """An S3 with a bucket in it, and the keys of one of its users."""

    address: str
    bucket: str
    session: Any  # Any: boto3 has no types

    def client(self) -> Any:
        return self.session.client("s3", endpoint_url=self.address)

    def stranger(self, *, policy: dict[str, Any] | None) -> Any:
        """A session with the keys of a new user; None for no policy at all."""
        return s3_session_of_a_new_user(self.address, policy)


def _service(address: str, session: Any) -> Service:
    service = Service(address, f"test-{uuid.uuid4().hex[:16]}", session)
    client = service.client()
    client.create_bucket(Bucket=service.bucket)
    client.close()
    return service


@pytest.fixture(scope="module")
def ministack(s3_address: str) -> Service:
    """A bucket on the session's ministack."""
    return _service(s3_address, s3_session_of_a_new_user(s3_address))


@pytest.fixture(scope="module")
def moto(moto_address: str) -> Service:
    """A bucket on the module's moto, which looks at no keys."""
    return _service(moto_address, s3_session("test", "test"))


@pytest.fixture(params=["ministack", pytest.param("moto", marks=pytest.mark.wide)])
def service(request: pytest.FixtureRequest) -> Service:
    """Each of the two."""
    found: Service = request.getfixturevalue(request.param)
    return found


@pytest_asyncio.fixture
async def open_store() -> AsyncIterator[Callable[..., S3BlobStore]]:
    """`open_store(service, prefix="…", **options)`: a store, closed after the test."""
    async with AsyncExitStack() as opened:

        def open_one(service: Service, *, prefix: str | None = None, **options: Any) -> S3BlobStore:
            where = uuid.uuid4().hex if prefix is None else prefix
            given: dict[str, Any] = {
                "endpoint_url": service.address,
                "session": service.session,
                "attempts": 3,
            } | options
            store = S3BlobStore(f"s3://{service.bucket}/{where}", **given)
            opened.push_async_callback(store.close)
            return store

        yield open_one


@pytest.fixture
def store(ministack: Service, open_store: Callable[..., S3BlobStore]) -> S3BlobStore:
    """An empty store on ministack."""
    return open_store(ministack)
