"""How soon a job that is enqueued while nothing else happens is in the hands of a worker in another process."""

import asyncio
import os
import random
import signal
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.dramatiq_jobs import DramatiqJobs
from benchmarks.redis_hand_over_worker import DRAMATIQ, QUEUES
from redis.asyncio import Redis

from stagewright_test_support.servers.launch import last_lines, launch

__all__ = ["HandOvers", "measure_hand_overs"]

_ROOT = Path(__file__).resolve().parents[1]
_ANSWERS = "bench:answers"
_WARM_UP = 3
# A worker that looks from time to time is met at any moment of its pause.
_PAUSES = (0.05, 0.25)
_PATIENCE = 30


@dataclass(frozen=True, slots=True)
class HandOvers:
    """What the rounds gave for one queue.

    Attributes:
        name: `stagewright`, `stream` or `dramatiq`.
        rounds: Milliseconds from the call that enqueues until the worker has the job, round by round.
    """

    name: str
    rounds: tuple[tuple[float, ...], ...]

    @property
    def p50(self) -> float:
        return statistics.median(self._all)

    @property
    def p99(self) -> float:
        return statistics.quantiles(self._all, n=100, method="inclusive")[98]

    @property
    def most(self) -> float:
        return max(self._all)

    @property
    def spread(self) -> tuple[float, float]:
        """The lowest and the highest p50 of a round."""
        middles = [statistics.median(one) for one in self.rounds]
        return min(middles), max(middles)

    @property
    def _all(self) -> list[float]:
        return [one for figures in self.rounds for one in figures]


async def measure_hand_overs(
    names: Sequence[str], url: str, folder: Path, *, jobs: int, rounds: int, tell: Callable[[str], None]
) -> list[HandOvers]:
    """Hand over jobs one after the other, each while the worker is idle, by every queue once in each round.

    Args:
        names: The queues.
        url: The server's database, which is emptied.
        folder: For the logs of the workers.
        jobs: How many in each round.
        rounds: How often each queue has its turn.
        tell: Hears how far it is.
    """
    measured: dict[str, list[tuple[float, ...]]] = {name: [] for name in names}
    for number in range(1, rounds + 1):
        for name in names:
            figures = await _measure(name, url, folder / f"{name}.log", jobs)
            measured[name].append(figures)
            tell(f"round {number}: {name}: hand-over p50 {statistics.median(figures):.2f} ms")
    return [HandOvers(name, tuple(measured[name])) for name in names]


async def _measure(name: str, url: str, log: Path, jobs: int) -> tuple[float, ...]:
    async with Redis.from_url(url) as client:
        await client.flushdb()
        async with _producer(name, url) as put:
            return await _hand_over(client, put, name, url, log, jobs)


async def _hand_over(
    client: "Redis", put: Callable[[int], Awaitable[None]], name: str, url: str, log: Path, jobs: int
) -> tuple[float, ...]:
    worker = launch(
        [sys.executable, "-m", "benchmarks.redis_hand_over_worker", name, url, _ANSWERS],
        log=log,
        account=None,
        farewell=signal.SIGKILL,
        environment=dict(os.environ) | {"PYTHONPATH": str(_ROOT)},
    )
    try:
        figures: list[float] = []
        for number in range(_WARM_UP + jobs):
            await asyncio.sleep(random.uniform(*_PAUSES))
            began = time.monotonic_ns()
            await put(number)
            answer: Any = await client.blpop([_ANSWERS], _PATIENCE)
            if answer is None:
                raise TimeoutError(f"{name} handed over nothing within {_PATIENCE} s: {last_lines(log)}")
            figures.append((int(answer[1]) - began) / 1e6)
        return tuple(figures[_WARM_UP:])
    finally:
        worker.kill()
        worker.wait()


@asynccontextmanager
async def _producer(name: str, url: str) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
    if name == DRAMATIQ:
        dramatiq = DramatiqJobs(url, lambda _number: None, lambda _number: None)

        async def put(number: int) -> None:
            dramatiq.put(number)

        yield put
        dramatiq.close()
    else:
        queue = await QUEUES[name](url)
        yield queue.put
        await queue.close()
