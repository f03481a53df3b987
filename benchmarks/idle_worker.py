"""The worker of the idle benchmark, a process of its own: `python -m benchmarks.idle_worker URL`.

Its body returns the time at which its first line ran, in nanoseconds of the system's monotonic clock, which all
processes of a machine share.
"""

import asyncio
import sys
import time

from stagewright import StageContext, Workflow, define_workflow, open_kernel, stage
from stagewright_host_node import NodeHost
from stagewright_host_node.garbage_collection import settle_garbage_collection

__all__ = ["CHAIN", "STAMP"]


@stage("stamp")
async def stamp(ctx: StageContext[None]) -> int:
    return time.monotonic_ns()


async def _next(ctx: StageContext[int]) -> int:
    return ctx.input + 1


STAMP: Workflow = define_workflow("stamp", input=type(None)).pipe(stamp).build()
CHAIN: Workflow = (
    define_workflow("chain", input=int)
    .stage("one", _next, input=int, output=int)
    .stage("two", _next, input=int, output=int)
    .stage("three", _next, input=int, output=int)
    .build()
)


async def main(url: str) -> None:
    """Work with the defaults until SIGTERM."""
    async with open_kernel([STAMP, CHAIN], url) as kernel:
        settle_garbage_collection()
        await NodeHost(kernel, worker_id="idle").run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
