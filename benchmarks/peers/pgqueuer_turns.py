"""PgQueuer, on asyncpg and uvloop as its own command runs it; how many jobs it takes at once is told by its option."""

import importlib
from datetime import timedelta
from typing import Any

from benchmarks.figures import Figures, Pace, Request, Stopwatch

__all__ = ["backlog", "open_queue"]

_AT_ONCE = 1_000
_WARM_UP = 200


async def open_queue(url: str) -> tuple[Any, Any]:
    """A queue on a connection with its tables, and the connection."""
    asyncpg: Any = importlib.import_module("asyncpg")
    connection = await asyncpg.connect(url)
    return importlib.import_module("pgqueuer").PgQueuer.from_asyncpg_connection(connection), connection


def backlog(request: Request) -> Figures:
    """Jobs that wait when the worker is started, until it has noted the end of the last one."""

    async def measure() -> Figures:
        queue, connection = await open_queue(request.url)
        await queue.qm.queries.install()
        await connection.close()
        pace = Pace(request, _WARM_UP)
        while not pace.is_found:
            pace.note(await _drain(request, pace.size))
        return pace.figures

    uvloop: Any = importlib.import_module("uvloop")
    figures: Figures = uvloop.run(measure())
    return figures


async def _drain(request: Request, size: int) -> Figures:
    queue, connection = await open_queue(request.url)
    drain: Any = importlib.import_module("pgqueuer.types").QueueExecutionMode.drain
    ended: list[bytes] = []

    async def nothing(job: Any) -> None:
        ended.append(job.payload)

    queue.entrypoint("nothing")(nothing)
    for first in range(0, size, _AT_ONCE):
        count = min(_AT_ONCE, size - first)
        payloads = [str(number).encode() for number in range(first, first + count)]
        await queue.qm.queries.enqueue(["nothing"] * count, payloads, [0] * count)
    watch = Stopwatch()
    await queue.run(dequeue_timeout=timedelta(seconds=5), batch_size=request.options["batch"], mode=drain)
    figures = watch.stop(size)
    assert len(set(ended)) == size
    await connection.close()
    return figures
