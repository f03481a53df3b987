"""Blob stores whose presigned URLs allow too much or too little; collected by an inner run alone."""

from collections.abc import Iterator
from datetime import timedelta
from typing import ClassVar

import pytest

from stagewright.ports import BlobStore
from stagewright.testing import FakeClock
from stagewright_conformance import PassTime, PresignerSuite
from stagewright_test_support.signing_store import SigningStore


class SigningDoubles:
    """Runs the suite on the store that the test class names."""

    double: ClassVar[type[SigningStore]]

    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    @pytest.fixture
    def blob_store(self, clock: FakeClock) -> Iterator[BlobStore]:
        with self.double.serving(clock) as store:
            yield store

    @pytest.fixture
    def pass_time(self, clock: FakeClock) -> PassTime:
        async def advance(time: timedelta) -> None:
            clock.advance(time)

        return advance


class SignsForAnyMethod(SigningStore):
    """Who may read may write."""

    def signature(self, method: str, key: str, until: str) -> str:
        return super().signature("any", key, until)


class TestSignsForAnyMethod(SigningDoubles, PresignerSuite):
    double = SignsForAnyMethod


class SignsForAnyBlob(SigningStore):
    """Who may read one blob may read all."""

    def signature(self, method: str, key: str, until: str) -> str:
        return super().signature(method, "any", until)


class TestSignsForAnyBlob(SigningDoubles, PresignerSuite):
    double = SignsForAnyBlob


class NeverExpires(SigningStore):
    """A URL is good for ever."""

    def is_late(self, until: str) -> bool:
        return False


class TestNeverExpires(SigningDoubles, PresignerSuite):
    double = NeverExpires


class SpellsKeysAnew(SigningStore):
    """A key is written under what its URL makes of it."""

    async def answer(self, method: str, path: str, data: bytes) -> tuple[int, bytes]:
        return await super().answer(method, path.replace("%2F%2F", "%2F"), data)


class TestSpellsKeysAnew(SigningDoubles, PresignerSuite):
    double = SpellsKeysAnew


class AnswersNothingForNothing(SigningStore):
    """A blob that isn't there is an empty one."""

    async def answer(self, method: str, path: str, data: bytes) -> tuple[int, bytes]:
        status, body = await super().answer(method, path, data)
        return (200, b"") if status == 404 else (status, body)


class TestAnswersNothingForNothing(SigningDoubles, PresignerSuite):
    double = AnswersNothingForNothing
