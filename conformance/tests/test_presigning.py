"""The suite on a store of this repository's own that signs URLs; S3 and Cloud Storage have it beside their adapters."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import pytest

from stagewright.ports import BlobStore
from stagewright.testing import FakeClock
from stagewright_conformance import PRESIGNER_SUITES, PassTime, PresignerSuite, suites_left_out
from stagewright_test_support.signing_store import SigningStore

pytestmark = pytest.mark.conformance_target("signed URLs")


class TestPresigning(PresignerSuite):
    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    @pytest.fixture
    def blob_store(self, clock: FakeClock) -> Iterator[BlobStore]:
        with SigningStore.serving(clock) as store:
            yield store

    @pytest.fixture
    def now(self, clock: FakeClock) -> Callable[[], datetime]:
        return clock.now

    @pytest.fixture
    def pass_time(self, clock: FakeClock) -> PassTime:
        async def advance(time: timedelta) -> None:
            clock.advance(time)

        return advance


def test_every_suite_of_the_port_runs() -> None:
    assert suites_left_out(globals(), PRESIGNER_SUITES) == []
