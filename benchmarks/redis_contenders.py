"""Who takes jobs from their enqueueing to their end, in one process, by the same number of slots."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from benchmarks.bell import Bell
from benchmarks.dramatiq_jobs import DramatiqJobs
from benchmarks.redis_queues import JobQueue

__all__ = ["DramatiqContender", "JobContender", "SlotContender"]

_PRODUCERS = 4
_PATIENCE = 300.0


class JobContender(Protocol):
    """A queue with the loops that put jobs into it and do them."""

    async def open(self, url: str) -> None:
        """Connect to an empty database."""
        ...

    async def drain(self, jobs: int) -> list[int]:
        """Enqueue the jobs with the numbers below so many, and return those that were ended, when all were."""
        ...

    async def left(self) -> int:
        """How many jobs are not ended."""
        ...

    async def close(self) -> None: ...


class SlotContender:
    """A queue for asyncio, with as many jobs at a time as there are slots.

    Args:
        open_queue: Opens the queue at a URL.
        slots: How many jobs are done at a time.
        batched: Whether one loop takes jobs for all slots that are free, or each slot takes one job for itself.
    """

    def __init__(
        self, open_queue: Callable[[str], Awaitable[JobQueue]], *, slots: int, batched: bool
    ) -> None:
        self._open_queue = open_queue
        self._slots = slots
        self._batched = batched
        self._queue: JobQueue | None = None

    async def open(self, url: str) -> None:
        self._queue = await self._open_queue(url)

    async def drain(self, jobs: int) -> list[int]:
        worker = _Slots(self._opened(), jobs, self._slots)
        async with asyncio.TaskGroup() as tasks:
            for first in range(_PRODUCERS):
                tasks.create_task(worker.produce(range(first, jobs, _PRODUCERS)))
            if self._batched:
                tasks.create_task(worker.take_for_free_slots())
            else:
                for _ in range(self._slots):
                    tasks.create_task(worker.fill_slot())
        return worker.ended

    async def left(self) -> int:
        return await self._opened().left()

    async def close(self) -> None:
        await self._opened().close()

    def _opened(self) -> JobQueue:
        assert self._queue is not None
        return self._queue


class _Slots:
    def __init__(self, queue: JobQueue, jobs: int, slots: int) -> None:
        self._queue = queue
        self._jobs = jobs
        self._free = slots
        self._bell = Bell()
        self.ended: list[int] = []

    @property
    def _is_over(self) -> bool:
        return len(self.ended) >= self._jobs

    async def produce(self, numbers: range) -> None:
        for number in numbers:
            await self._queue.put(number)
            self._bell.ring(1)

    async def fill_slot(self) -> None:
        while not self._is_over:
            jobs = await self._queue.take(1)
            for job, number in jobs:
                await self._end(job, number)
            if not jobs and not self._is_over:
                await self._bell.wait()

    async def take_for_free_slots(self) -> None:
        async with asyncio.TaskGroup() as ending:
            while not self._is_over:
                jobs = await self._queue.take(self._free) if self._free else ()
                self._free -= len(jobs)
                for job, number in jobs:
                    ending.create_task(self._end_in_slot(job, number))
                if not self._is_over and not (jobs and self._free):
                    await self._bell.wait()

    async def _end_in_slot(self, job: object, number: int) -> None:
        await self._end(job, number)
        self._free += 1
        self._bell.ring(1)

    async def _end(self, job: object, number: int) -> None:
        await self._queue.end(job)
        self.ended.append(number)
        if self._is_over:
            self._bell.ring(self._jobs)


class DramatiqContender:
    """Dramatiq's worker, with a thread for each slot.

    Args:
        slots: How many jobs are done at a time.
    """

    def __init__(self, *, slots: int) -> None:
        self._slots = slots
        self._dramatiq: DramatiqJobs | None = None
        self._ended: list[int] = []
        self._expected = 0
        self._all_ended = threading.Event()

    async def open(self, url: str) -> None:
        self._ended = []
        self._all_ended.clear()
        self._dramatiq = DramatiqJobs(url, _do_nothing, self._count)

    async def drain(self, jobs: int) -> list[int]:
        self._expected = jobs
        await asyncio.to_thread(self._drain, jobs)
        return self._ended

    async def left(self) -> int:
        return self._opened().left()

    async def close(self) -> None:
        await asyncio.to_thread(self._opened().close)

    def _drain(self, jobs: int) -> None:
        dramatiq = self._opened()
        dramatiq.start(self._slots)

        def produce(first: int) -> None:
            for number in range(first, jobs, _PRODUCERS):
                dramatiq.put(number)

        with ThreadPoolExecutor(_PRODUCERS) as producers:
            for future in [producers.submit(produce, first) for first in range(_PRODUCERS)]:
                future.result()
        self._all_ended.wait(_PATIENCE)

    def _count(self, number: int) -> None:
        self._ended.append(number)
        if len(self._ended) == self._expected:
            self._all_ended.set()

    def _opened(self) -> DramatiqJobs:
        assert self._dramatiq is not None
        return self._dramatiq


def _do_nothing(_number: int) -> None:
    """The job of every contender."""
