from hypothesis import given
from hypothesis import strategies as st

from stagewright.object_streams import PartWriter, RangeReader


class _Object:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.asked: list[tuple[int, int]] = []

    async def fetch(self, start: int, size: int) -> bytes:
        self.asked.append((start, size))
        return self.data[start : start + size]


@given(data=st.binary(max_size=60), most=st.integers(1, 20), sizes=st.lists(st.integers(-1, 25), max_size=12))
async def test_a_reader_gives_all_bytes_in_order_and_asks_for_each_once(
    data: bytes, most: int, sizes: list[int]
) -> None:
    there = _Object(data)
    reader = RangeReader(len(data), most, there.fetch)
    pieces = [(size, await reader.read(size)) for size in sizes]
    assert all(len(piece) <= size for size, piece in pieces if size >= 0)
    whole = b"".join(piece for _, piece in pieces) + await reader.read()
    assert whole == data
    assert await reader.read() == await reader.read(5) == b""
    assert there.asked == [(start, min(most, len(data) - start)) for start in range(0, len(data), most)]


async def test_a_range_that_fails_is_asked_for_again() -> None:
    failures = [OSError("lost")]
    there = _Object(b"0123456789")

    async def fetch(start: int, size: int) -> bytes:
        if start == 4 and failures:
            raise failures.pop()
        return await there.fetch(start, size)

    reader = RangeReader(10, 4, fetch)
    assert await reader.read(4) == b"0123"
    try:
        await reader.read(4)
    except OSError:
        assert await reader.read() == b"456789"
    assert failures == []


@given(pieces=st.lists(st.binary(max_size=30), max_size=10), size=st.integers(1, 12))
async def test_a_writer_sends_full_parts_and_keeps_the_last(pieces: list[bytes], size: int) -> None:
    sent: list[bytes] = []

    async def send(part: bytes) -> None:
        sent.append(part)

    writer = PartWriter(size, send)
    for piece in pieces:
        await writer.write(piece)
    whole = b"".join(pieces)
    assert b"".join([*sent, writer.last()]) == whole
    assert all(len(part) == size for part in sent)
    assert len(writer.last()) <= size
    assert not whole or writer.last()
