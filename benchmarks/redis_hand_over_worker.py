"""A worker that waits for jobs in a process of its own: `python -m benchmarks.redis_hand_over_worker`.

Its arguments are the name of a queue, the URL of a database, and the name of a list there, into which it puts the time
at which it had each job, in nanoseconds of the system's monotonic clock.
"""

import asyncio
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from benchmarks.dramatiq_jobs import DramatiqJobs
from benchmarks.redis_queues import JobQueue, StagewrightJobs, StreamJobs
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

__all__ = ["DRAMATIQ", "QUEUES", "main"]

QUEUES: Mapping[str, Callable[[str], Awaitable[JobQueue]]] = {
    "stagewright": StagewrightJobs.open,
    "stream": StreamJobs.open,
}
DRAMATIQ = "dramatiq"

_WAIT = 5.0
_THREADS = 8  # as many as its own command has


async def _serve(open_queue: Callable[[str], Awaitable[JobQueue]], url: str, answers: str) -> None:
    queue = await open_queue(url)
    async with AsyncRedis.from_url(url) as client:
        while True:
            for job, _ in await queue.take(1, wait=_WAIT):
                had = time.monotonic_ns()
                await queue.end(job)
                await client.lpush(answers, had)


def _serve_by_dramatiq(url: str, answers: str) -> None:
    client = Redis.from_url(url)

    def answer(_number: int) -> None:
        client.lpush(answers, time.monotonic_ns())

    DramatiqJobs(url, answer, lambda _number: None).start(_THREADS)
    threading.Event().wait()


def main(arguments: Sequence[str]) -> None:
    """Do jobs until the process is ended."""
    name, url, answers = arguments
    if name == DRAMATIQ:
        _serve_by_dramatiq(url, answers)
    else:
        asyncio.run(_serve(QUEUES[name], url, answers))


if __name__ == "__main__":
    main(sys.argv[1:])
