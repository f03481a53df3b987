"""The suite on fake-gcs-server, which isn't the real thing; `docs/buckets.md` says what it leaves open."""

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
        return open_store(service, prefix=place, part_size=1 << 20)

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
    def blob_store(self, gated: Any, place: str, open_store: Callable[..., BlobStore]) -> BlobStore:
        """Behind a gate that checks signatures: fake-gcs-server accepts every one."""
        return open_store(gated, prefix=place)


def test_every_suite_of_the_port_runs() -> None:
    assert suites_left_out(globals(), (*BLOB_STORE_SUITES, *BLOB_DATE_SUITES, *PRESIGNER_SUITES)) == []
