"""The suite on two emulators of S3; neither is the real thing, and `docs/buckets.md` says what they leave open."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from stagewright.ports import BlobStore
from stagewright_conformance import (
    BLOB_DATE_SUITES,
    BLOB_STORE_SUITES,
    PRESIGNER_SUITES,
    BlobDateSuite,
    BlobListingSuite,
    BlobStreamSuite,
    BlobSuite,
    Capabilities,
    PresignerSuite,
    Scale,
    suites_left_out,
)


class InABucket:
    """A store of its own prefix for each test."""

    @pytest.fixture
    def place(self) -> str:
        return f"of/{uuid.uuid4().hex}"

    @pytest.fixture
    def blob_store(self, service: Any, place: str, open_store: Callable[..., BlobStore]) -> BlobStore:
        return open_store(service, prefix=place, part_size=5 << 20)

    @pytest.fixture
    def rival_blob_store(self, service: Any, place: str, open_store: Callable[..., BlobStore]) -> BlobStore:
        return open_store(service, prefix=place)

    @pytest.fixture
    def capabilities(self) -> Capabilities:
        return Capabilities(long_keys=False)

    @pytest.fixture
    def scale(self) -> Scale:
        return Scale(contenders=6, patience=60.0)


class TestBlobs(InABucket, BlobSuite): ...


class TestListing(InABucket, BlobListingSuite): ...


class TestStreams(InABucket, BlobStreamSuite): ...


class TestDates(InABucket, BlobDateSuite): ...


class TestPresigning(InABucket, PresignerSuite):
    @pytest.fixture
    def service(self, ministack: Any) -> Any:
        """The one that checks signatures."""
        return ministack


def test_every_suite_of_the_port_runs() -> None:
    assert suites_left_out(globals(), (*BLOB_STORE_SUITES, *BLOB_DATE_SUITES, *PRESIGNER_SUITES)) == []
