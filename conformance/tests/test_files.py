"""The suite on blobs in a folder, which lack nothing that a blob store has; they have no presigned URLs."""

from pathlib import Path

import pytest

from stagewright.filesystem import FileSystemBlobStore
from stagewright.plugins import AdapterSet
from stagewright.ports import BlobStore
from stagewright_conformance import (
    BLOB_DATE_SUITES,
    BLOB_STORE_SUITES,
    BlobDateSuite,
    BlobListingSuite,
    BlobStreamSuite,
    BlobSuite,
    EngineCrashSuite,
    EngineSuite,
    Scale,
    suites_left_out,
)

pytestmark = pytest.mark.conformance_target("files")


class InAFolder:
    """Two stores over one folder, as two processes have them."""

    @pytest.fixture
    def scale(self) -> Scale:
        return Scale(many_blobs=510)  # a little more than the store reads at once

    @pytest.fixture
    def blob_store(self, tmp_path: Path) -> BlobStore:
        return FileSystemBlobStore(tmp_path / "blobs")

    @pytest.fixture
    def rival_blob_store(self, tmp_path: Path) -> BlobStore:
        return FileSystemBlobStore((tmp_path / "blobs").as_uri())


class TestBlobs(InAFolder, BlobSuite):
    pass


class TestBlobDates(InAFolder, BlobDateSuite):
    pass


class TestBlobListing(InAFolder, BlobListingSuite):
    pass


class TestBlobStreams(InAFolder, BlobStreamSuite):
    pass


class Beside:
    """Blobs in a folder beside everything else in memory."""

    @pytest.fixture
    def adapters(self, tmp_path: Path) -> AdapterSet:
        return AdapterSet(blob_store=FileSystemBlobStore(tmp_path / "blobs"))


class TestEngine(Beside, EngineSuite):
    pass


class TestEngineCrashes(Beside, EngineCrashSuite):
    @pytest.fixture
    def scale(self) -> Scale:
        return Scale(crashes=4)


def test_every_suite_of_the_port_runs() -> None:
    assert suites_left_out(globals(), (*BLOB_STORE_SUITES, *BLOB_DATE_SUITES)) == []
