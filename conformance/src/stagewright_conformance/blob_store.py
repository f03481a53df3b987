"""Blob stores: every byte counts, and so does every letter of a key."""

import asyncio
import hashlib
from datetime import timedelta
from typing import Final, cast

import pytest

from stagewright.errors import BlobNotFoundError, InvalidBlobKeyError
from stagewright.ports import BlobStore, DatesBlobs
from stagewright_conformance.samples import rare_text
from stagewright_conformance.suite import Background, Scale, Suite

__all__ = ["BlobDateSuite", "BlobListingSuite", "BlobStoreSuite", "BlobStreamSuite", "BlobSuite"]

_ODD_BYTES: Final = {
    "empty": b"",
    "zeros": b"\x00" * 5,
    "every-byte": bytes(range(256)) * 3,
    "no-text": b"\xff\xfe\x80\xc0\xaf",
    "line-ends": b"a\r\nb\nc\r\x1a d",
    "json": b'{"a": 1.0}',
    "blanks": b"  \n ",
}
_ODD_KEYS: Final = (
    "a",
    "runs/r1/stages/price/output.json",
    "with space/and  two",
    " leading and trailing ",
    "ключ/鍵/🔑",
    "e\u0301-and-\u00e9",
    "percent%20%/plus+/q?x=1&y=2#f",
    "quote'double\"back\\slash`$(x)",
    "star*[a-z]?{x}^~|<>:;,=@!",
    "dots/../x/./y...",
    "/leading/slash",
    "double//slash/",
    "Case",
    "case",
    "under_score",
    "underXscore",
)
_NO_KEYS: Final = {
    "empty": "",
    "too-long": "x" * 901,
    "too-many-bytes": rare_text(651),
    "nul": "a\x00b",
    "line-end": "a\n",
    "escape": "\x1b[2J",
    "delete": "a\x7f",
    "upper-control": "a\x9b",
    "surrogate": "a\ud800",
}


async def _keys(blob_store: BlobStore, prefix: str) -> list[str]:
    return [key async for key in blob_store.list(prefix)]


class BlobStoreSuite(Suite):
    """Fixtures of the suites over a blob store.

    Fixtures to override: `blob_store` (required: an empty one for each test) and `rival_blob_store` (another handle
    on the same blobs, as a second process has it; the store itself by default).
    """

    @pytest.fixture
    def blob_store(self) -> BlobStore:
        """The store under test, empty."""
        raise NotImplementedError("override the fixture `blob_store` with an empty store for each test")

    @pytest.fixture
    def rival_blob_store(self, blob_store: BlobStore) -> BlobStore:
        """The same blobs as somebody else sees them."""
        return blob_store


class BlobSuite(BlobStoreSuite):
    """`BlobStore`: storing, reading and removing whole blobs.

    Fixtures: those of `BlobStoreSuite`.
    """

    @pytest.mark.guarantee("stores.blobs-exact-bytes")
    @pytest.mark.parametrize("data", _ODD_BYTES.values(), ids=_ODD_BYTES)
    async def test_bytes_come_back_exactly(self, blob_store: BlobStore, data: bytes) -> None:
        """`BlobStore`: every byte of data counts."""
        assert await blob_store.put("k", data)
        stored = await blob_store.get("k")
        assert type(stored) is bytes
        assert stored == data

    async def test_a_large_blob_comes_back_exactly(self, blob_store: BlobStore, scale: Scale) -> None:
        """`put`, `get`: whole."""
        for size in (scale.large_blob, scale.huge_blob):
            data = hashlib.shake_128(b"large").digest(size)
            await blob_store.put("k", data)
            stored = await blob_store.get("k")
            assert len(stored) == size
            assert hashlib.sha256(stored).digest() == hashlib.sha256(data).digest()

    async def test_a_content_type_changes_nothing(self, blob_store: BlobStore) -> None:
        """`put`: bytes are bytes, whatever the content type says."""
        for content_type in ("text/plain; charset=utf-16", "application/json", "application/gzip"):
            await blob_store.put("k", b"\xff\x00{", content_type=content_type)
            assert await blob_store.get("k") == b"\xff\x00{"

    async def test_what_a_caller_changes_later_does_not_reach_the_store(self, blob_store: BlobStore) -> None:
        """`put`: they are stored as they are now; what becomes of a buffer later doesn't reach the blob."""
        data = bytearray(b"abc")
        await blob_store.put("k", cast("bytes", data))
        data[0] = 0
        data += b"d"
        stored = await blob_store.get("k")
        assert type(stored) is bytes
        assert stored == b"abc"

    async def test_a_blob_that_is_not_there_is_an_error(self, blob_store: BlobStore) -> None:
        """`get`: `BlobNotFoundError` if there are none; `has`: False."""
        with pytest.raises(BlobNotFoundError) as caught:
            await blob_store.get("none")
        assert caught.value.key == "none"
        assert not await blob_store.has("none")

    async def test_a_blob_is_overwritten(self, blob_store: BlobStore) -> None:
        """`put`: True when they were stored, over what was there too, longer or shorter."""
        for data in (b"first", b"second and longer", b"3"):
            assert await blob_store.put("k", data)
            assert await blob_store.get("k") == data

    async def test_an_existing_blob_stays_with_if_absent(self, blob_store: BlobStore) -> None:
        """`put`: with `if_absent` an existing blob is left as it is and the answer is False, even an empty one."""
        assert await blob_store.put("k", b"", if_absent=True)
        assert not await blob_store.put("k", b"second", if_absent=True)
        assert await blob_store.get("k") == b""
        await blob_store.delete("k")
        assert await blob_store.put("k", b"third", if_absent=True)
        assert await blob_store.get("k") == b"third"

    @pytest.mark.needs("conditional_put")
    @pytest.mark.guarantee("stores.blobs-one-first-writer")
    async def test_of_several_first_writers_one_wins(
        self, blob_store: BlobStore, rival_blob_store: BlobStore, scale: Scale
    ) -> None:
        """`put`: with `if_absent`, of several callers at once exactly one is told True, and its bytes are there."""
        stores = (blob_store, rival_blob_store)
        for turn in range(scale.contenders):
            key = f"turn {turn}"
            puts = [
                stores[n % 2].put(key, f"writer {n}".encode(), if_absent=True)
                for n in range(scale.contenders)
            ]
            told = await scale.soon(asyncio.gather(*puts))
            assert told.count(True) == 1
            assert await blob_store.get(key) == f"writer {told.index(True)}".encode()

    async def test_a_reader_never_sees_half_a_blob(
        self, blob_store: BlobStore, rival_blob_store: BlobStore, background: Background, scale: Scale
    ) -> None:
        """`put`: whole or not at all, also for who reads meanwhile."""
        versions = [bytes([n]) * (10_000 + n) for n in range(scale.contenders)]
        await blob_store.put("k", versions[0])

        async def overwrite() -> None:
            for data in versions:
                await blob_store.put("k", data)

        writing = background.start(overwrite())
        while not writing.done():
            assert await rival_blob_store.get("k") in versions
            await asyncio.sleep(0)
        await scale.soon(writing)

    @pytest.mark.guarantee("stores.cancelled-blobs-are-decided")
    async def test_a_cancelled_write_is_decided_when_it_ends(
        self, blob_store: BlobStore, rival_blob_store: BlobStore, background: Background, scale: Scale
    ) -> None:
        """`put`: a call that is cancelled has taken effect whole or not at all by its end, and never does later."""
        data = b"x" * scale.large_blob
        ends: dict[str, bool] = {}
        for turn in range(scale.contenders):
            key = f"turn {turn}"
            writing = background.start(blob_store.put(key, data))
            for _ in range(turn):
                await asyncio.sleep(0)
            writing.cancel()
            await asyncio.wait({writing}, timeout=scale.patience)
            assert writing.done()
            ends[key] = await rival_blob_store.has(key)
        await asyncio.sleep(4 * scale.moment)
        for key, was_there in ends.items():
            assert await rival_blob_store.has(key) == was_there
            assert not was_there or await rival_blob_store.get(key) == data

    async def test_a_deleted_blob_is_gone(self, blob_store: BlobStore) -> None:
        """`delete`: removes a blob; nothing happens if there is none."""
        await blob_store.put("k", b"1")
        await blob_store.put("kk", b"2")
        await blob_store.delete("k")
        await blob_store.delete("k")
        assert not await blob_store.has("k")
        assert await blob_store.get("kk") == b"2"

    async def test_many_blobs_are_deleted_at_once(self, blob_store: BlobStore) -> None:
        """`delete_many`: removes blobs; those that don't exist don't matter."""
        keys = [f"d/{n}" for n in range(30)]
        for key in [*keys, "d", "kept"]:
            await blob_store.put(key, b"1")
        await blob_store.delete_many([*keys, "none"])
        await blob_store.delete_many([])
        assert await _keys(blob_store, "") == ["d", "kept"]

    @pytest.mark.parametrize("key", _ODD_KEYS)
    async def test_an_odd_key_is_a_key(self, blob_store: BlobStore, key: str) -> None:
        """`BlobStore`: keys are text of 1 to 900 characters without control characters."""
        await blob_store.put(key, key.encode())
        assert await blob_store.get(key) == key.encode()
        assert await blob_store.has(key)
        assert await _keys(blob_store, key) == [key]
        await blob_store.delete(key)
        assert not await blob_store.has(key)

    async def test_odd_keys_do_not_meet(self, blob_store: BlobStore) -> None:
        """`BlobStore`: bytes by key, and two keys that differ in any letter are two."""
        for key in _ODD_KEYS:
            assert await blob_store.put(key, key.encode(), if_absent=True)
        assert [await blob_store.get(key) for key in _ODD_KEYS] == [key.encode() for key in _ODD_KEYS]

    @pytest.mark.needs("long_keys")
    async def test_a_long_key_is_a_key(self, blob_store: BlobStore) -> None:
        """`BlobStore`: keys are text of 1 to 900 characters, and of 2,600 bytes of UTF-8 at the most."""
        keys = ["x" * 900, "x" * 899 + "y", "/".join(["part" * 20] * 11), rare_text(650)]
        for key in keys:
            await blob_store.put(key, key[-9:].encode())
        assert [await blob_store.get(key) for key in keys] == [key[-9:].encode() for key in keys]

    @pytest.mark.guarantee("stores.blob-keys-refused-by-type")
    @pytest.mark.parametrize("key", _NO_KEYS.values(), ids=_NO_KEYS)
    async def test_what_is_no_key_is_refused(self, blob_store: BlobStore, key: str) -> None:
        """`put`: `InvalidBlobKeyError` if the key is none; nothing is stored."""
        for if_absent in (False, True):
            with pytest.raises(InvalidBlobKeyError) as caught:
                await blob_store.put(key, b"1", if_absent=if_absent)
            assert caught.value.key == key
        assert await _keys(blob_store, "") == []


class BlobListingSuite(BlobStoreSuite):
    """`BlobStore.list`.

    Fixtures: those of `BlobStoreSuite`.
    """

    @pytest.mark.guarantee("stores.blobs-literal-prefixes")
    @pytest.mark.parametrize(
        "prefix", ["", "a", "a/", "a_", "a%", "a*", "a.", "a[b]", "A", "a/b", "a\\", "(", "none", "é"]
    )
    async def test_a_prefix_is_taken_letter_by_letter(self, blob_store: BlobStore, prefix: str) -> None:
        """`list`: all keys that start with a prefix, letter by letter."""
        keys = [
            "a",
            "a/b",
            "a/b/c",
            "a_b",
            "a%b",
            "a*b",
            "a.b",
            "a[b]",
            "ab",
            "axb",
            "A/b",
            "a\\b",
            "(",
            "b/a",
            "é",
            "e\u0301",
        ]
        for key in keys:
            await blob_store.put(key, b"1")
        assert await _keys(blob_store, prefix) == sorted(key for key in keys if key.startswith(prefix))

    async def test_keys_are_listed_in_ascending_order(self, blob_store: BlobStore) -> None:
        """`list`: in ascending order, by code point."""
        keys = ["b", "a/2", "a/10", "a", "a-", "a.", "B", "_", "é", "z", "ключ", "ﬀ", "𝔘", "0"]
        for key in keys:
            await blob_store.put(key, b"1")
        assert await _keys(blob_store, "") == sorted(keys)

    async def test_a_listing_goes_beyond_a_page(self, blob_store: BlobStore, scale: Scale) -> None:
        """`list`: all keys that start with a prefix, however many."""
        keys = [f"many/{n:06}" for n in range(scale.many_blobs)]
        await blob_store.put("many", b"")
        for key in keys:
            await blob_store.put(key, b"")
        assert await _keys(blob_store, "many/") == keys

    async def test_a_listing_can_be_left_early_and_deleted_from(self, blob_store: BlobStore) -> None:
        """`list`: an iterator; whoever walks it may delete what it shows."""
        for n in range(9):
            await blob_store.put(f"d/{n}", b"1")
        async for key in blob_store.list("d/"):
            if key == "d/5":
                break
        async for key in blob_store.list("d/"):
            await blob_store.delete(key)
        assert await _keys(blob_store, "d/") == []


class BlobStreamSuite(BlobStoreSuite):
    """`BlobStore.open_read` and `open_write`.

    Fixtures: those of `BlobStoreSuite`.
    """

    @pytest.mark.parametrize("piece", [1_000, 65_536, 10**9])
    async def test_a_blob_is_written_and_read_piece_by_piece(
        self, blob_store: BlobStore, scale: Scale, piece: int
    ) -> None:
        """`open_write`, `open_read`: the same bytes, in whatever pieces; nothing at the end."""
        data = hashlib.shake_128(b"stream").digest(scale.large_blob)
        async with blob_store.open_write("k") as writer:
            for start in range(0, len(data), piece):
                await writer.write(data[start : start + piece])
            await writer.write(b"")
        assert await blob_store.get("k") == data
        received = bytearray()
        async with blob_store.open_read("k") as reader:
            while part := await reader.read(piece):
                assert len(part) <= piece
                received += part
            assert await reader.read(piece) == b""
            assert await reader.read() == b""
        assert received == data

    async def test_a_huge_stream_comes_back_whole(self, blob_store: BlobStore, scale: Scale) -> None:
        """`BlobStore`: a blob of many megabytes is kept as whole as one of a few bytes."""
        data = hashlib.shake_128(b"huge").digest(scale.huge_blob)
        piece = 1 << 20
        async with blob_store.open_write("k") as writer:
            for start in range(0, len(data), piece):
                await writer.write(data[start : start + piece])
        received, size = hashlib.sha256(), 0
        async with blob_store.open_read("k") as reader:
            while part := await reader.read(piece):
                received.update(part)
                size += len(part)
        assert size == len(data)
        assert received.digest() == hashlib.sha256(data).digest()

    async def test_a_buffer_may_be_used_again_for_the_next_piece(self, blob_store: BlobStore) -> None:
        """`BlobWriter.write`: bytes as they are now; what becomes of a buffer later doesn't reach the blob."""
        buffer = bytearray(4)
        async with blob_store.open_write("k") as writer:
            for piece in (b"abcd", b"efgh", b"ijkl"):
                buffer[:] = piece
                await writer.write(cast("bytes", buffer))
            buffer[:] = b"last"
        assert await blob_store.get("k") == b"abcdefghijkl"

    @pytest.mark.parametrize("key", _NO_KEYS.values(), ids=_NO_KEYS)
    async def test_no_stream_is_opened_for_what_is_no_key(self, blob_store: BlobStore, key: str) -> None:
        """`open_write`: `InvalidBlobKeyError` on entering, if the key is none."""

        async def enter() -> None:
            async with blob_store.open_write(key):
                pytest.fail("this is no key, and a blob was opened for it")

        with pytest.raises(InvalidBlobKeyError) as caught:
            await enter()
        assert caught.value.key == key
        assert await _keys(blob_store, "") == []

    async def test_all_that_is_left_is_read_at_once(self, blob_store: BlobStore) -> None:
        """`BlobReader.read`: all that is left for -1."""
        await blob_store.put("k", b"abcdef")
        async with blob_store.open_read("k") as reader:
            assert await reader.read(2) == b"ab"
            assert await reader.read() == b"cdef"
            assert await reader.read() == b""

    async def test_an_empty_stream_is_an_empty_blob(self, blob_store: BlobStore) -> None:
        """`open_write`: the blob appears when the block ends, whatever was written."""
        async with blob_store.open_write("k", content_type="text/plain"):
            pass
        assert await blob_store.get("k") == b""

    async def test_a_blob_appears_when_its_block_ends(
        self, blob_store: BlobStore, rival_blob_store: BlobStore
    ) -> None:
        """`open_write`: it appears when the block ends, and what was there is read until then."""
        await blob_store.put("old", b"before")
        async with blob_store.open_write("k") as writer, blob_store.open_write("old") as over:
            await writer.write(b"x" * 100_000)
            await over.write(b"after")
            assert not await rival_blob_store.has("k")
            assert await _keys(rival_blob_store, "") == ["old"]
            assert await rival_blob_store.get("old") == b"before"
        assert await rival_blob_store.get("k") == b"x" * 100_000
        assert await rival_blob_store.get("old") == b"after"

    @pytest.mark.guarantee("stores.blobs-whole-or-absent")
    @pytest.mark.parametrize("cause", [LookupError, asyncio.CancelledError])
    async def test_a_block_that_raises_leaves_nothing(
        self, blob_store: BlobStore, cause: type[BaseException]
    ) -> None:
        """`open_write`: it appears not at all when the block raises."""
        await blob_store.put("old", b"before")

        async def fail(key: str) -> None:
            async with blob_store.open_write(key) as writer:
                await writer.write(b"half" * 10_000)
                raise cause

        for key in ("k", "old"):
            with pytest.raises(cause):
                await fail(key)
        assert await _keys(blob_store, "") == ["old"]
        assert await blob_store.get("old") == b"before"

    async def test_reading_what_is_not_there_is_an_error_at_once(self, blob_store: BlobStore) -> None:
        """`open_read`: `BlobNotFoundError` on entering, if there is no such blob."""

        async def enter() -> None:
            async with blob_store.open_read("none"):
                pytest.fail("there is no such blob, and it was opened")

        with pytest.raises(BlobNotFoundError):
            await enter()


class BlobDateSuite(BlobStoreSuite):
    """`DatesBlobs`: when blobs were written.

    Fixtures: those of `BlobStoreSuite`.
    """

    @pytest.mark.needs("dated_blobs")
    async def test_a_blob_says_when_it_was_written(
        self, blob_store: BlobStore, rival_blob_store: BlobStore
    ) -> None:
        """`DatesBlobs.written_at`: when it was stored, in UTC, the same to everybody."""
        assert isinstance(blob_store, DatesBlobs)
        assert isinstance(rival_blob_store, DatesBlobs)
        await blob_store.put("k", b"1")
        written_at = await blob_store.written_at("k")
        assert written_at is not None
        assert written_at.utcoffset() == timedelta(0)
        assert await rival_blob_store.written_at("k") == written_at

    @pytest.mark.needs("dated_blobs")
    async def test_only_what_is_there_has_a_date(self, blob_store: BlobStore) -> None:
        """`DatesBlobs.written_at`: when it was last stored; None if there is none."""
        assert isinstance(blob_store, DatesBlobs)
        assert await blob_store.written_at("none") is None
        await blob_store.put("k", b"1")
        first = await blob_store.written_at("k")
        await blob_store.put("k", b"1")
        again = await blob_store.written_at("k")
        assert first is not None
        assert again is not None
        assert again >= first
        await blob_store.delete("k")
        assert await blob_store.written_at("k") is None
