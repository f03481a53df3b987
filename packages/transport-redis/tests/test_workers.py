"""Workers in processes of their own, with their runs in a database and their jobs in Redis."""

import asyncio
import statistics
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from stagewright import Kernel, open_kernel
from stagewright.cli.targets import load_target
from stagewright.commands import CreateRun
from stagewright.hosting import wait_for_run
from stagewright.status import Status
from stagewright.testing import assert_consistent
from stagewright_test_support.worker_commands import KILLED_SOON_FOUND, WorkerCommands

WORKFLOWS = """
import asyncio
import os
from pathlib import Path

from stagewright import RetryPolicy, StageContext, define_workflow, stage

HERE = Path(__file__).parent


def note(line: str) -> None:
    with (HERE / "effects.txt").open("a", encoding="utf-8") as effects:
        effects.write(line + "\\n")


async def effect(name: str) -> str:
    note(name)
    return name


@stage("one", retry=RetryPolicy(max_worker_losses=50))
async def one(ctx: StageContext[float]) -> float:
    note(f"begin {ctx.run_id}")
    await ctx.step.run("effect", lambda: effect(f"step {ctx.run_id}"))
    await asyncio.sleep(ctx.input)
    return ctx.input


@stage("two", retry=RetryPolicy(max_worker_losses=50))
async def two(ctx: StageContext[float]) -> str:
    await ctx.step.sleep("nap", ctx.input)
    return ctx.run_id


flow = define_workflow("flow", input=float).pipe(one).pipe(two).build()
"""


@pytest.fixture
def flows(tmp_path: Path) -> Path:
    path = tmp_path / "flows.py"
    path.write_text(WORKFLOWS, encoding="utf-8")
    return path


@pytest.fixture
def workers(flows: Path) -> Iterator[WorkerCommands]:
    """Worker processes, which are killed after the test."""
    started = WorkerCommands(f"{flows}:flow", flows.parent)
    yield started
    started.kill_all()


async def opened(stack: AsyncExitStack, flows: Path, url: str, jobs: str) -> Kernel:
    workflows = load_target(f"{flows}:flow").registry
    return await stack.enter_async_context(
        open_kernel(workflows, url, job_transport=jobs, create_schema=True)
    )


@pytest.mark.wide
@pytest.mark.guarantee("redis.waiters-woken-at-once")
async def test_an_idle_worker_begins_at_once_what_another_process_creates(
    flows: Path, sqlite_url: str, url: str, workers: WorkerCommands
) -> None:
    async with AsyncExitStack() as stack:
        kernel = await opened(stack, flows, sqlite_url, url)
        seldom = ("--poll-interval", "60s", "--orchestration-interval", "60s")
        workers.start("--url", sqlite_url, "--job-transport", url, *seldom)
        delays = []
        for _ in range(11):
            began = time.monotonic()
            run_id = (await kernel.dispatch(CreateRun("flow", 0.0))).run_id
            await workers.until(partial(workers.has_begun, run_id), "the run begins")
            delays.append(time.monotonic() - began)
            await wait_for_run(kernel, run_id, timeout="20s")
    # The worker was yet to start when the first one was created.
    assert statistics.median(delays[1:]) < 0.5, delays


@pytest.mark.wide
@pytest.mark.guarantee("redis.lost-jobs-come-again")
@pytest.mark.parametrize("loses", ["workers", "workers and the server"])
async def test_every_run_completes_while_processes_are_killed(
    flows: Path, postgres_url: str, redis_server: Any, redis_prefix: str, workers: WorkerCommands, loses: str
) -> None:
    server = redis_server()
    jobs = f"{server.url()}?namespace={redis_prefix}"

    def start() -> Any:
        return workers.start("--url", postgres_url, "--job-transport", jobs, *KILLED_SOON_FOUND)

    async def lose_the_server_too(kills: int) -> None:
        if loses != "workers" and kills % 3 == 0:
            server.kill()
            await asyncio.to_thread(server.restart)

    async with AsyncExitStack() as stack:
        kernel = await opened(stack, flows, postgres_url, jobs)
        run_ids = [(await kernel.dispatch(CreateRun("flow", 0.05))).run_id for _ in range(200)]
        await workers.kill_over_and_over(
            start,
            [start() for _ in range(3)],
            Random(loses),
            times=10,
            begun_between=15,
            pause=0.2,
            and_then=lose_the_server_too,
        )
        for run_id in run_ids:
            run = await wait_for_run(kernel, run_id, timeout="90s")
            assert (run.status, run.output) == (Status.COMPLETED, run_id)
        await assert_consistent(kernel)
    assert set(workers.noted("step")) == set(run_ids)
