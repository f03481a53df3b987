"""The turns of the scaling benchmark, each called in a process of its own over tables that are filled already."""

import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # it ships no types
from benchmarks.figures import Figures, Request, Stopwatch
from benchmarks.scaled_flow import WORKFLOW, scaled_flow

from stagewright import Kernel, open_kernel
from stagewright.commands import CreateRun
from stagewright.hosting import wait_for_run
from stagewright_host_node import NodeHost

__all__ = ["new_runs", "processes", "take_waiting"]

_ROOT = Path(__file__).resolve().parents[1]
_PRODUCERS = 4
_WARM_UP = 32
_PATIENCE = 300
_SAMPLING = 0.1

_ENDED = "SELECT count(*) FROM job_queue WHERE status = 'COMPLETED'"
_WORKERS = "SELECT count(DISTINCT worker_id) FROM job_queue WHERE status = 'COMPLETED'"
_LOCKED = """SELECT DISTINCT wait_event FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND state = 'active'"""


class _Bodies:
    """Counts ends of bodies."""

    def __init__(self) -> None:
        self.ended = 0

    def one(self) -> None:
        self.ended += 1

    async def reach(self, count: int) -> None:
        async with asyncio.timeout(_PATIENCE):
            while self.ended < count:  # noqa: ASYNC110 - bodies are counted, and ring no bell, so that they cost nothing
                await asyncio.sleep(0.002)


def new_runs(request: Request) -> Figures:
    """Runs of one stage that are created while the worker works, from the first creation to the last body."""

    async def measure() -> Figures:
        bodies = _Bodies()
        async with _worker(request, bodies) as kernel:
            await _create(kernel, _WARM_UP)
            await bodies.reach(_WARM_UP)
            watch = Stopwatch()
            last = await _create(kernel, request.size)
            await bodies.reach(_WARM_UP + request.size)
            figures = watch.stop(request.size)
            for run_id in last:
                await wait_for_run(kernel, run_id, timeout=60)
            return figures

    return asyncio.run(measure())


def take_waiting(request: Request) -> Figures:
    """So many of the runs that wait already, from when the worker has begun to take them."""

    async def measure() -> Figures:
        bodies = _Bodies()
        async with _worker(request, bodies):
            await bodies.reach(1)
            watch, before = Stopwatch(), bodies.ended
            await bodies.reach(before + request.size)
            return watch.stop(bodies.ended - before)

    return asyncio.run(measure())


@asynccontextmanager
async def _worker(request: Request, bodies: _Bodies) -> AsyncIterator[Kernel]:
    async with (
        open_kernel(scaled_flow(bodies.one), request.url) as kernel,
        NodeHost(kernel, concurrency=request.slots, handle_signals=False),
    ):
        yield kernel


async def _create(kernel: Kernel, runs: int) -> list[str]:
    """The ids of the last run of each producer."""

    async def produce(count: int) -> str:
        run_id = ""
        for _ in range(count):
            run_id = (await kernel.dispatch(CreateRun(WORKFLOW, None))).run_id
        return run_id

    counts = [len(range(number, runs, _PRODUCERS)) for number in range(min(_PRODUCERS, runs))]
    return list(await asyncio.gather(*map(produce, counts)))


def processes(request: Request) -> Figures:
    """Waiting runs by several processes, `workers`, from when all work, for `seconds`.

    Of `samples` of the server's sessions, `locked` found one that waits for another's lock; how many found one that
    waits for which kind of lock, goes by the kind.
    """
    return asyncio.run(_by_processes(request))


async def _by_processes(request: Request) -> Figures:
    connection: Any = await asyncpg.connect(request.url)
    workers: list[asyncio.subprocess.Process] = []
    try:
        workers = [await _start_worker(request) for _ in range(request.options["workers"])]
        async with asyncio.timeout(_PATIENCE):
            while await connection.fetchval(_WORKERS) < len(workers):  # noqa: ASYNC110 - as above
                await asyncio.sleep(_SAMPLING)
        return await _watch(connection, request)
    finally:
        for worker in workers:
            worker.kill()
        await asyncio.gather(*(worker.wait() for worker in workers))
        await connection.close()


async def _start_worker(request: Request) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.scaled_worker", request.url, str(request.slots)),
        env=dict(os.environ) | {"PYTHONPATH": str(_ROOT)},
    )


async def _watch(connection: Any, request: Request) -> Figures:
    before: int = await connection.fetchval(_ENDED)
    watch, until = Stopwatch(), time.monotonic() + request.options["seconds"]
    seen = Counter(samples=0, locked=0)
    while time.monotonic() < until:
        found = [row["wait_event"] for row in await connection.fetch(_LOCKED)]
        seen.update(samples=1, locked=bool(found), **dict.fromkeys(found, 1))
        await asyncio.sleep(_SAMPLING)
    ended: int = await connection.fetchval(_ENDED)
    if ended >= request.size:
        raise AssertionError(f"all of the {request.size:,} runs were done before the time was over")
    return watch.stop(ended - before, **seen)
