from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from stagewright.memory import InMemoryPersistence
from stagewright.plugins import AdapterOptions, AdapterSet
from stagewright.ports import BlobStore, Persistence, StepLedger
from stagewright_conformance import (
    BLOB_STORE_SUITES,
    ENGINE_SUITES,
    STEP_LEDGER_SUITES,
    BlobListingSuite,
    BlobStreamSuite,
    BlobSuite,
    EngineCrashSuite,
    EngineCrowdSuite,
    EngineSuite,
    StepLedgerSuite,
    suites_left_out,
)

from stagewright_folder.plugin import open_folder

pytestmark = pytest.mark.conformance_target("folder")


class Folder:
    """Two openings of one new folder: this process's, and another's."""

    @pytest_asyncio.fixture
    async def opened(self, tmp_path: Path) -> AsyncIterator[AdapterSet]:
        async with open_folder(f"folder://{tmp_path}", AdapterOptions()) as opened:
            yield opened

    @pytest_asyncio.fixture
    async def opened_elsewhere(self, tmp_path: Path) -> AsyncIterator[AdapterSet]:
        async with open_folder(f"folder://{tmp_path}", AdapterOptions()) as opened:
            yield opened


class FolderBlobs(Folder):
    @pytest.fixture
    def blob_store(self, opened: AdapterSet) -> BlobStore:
        assert opened.blob_store is not None
        return opened.blob_store

    @pytest.fixture
    def rival_blob_store(self, opened_elsewhere: AdapterSet) -> BlobStore:
        assert opened_elsewhere.blob_store is not None
        return opened_elsewhere.blob_store


class FolderKernels(Folder):
    """Kernels over the folder; the ports that it doesn't serve come from memory."""

    @pytest.fixture
    def adapters(self, opened: AdapterSet) -> AdapterSet:
        return opened

    @pytest.fixture
    def other_adapters(self, opened_elsewhere: AdapterSet) -> AdapterSet:
        return opened_elsewhere


class TestBlobs(FolderBlobs, BlobSuite):
    pass


class TestBlobListing(FolderBlobs, BlobListingSuite):
    pass


class TestBlobStreams(FolderBlobs, BlobStreamSuite):
    pass


class TestSteps(Folder, StepLedgerSuite):
    @pytest.fixture
    def ledger(self, opened: AdapterSet) -> StepLedger:
        assert opened.step_ledger is not None
        return opened.step_ledger

    @pytest.fixture
    def persistence(self) -> Persistence:
        return InMemoryPersistence()  # the suite makes the stage records there


class TestEngine(FolderKernels, EngineSuite):
    pass


class TestEngineCrashes(FolderKernels, EngineCrashSuite):
    pass


class TestEngineCrowds(FolderKernels, EngineCrowdSuite):
    pass


def test_every_suite_of_the_ports_runs() -> None:
    ports = (*BLOB_STORE_SUITES, *STEP_LEDGER_SUITES, *ENGINE_SUITES)
    left_out = suites_left_out(globals(), ports)
    assert left_out == ["StepEnlistmentSuite"]  # for one database alone
