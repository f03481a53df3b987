"""A worker process on a machine whose clock is off, with workflows that wait in every way.

    python skewed_worker.py OPTIONS

OPTIONS is a JSON object with `url`, `told`, `name`, `workflows` and `skew`, in seconds. What happens is told with the
time of a clock that is right.
"""

import asyncio
import json
import logging
import os
import sys
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from stagewright import (
    Ready,
    RetryPolicy,
    StageContext,
    Suspend,
    Workflow,
    define_stage,
    define_workflow,
    open_kernel,
    system,
)
from stagewright_host_node import NodeHost

OPTIONS: dict[str, Any] = json.loads(sys.argv[1])


def set_clock_wrong(seconds: float) -> None:
    """Let everything that asks this machine for the time be wrong by so much."""
    right = system.SystemClock.now
    off = round(seconds * 1e9)
    counter = SimpleNamespace(time_ns=lambda: time.time_ns() + off)
    # A process whose whole clock is off can't be had without a machine of its own; ids come from the clock as well.
    setattr(system.SystemClock, "now", lambda self: right(self) + timedelta(seconds=seconds))  # noqa: B010
    setattr(system, "time", counter)  # noqa: B010


def tell(ctx: StageContext[Any], what: str) -> None:
    facts = {"worker": OPTIONS["name"], "run": ctx.run_id, "what": what, "at": time.time()}
    descriptor = os.open(OPTIONS["told"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, (json.dumps(facts) + "\n").encode())
    finally:
        os.close(descriptor)


async def hold(ctx: StageContext[int]) -> int:
    tell(ctx, "begun")
    await asyncio.sleep(20)
    tell(ctx, "over")
    return 1


async def nap(ctx: StageContext[int]) -> int:
    tell(ctx, "begun")
    await ctx.step.sleep("nap", "5s")
    tell(ctx, "over")
    return 1


async def overrun(ctx: StageContext[int]) -> int:
    tell(ctx, "begun")
    try:
        await asyncio.Event().wait()
    finally:
        tell(ctx, "over")
    return 1


async def stumble(ctx: StageContext[int]) -> int:
    tell(ctx, "begun" if ctx.attempt == 1 else "over")
    if ctx.attempt == 1:
        raise ValueError("not this time")
    return 1


async def hand_in(ctx: StageContext[int]) -> Suspend:
    tell(ctx, "begun")
    return Suspend(state={}, poll_interval="15s")


async def look(state: object, ctx: StageContext[int]) -> Ready[int]:
    tell(ctx, "over")
    return Ready(1)


def workflows() -> list[Workflow]:
    again = RetryPolicy(max_attempts=2, delay="5s", jitter=False)
    once = RetryPolicy(max_attempts=1)
    stages = [
        define_stage("hold", hold, input=int, output=int),
        define_stage("nap", nap, input=int, output=int),
        define_stage("overrun", overrun, input=int, output=int, timeout="10s", retry=once),
        define_stage("stumble", stumble, input=int, output=int, retry=again),
        define_stage("batch", hand_in, input=int, output=int, mode="async-batch", check_completion=look),
    ]
    return [define_workflow(one.id, input=int).pipe(one).version("1").build() for one in stages]


async def main() -> None:
    set_clock_wrong(OPTIONS["skew"])
    async with open_kernel(workflows(), OPTIONS["url"]) as kernel:
        host = NodeHost(kernel, worker_id=OPTIONS["name"], concurrency=20, stale_lease_threshold="30s")
        await host.run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main())
