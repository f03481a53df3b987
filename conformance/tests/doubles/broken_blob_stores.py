"""Blob stores with one clause broken; collected by an inner run alone."""

import asyncio
import fnmatch
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, ClassVar

import pytest

from stagewright.memory import InMemoryBlobStore
from stagewright.ports import BlobStore
from stagewright_conformance import BlobDateSuite, BlobListingSuite, BlobStreamSuite, BlobSuite, Scale


class Doubles:
    """Runs a suite on the double that the test class names."""

    double: ClassVar[type[InMemoryBlobStore]]

    @pytest.fixture
    def scale(self) -> Scale:
        return Scale(contenders=4, large_blob=100_003, huge_blob=200_003, patience=0.5)

    @pytest.fixture
    def blob_store(self) -> BlobStore:
        return self.double()


class TruncatesAtZeros(InMemoryBlobStore):
    """A blob ends at its first zero byte."""

    async def put(
        self, key: str, data: bytes, *, content_type: str | None = None, if_absent: bool = False
    ) -> bool:
        cut = data.split(b"\x00")[0]
        return await super().put(key, cut, content_type=content_type, if_absent=if_absent)


class TestTruncatesAtZeros(Doubles, BlobSuite):
    double = TruncatesAtZeros


class CutsAt(InMemoryBlobStore):
    """A blob ends at some size, as in a column of a limited width."""

    limit: ClassVar[int]

    async def put(
        self, key: str, data: bytes, *, content_type: str | None = None, if_absent: bool = False
    ) -> bool:
        cut = data[: self.limit]
        return await super().put(key, cut, content_type=content_type, if_absent=if_absent)


class CutsAtTwoMegabytes(CutsAt):
    limit = 2_000_000


class CutsAtSixteenMebibytes(CutsAt):
    limit = 2**24


class AtFullScale(Doubles):
    """Sizes as an adapter has them that changes nothing."""

    @pytest.fixture
    def scale(self) -> Scale:
        return Scale()


class TestCutsAtTwoMegabytes(AtFullScale, BlobSuite):
    double = CutsAtTwoMegabytes


class TestCutsAtSixteenMebibytes(AtFullScale, BlobStreamSuite):
    double = CutsAtSixteenMebibytes


class KeepsTheCallersBuffer(InMemoryBlobStore):
    """What is given is kept as it is, and seen to change."""

    def __init__(self) -> None:
        super().__init__()
        self._buffers: dict[str, bytes] = {}

    async def put(
        self, key: str, data: bytes, *, content_type: str | None = None, if_absent: bool = False
    ) -> bool:
        stored = await super().put(key, data, content_type=content_type, if_absent=if_absent)
        if stored:
            self._buffers[key] = data
        return stored

    async def get(self, key: str) -> bytes:
        stored = await super().get(key)
        return bytes(self._buffers.get(key, stored))


class TestKeepsTheCallersBuffer(Doubles, BlobSuite):
    double = KeepsTheCallersBuffer


class KeepsTheBufferOfAPiece(InMemoryBlobStore):
    """Pieces are kept as they are given until the stream ends."""

    @asynccontextmanager
    async def open_write(self, key: str, *, content_type: str | None = None) -> AsyncIterator[Any]:
        pieces: list[bytes] = []
        async with super().open_write(key, content_type=content_type) as writer:
            yield _Pieces(pieces)
            for piece in pieces:
                await writer.write(piece)


class _Pieces:
    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    async def write(self, data: bytes) -> None:
        self._pieces.append(data)


class TestKeepsTheBufferOfAPiece(Doubles, BlobStreamSuite):
    double = KeepsTheBufferOfAPiece


class TakesAnyKey(InMemoryBlobStore):
    """What is no key is made one."""

    async def put(
        self, key: str, data: bytes, *, content_type: str | None = None, if_absent: bool = False
    ) -> bool:
        made = "".join(letter for letter in key if letter.isprintable())[:900] or "empty"
        return await super().put(made, data, content_type=content_type, if_absent=if_absent)


class TestTakesAnyKey(Doubles, BlobSuite):
    double = TakesAnyKey


class FindsOutTooLate(InMemoryBlobStore):
    """A key is looked at when the stream ends."""

    @asynccontextmanager
    async def open_write(self, key: str, *, content_type: str | None = None) -> AsyncIterator[Any]:
        pieces: list[bytes] = []
        yield _Copies(pieces)
        await self.put(key, b"".join(pieces), content_type=content_type)


class _Copies(_Pieces):
    async def write(self, data: bytes) -> None:
        await super().write(bytes(data))


class TestFindsOutTooLate(Doubles, BlobStreamSuite):
    double = FindsOutTooLate


class DatesInLocalTime(InMemoryBlobStore):
    """Says when a blob was written without saying where on earth."""

    async def written_at(self, key: str) -> datetime | None:
        moment = await super().written_at(key)
        return None if moment is None else moment.replace(tzinfo=None)


class TestDatesInLocalTime(Doubles, BlobDateSuite):
    double = DatesInLocalTime


class RemembersTheFirst(InMemoryBlobStore):
    """Dates a blob that is gone, so that it seems old when it comes again."""

    def __init__(self) -> None:
        super().__init__()
        self._dates: dict[str, datetime | None] = {}

    async def written_at(self, key: str) -> datetime | None:
        return self._dates.get(key) or self._dates.setdefault(key, await super().written_at(key))


class TestRemembersTheFirst(Doubles, BlobDateSuite):
    double = RemembersTheFirst


class DecodesText(InMemoryBlobStore):
    """Bytes go through a text."""

    async def get(self, key: str) -> bytes:
        return (await super().get(key)).decode("utf-8", "replace").encode()


class TestDecodesText(Doubles, BlobSuite):
    double = DecodesText


class LetsTwoWin(InMemoryBlobStore):
    """Whether a blob is there is asked before it is written."""

    async def put(
        self, key: str, data: bytes, *, content_type: str | None = None, if_absent: bool = False
    ) -> bool:
        if if_absent and await self.has(key):
            return False
        await asyncio.sleep(0)
        return await super().put(key, data, content_type=content_type)


class TestLetsTwoWin(Doubles, BlobSuite):
    double = LetsTwoWin


class TidiesKeys(InMemoryBlobStore):
    """Keys are taken for paths."""

    async def put(
        self, key: str, data: bytes, *, content_type: str | None = None, if_absent: bool = False
    ) -> bool:
        tidy = re.sub("/+", "/", key).strip("/ ")
        return await super().put(tidy, data, content_type=content_type, if_absent=if_absent)


class TestTidiesKeys(Doubles, BlobSuite):
    double = TidiesKeys


class MissesTheMissing(InMemoryBlobStore):
    """A blob that isn't there can't be deleted."""

    async def delete(self, key: str) -> None:
        await self.get(key)
        await super().delete(key)


class TestMissesTheMissing(Doubles, BlobSuite):
    double = MissesTheMissing


class TakesAPrefixForAWildcard(InMemoryBlobStore):
    """The characters of a prefix mean something, as in a shell."""

    async def list(self, prefix: str) -> AsyncIterator[str]:
        async for key in super().list(""):
            if fnmatch.fnmatchcase(key, prefix + "*"):
                yield key


class TestTakesAPrefixForAWildcard(Doubles, BlobListingSuite):
    double = TakesAPrefixForAWildcard


class TakesAPrefixForAnExpression(InMemoryBlobStore):
    """The characters of a prefix mean something, as in a regular expression."""

    async def list(self, prefix: str) -> AsyncIterator[str]:
        async for key in super().list(""):
            if re.match(prefix if prefix not in ("(", "a\\", "a*") else re.escape(prefix), key):
                yield key


class TestTakesAPrefixForAnExpression(Doubles, BlobListingSuite):
    double = TakesAPrefixForAnExpression


class ListsOnePage(InMemoryBlobStore):
    """A listing ends with its first page."""

    async def list(self, prefix: str) -> AsyncIterator[str]:
        shown = 0
        async for key in super().list(prefix):
            shown += 1
            if shown > 1_000:
                return
            yield key


class TestListsOnePage(Doubles, BlobListingSuite):
    double = ListsOnePage


class ListsAsWritten(InMemoryBlobStore):
    """Keys are listed without regard to their case."""

    async def list(self, prefix: str) -> AsyncIterator[str]:
        for key in sorted([key async for key in super().list(prefix)], key=str.lower):
            yield key


class TestListsAsWritten(Doubles, BlobListingSuite):
    double = ListsAsWritten


class KeepsHalfABlob(InMemoryBlobStore):
    """A stream is kept as far as it got."""

    @asynccontextmanager
    async def open_write(self, key: str, *, content_type: str | None = None) -> AsyncIterator[Any]:
        raised: BaseException | None = None
        async with super().open_write(key, content_type=content_type) as writer:
            try:
                yield writer
            except BaseException as error:
                raised = error
        if raised is not None:
            raise raised


class TestKeepsHalfABlob(Doubles, BlobStreamSuite):
    double = KeepsHalfABlob


class WritesOnAfterACancellation(InMemoryBlobStore):
    """A write goes on in a task of its own whatever becomes of its caller."""

    async def put(
        self, key: str, data: bytes, *, content_type: str | None = None, if_absent: bool = False
    ) -> bool:
        put = super().put

        async def write() -> bool:
            await asyncio.sleep(0.001)
            return await put(key, data, content_type=content_type, if_absent=if_absent)

        return await asyncio.shield(asyncio.create_task(write()))


class TestWritesOnAfterACancellation(Doubles, BlobSuite):
    double = WritesOnAfterACancellation
