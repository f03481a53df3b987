"""Blob stores whose presigned URLs allow too much or too little; collected by an inner run alone."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import ClassVar

import pytest

from stagewright.duration import Duration, parse_duration
from stagewright.ports import BlobStore
from stagewright.presigned_urls import PresignedUrl
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
    def now(self, clock: FakeClock) -> Callable[[], datetime]:
        return clock.now

    @pytest.fixture
    def pass_time(self, clock: FakeClock) -> PassTime:
        async def advance(time: timedelta) -> None:
            clock.advance(time)

        return advance


class SignsForAnyMethod(SigningStore):
    """Who may read may write."""

    def signature(self, method: str, key: str, until: str, content_type: str) -> str:
        return super().signature("any", key, until, content_type)


class TestSignsForAnyMethod(SigningDoubles, PresignerSuite):
    double = SignsForAnyMethod


class SignsForAnyBlob(SigningStore):
    """Who may read one blob may read all."""

    def signature(self, method: str, key: str, until: str, content_type: str) -> str:
        return super().signature(method, "any", until, content_type)


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

    async def answer(self, method: str, path: str, data: bytes, sent_type: str) -> tuple[int, bytes]:
        return await super().answer(method, path.replace("%2F%2F", "%2F"), data, sent_type)


class TestSpellsKeysAnew(SigningDoubles, PresignerSuite):
    double = SpellsKeysAnew


class AnswersNothingForNothing(SigningStore):
    """A blob that isn't there is an empty one."""

    async def answer(self, method: str, path: str, data: bytes, sent_type: str) -> tuple[int, bytes]:
        status, body = await super().answer(method, path, data, sent_type)
        return (200, b"") if status == 404 else (status, body)


class TestAnswersNothingForNothing(SigningDoubles, PresignerSuite):
    double = AnswersNothingForNothing


class SignsForAnyType(SigningStore):
    """Who may write one content type may write all."""

    def url(self, method: str, key: str, expires: Duration, content_type: str) -> PresignedUrl:
        return super().url(method, key, expires, "")


class TestSignsForAnyType(SigningDoubles, PresignerSuite):
    double = SignsForAnyType


class PromisesTooMuch(SigningStore):
    """What it says of a URL's end is later than what was asked for."""

    def url(self, method: str, key: str, expires: Duration, content_type: str) -> PresignedUrl:
        signed = super().url(method, key, expires, content_type)
        return PresignedUrl(signed, signed.expires_at + timedelta(hours=3))


class TestPromisesTooMuch(SigningDoubles, PresignerSuite):
    double = PromisesTooMuch


def _possible(expires: Duration) -> timedelta:
    if isinstance(expires, timedelta):
        expires = abs(expires)
    return min(parse_duration(expires, field="expires") or timedelta(1), timedelta(days=7))


class SignsForYears(SigningStore):
    """It signs for whatever time it is asked for, as far as it can."""

    def url(self, method: str, key: str, expires: Duration, content_type: str) -> PresignedUrl:
        return super().url(method, key, _possible(expires), content_type)


class TestSignsForYears(SigningDoubles, PresignerSuite):
    double = SignsForYears


class SignsAnyKey(SigningStore):
    """It signs what is no key."""

    def url(self, method: str, key: str, expires: Duration, content_type: str) -> PresignedUrl:
        return super().url(
            method, "".join(filter(str.isprintable, key))[:900] or "none", expires, content_type
        )


class TestSignsAnyKey(SigningDoubles, PresignerSuite):
    double = SignsAnyKey
