"""Adapters that declare a gap, rightly or wrongly; collected by an inner run alone."""

import asyncio

import pytest

from stagewright.memory import InMemoryBlobStore, InMemoryPersistence
from stagewright.ports import BlobStore, Persistence
from stagewright_conformance import BlobSuite, Capabilities, RunClaimSuite, Scale


class LetsTwoWin(InMemoryBlobStore):
    """Can't put a blob on condition."""

    async def put(
        self, key: str, data: bytes, *, content_type: str | None = None, if_absent: bool = False
    ) -> bool:
        if if_absent and await self.has(key):
            return False
        await asyncio.sleep(0)
        return await super().put(key, data, content_type=content_type)


class TestAGapThatIsThere(BlobSuite):
    @pytest.fixture
    def capabilities(self) -> Capabilities:
        return Capabilities(conditional_put=False)

    @pytest.fixture
    def blob_store(self) -> BlobStore:
        return LetsTwoWin()


class TestAGapThatIsNone(BlobSuite):
    @pytest.fixture
    def capabilities(self) -> Capabilities:
        return Capabilities(conditional_put=False)

    @pytest.fixture
    def blob_store(self) -> BlobStore:
        return InMemoryBlobStore()


class TestAnotherGapThatIsNone(RunClaimSuite):
    @pytest.fixture
    def capabilities(self) -> Capabilities:
        return Capabilities(concurrent_writers=False)

    @pytest.fixture
    def scale(self) -> Scale:
        return Scale(contenders=2, rows=10)

    @pytest.fixture
    def persistence(self) -> Persistence:
        return InMemoryPersistence()
