"""How soon an idle worker of a peer, in another process, is at the first line of a job's body."""

import asyncio
import os
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from benchmarks.figures import Figures, Request, repeat
from benchmarks.peers.idle_peers import DBOS, PEERS, PGQUEUER, PROCRASTINATE, dbos_client
from benchmarks.peers.pgqueuer_turns import open_queue
from benchmarks.peers.procrastinate_turns import make_app

__all__ = ["first_line"]

_ROOT = Path(__file__).resolve().parents[2]
_WARM_UP = 3
# A worker that looks from time to time is met at any moment of its pause.
_PAUSES = (0.05, 0.1)

_Put = Callable[[], Awaitable[object]]


def first_line(request: Request) -> Figures:
    """Milliseconds from the call that enqueues a job; `peer` says by whom."""
    return asyncio.run(_measure(request))


async def _measure(request: Request) -> Figures:
    peer: str = request.options["peer"]
    await PEERS[peer].prepare(request.url)
    worker = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "benchmarks.peers.idle_peers", peer, request.url),
        stdout=subprocess.PIPE,
        env=dict(os.environ) | {"PYTHONPATH": str(_ROOT)},
    )
    assert worker.stdout is not None
    try:
        samples = []
        async with _PRODUCERS[peer](request.url) as put:
            for _ in repeat(_WARM_UP + request.size, request.seconds):
                await asyncio.sleep(random.uniform(*_PAUSES))
                began = time.monotonic_ns()
                await put()
                samples.append((int(await worker.stdout.readline()) - began) / 1e6)
        return Figures(samples=tuple(samples[_WARM_UP:]))
    finally:
        worker.kill()
        await worker.wait()


@asynccontextmanager
async def _procrastinate(url: str) -> AsyncIterator[_Put]:
    app = make_app(url, 1)
    async with app.open_async():
        yield lambda: app.configure_task("stamp").defer_async()


@asynccontextmanager
async def _pgqueuer(url: str) -> AsyncIterator[_Put]:
    queue, connection = await open_queue(url)
    yield lambda: queue.qm.queries.enqueue("stamp", None)
    await connection.close()


@asynccontextmanager
async def _dbos(url: str) -> AsyncIterator[_Put]:
    client = dbos_client(url)
    yield lambda: client.enqueue_async({"queue_name": "bench", "workflow_name": "stamp"})
    client.destroy()


_PRODUCERS: dict[str, Callable[[str], AbstractAsyncContextManager[_Put]]] = {
    PROCRASTINATE: _procrastinate,
    PGQUEUER: _pgqueuer,
    DBOS: _dbos,
}
