"""Workers in processes of their own, with their runs in a database and their jobs in Redis."""

import asyncio
import os
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
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

Eventually = Callable[..., Awaitable[None]]

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
def effects(tmp_path: Path) -> Callable[[str], Counter[str]]:
    """`effects(kind)`: how often something of that kind was done, by run."""

    def read(kind: str) -> Counter[str]:
        file = tmp_path / "effects.txt"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        return Counter(line.split(" ")[1] for line in lines if line.startswith(f"{kind} "))

    return read


@pytest.fixture
def worker(flows: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """`worker(url, jobs, *options)`: a worker process; it is killed after the test."""
    started: list[subprocess.Popen[bytes]] = []
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("STAGEWRIGHT_")}

    def start(url: str, jobs: str, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "stagewright.cli", "worker", f"{flows}:flow"]
        command += ["--url", url, "--job-transport", jobs, *options]
        with (flows.parent / f"worker-{len(started)}.log").open("wb") as log:
            started.append(subprocess.Popen(command, cwd=flows.parent, env=inherited, stdout=log, stderr=log))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


async def opened(stack: AsyncExitStack, flows: Path, url: str, jobs: str) -> Kernel:
    workflows = load_target(f"{flows}:flow").registry
    return await stack.enter_async_context(
        open_kernel(workflows, url, job_transport=jobs, create_schema=True)
    )


@pytest.mark.wide
@pytest.mark.guarantee("redis.waiters-woken-at-once")
async def test_an_idle_worker_begins_at_once_what_another_process_creates(
    flows: Path,
    sqlite_url: str,
    url: str,
    worker: Callable[..., subprocess.Popen[bytes]],
    effects: Callable[[str], Counter[str]],
    eventually: Eventually,
) -> None:
    async with AsyncExitStack() as stack:
        kernel = await opened(stack, flows, sqlite_url, url)
        worker(sqlite_url, url, "--poll-interval", "60s", "--orchestration-interval", "60s")
        first = (await kernel.dispatch(CreateRun("flow", 0.0))).run_id
        await eventually(lambda: effects("begin")[first])
        delays = []
        for _ in range(10):
            began = time.monotonic()
            run_id = (await kernel.dispatch(CreateRun("flow", 0.0))).run_id
            await eventually(lambda run_id=run_id: effects("begin")[run_id])
            delays.append(time.monotonic() - began)
            await wait_for_run(kernel, run_id, timeout="20s")
    assert statistics.median(delays) < 0.5, delays


@pytest.mark.wide
@pytest.mark.guarantee("redis.lost-jobs-come-again")
@pytest.mark.parametrize("loses", ["workers", "workers and the server"])
async def test_every_run_completes_while_processes_are_killed(
    flows: Path,
    postgres_url: str,
    redis_server: Any,
    redis_prefix: str,
    worker: Callable[..., subprocess.Popen[bytes]],
    effects: Callable[[str], Counter[str]],
    eventually: Eventually,
    loses: str,
) -> None:
    server = redis_server()
    jobs = f"{server.url()}?namespace={redis_prefix}"
    chance, count = Random(loses), 200
    options = (
        "--stale-lease-threshold", "3s", "--job-heartbeat-interval", "1s",
        "--orchestration-interval", "1s", "--poll-interval", "500ms", "--concurrency", "4",
    )  # fmt: skip
    async with AsyncExitStack() as stack:
        kernel = await opened(stack, flows, postgres_url, jobs)
        run_ids = [(await kernel.dispatch(CreateRun("flow", 0.05))).run_id for _ in range(count)]
        running = [worker(postgres_url, jobs, *options) for _ in range(3)]
        for kills in range(1, 11):
            # In the middle of their work, and not while they start.
            await eventually(lambda kills=kills: effects("begin").total() >= 15 * kills, within=60)
            await asyncio.sleep(chance.uniform(0, 0.2))
            victim = chance.randrange(len(running))
            running[victim].send_signal(signal.SIGKILL)
            running[victim].wait()
            running[victim] = worker(postgres_url, jobs, *options)
            if loses != "workers" and kills % 3 == 0:
                server.kill()
                await asyncio.to_thread(server.restart)
        for run_id in run_ids:
            run = await wait_for_run(kernel, run_id, timeout="90s")
            assert (run.status, run.output) == (Status.COMPLETED, run_id)
        await assert_consistent(kernel)
    assert set(effects("step")) == set(run_ids)
