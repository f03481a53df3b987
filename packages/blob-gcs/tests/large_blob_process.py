"""Writes a large blob piece by piece and reads it back; says how much the process has grown meanwhile."""

import asyncio
import hashlib
import json
import sys
from pathlib import Path

from stagewright_blob_gcs import GcsBlobStore


def peak() -> int:
    """The most memory that this program ever had, in bytes; `getrusage` would count that of the one that started it."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    [size] = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return int(size) * 1024


async def main(url: str, megabytes: int) -> dict[str, object]:
    store = GcsBlobStore(url)
    await store.put("warm", b"1")
    await store.get("warm")
    before = peak()
    written, read, size = hashlib.sha256(), hashlib.sha256(), 0
    async with store.open_write("large") as writer:
        for number in range(megabytes):
            piece = number.to_bytes(4, "big") * (1 << 18)
            written.update(piece)
            await writer.write(piece)
    async with store.open_read("large") as reader:
        while piece := await reader.read(1 << 20):
            read.update(piece)
            size += len(piece)
    await store.delete("large")
    await store.close()
    return {
        "written": written.hexdigest(),
        "read": read.hexdigest(),
        "size": size,
        "grown": peak() - before,
    }


if __name__ == "__main__":
    json.dump(asyncio.run(main(sys.argv[1], int(sys.argv[2]))), sys.stdout)
