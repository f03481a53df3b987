"""Procrastinate, with its asynchronous connector, and a connection for each job that runs."""

import asyncio
import importlib
from typing import Any

from benchmarks.figures import Figures, Pace, Request, Stopwatch

__all__ = ["backlog", "make_app"]

_AT_ONCE = 1_000
_WARM_UP = 100


def make_app(url: str, slots: int) -> Any:
    """An application whose pool has a connection for each job that runs, and those of its listener and heartbeat."""
    procrastinate: Any = importlib.import_module("procrastinate")
    return procrastinate.App(
        connector=procrastinate.PsycopgConnector(conninfo=url, min_size=slots, max_size=slots + 4)
    )


def backlog(request: Request) -> Figures:
    """Jobs that wait when the worker is started; they are deferred in batches, as its manual advises."""

    async def measure() -> Figures:
        app = make_app(request.url, request.slots)
        ended: list[int] = []

        async def nothing(amount: int) -> None:
            ended.append(amount)

        task = app.task(name="nothing")(nothing)

        async def drain(size: int) -> Figures:
            ended.clear()
            for first in range(0, size, _AT_ONCE):
                numbers = range(first, min(first + _AT_ONCE, size))
                await task.batch_defer_async(*({"amount": number} for number in numbers))
            watch = Stopwatch()
            await app.run_worker_async(wait=False, concurrency=request.slots, install_signal_handlers=False)
            figures = watch.stop(size)
            assert sorted(ended) == list(range(size))
            return figures

        async with app.open_async():
            await app.schema_manager.apply_schema_async()
            pace = Pace(request, _WARM_UP)
            while not pace.is_found:
                pace.note(await drain(pace.size))
            return pace.figures

    return asyncio.run(measure())
