"""A worker of the scaling benchmark, a process of its own: `python -m benchmarks.scaled_worker URL SLOTS`."""

import asyncio
import sys
from collections.abc import Sequence

from benchmarks.scaled_flow import scaled_flow

from stagewright import open_kernel
from stagewright_host_node import NodeHost
from stagewright_host_node.garbage_collection import settle_garbage_collection

__all__ = ["main"]


async def _work(url: str, slots: int) -> None:
    async with open_kernel(scaled_flow(), url) as kernel:
        settle_garbage_collection()
        await NodeHost(kernel, concurrency=slots).run()


def main(arguments: Sequence[str]) -> None:
    """Work until SIGTERM."""
    url, slots = arguments
    asyncio.run(_work(url, int(slots)))


if __name__ == "__main__":
    main(sys.argv[1:])
