"""Large blobs piece by piece, for stores that are asked for ranges and sent parts."""

from collections.abc import Awaitable, Callable

__all__ = ["PartWriter", "RangeReader"]


class RangeReader:
    """A `BlobReader` that holds one range of a blob at a time.

    Args:
        total: The blob's bytes.
        most: How many of them to ask for at a time.
        fetch: Gives bytes, from a place and so many; it is asked for each once, in order.
    """

    def __init__(self, total: int, most: int, fetch: Callable[[int, int], Awaitable[bytes]]) -> None:
        self._total = total
        self._most = most
        self._fetch = fetch
        self._next = 0
        self._held = memoryview(b"")

    async def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes more, all that is left for -1, nothing at the end."""
        if size >= 0:
            return await self._some(size)
        pieces: list[bytes] = []
        while piece := await self._some(self._most):
            pieces.append(piece)
        return b"".join(pieces)

    async def _some(self, size: int) -> bytes:
        left = min(self._most, self._total - self._next)
        if size and left and not self._held:
            self._held = memoryview(await self._fetch(self._next, left))
            self._next += left
        taken = self._held[:size]
        self._held = self._held[len(taken) :]
        return bytes(taken)


class PartWriter:
    """A `BlobWriter` that sends a part as soon as it knows that it isn't the last.

    Args:
        size: Bytes of every part but the last.
        send: Sends the next one; it is called for one after the other.
    """

    def __init__(self, size: int, send: Callable[[bytes], Awaitable[object]]) -> None:
        self._size = size
        self._send = send
        self._held = bytearray()

    async def write(self, data: bytes) -> None:
        """Append bytes, as they are now."""
        self._held += data
        while len(self._held) > self._size:
            part = bytes(memoryview(self._held)[: self._size])
            del self._held[: self._size]
            await self._send(part)

    def last(self) -> bytes:
        """What wasn't sent: all of a blob that fits into one part."""
        return bytes(self._held)
