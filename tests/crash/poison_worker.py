"""A worker process whose body ends the process, for as long as a file says so.

python poison_worker.py URL NAME FOLDER
"""

import asyncio
import os
import sys
from pathlib import Path

from stagewright import StageContext, define_workflow, open_kernel, stage
from stagewright_host_node import NodeHost

URL, NAME, FOLDER = sys.argv[1], sys.argv[2], Path(sys.argv[3])


@stage("deadly")
async def deadly(ctx: StageContext[int]) -> int:
    with (FOLDER / "deaths.txt").open("a", encoding="utf-8") as deaths:
        deaths.write(f"{os.getpid()} {ctx.attempt}\n")
    os._exit(9)


@stage("healthy")
async def healthy(ctx: StageContext[int]) -> int:
    await asyncio.sleep(0.05)
    return ctx.input


WORKFLOWS = [define_workflow(one.id, input=int).pipe(one).build() for one in (deadly, healthy)]


async def main() -> None:
    async with open_kernel(WORKFLOWS, URL) as kernel:
        host = NodeHost(
            kernel,
            worker_id=NAME,
            concurrency=3,
            orchestration_interval="200ms",
            poll_interval="100ms",
            stale_lease_threshold="1500ms",
            job_heartbeat_interval="300ms",
        )
        await host.run()


if __name__ == "__main__":
    asyncio.run(main())
