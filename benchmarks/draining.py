"""The loops of one worker process, the same for every contender: create, claim, execute, until all runs have ended."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.bell import Bell
from benchmarks.contender import STAGES, Contender

__all__ = ["Measurement", "WrongRowsError", "drain"]

_PRODUCERS = 4
_RUNS_AT_ONCE = 10
_PATIENCE = 600.0
_EVENTS_OF_A_RUN = 3 + 2 * len(STAGES)


class WrongRowsError(Exception):
    """A contender left other rows than the runs should have; what it took is no measure of anything."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one drain took.

    Attributes:
        runs: How many runs there were.
        seconds: From the first creation until the last run was COMPLETED.
        cpu_seconds: Of this process, all its threads; a database server isn't in it, an embedded one is.
    """

    runs: int
    seconds: float
    cpu_seconds: float

    @property
    def runs_per_second(self) -> float:
        return self.runs / self.seconds

    @property
    def cpu_ms_per_stage(self) -> float:
        return 1_000 * self.cpu_seconds / (self.runs * len(STAGES))


async def drain(contender: Contender, *, runs: int, slots: int, batched: bool) -> Measurement:
    """Take so many runs from creation to COMPLETED, from empty tables.

    Args:
        contender: Who is measured.
        runs: How many runs.
        slots: How many jobs are executed at a time.
        batched: Whether one loop claims for all slots that are free, or each slot claims one job for itself.

    Raises:
        WrongRowsError: If the tables don't hold what they should.
        TimeoutError: If it takes more than ten minutes: a run was lost.
    """
    await contender.tables.clear()
    worker = _Worker(contender, runs, slots)
    began, cpu = time.perf_counter(), time.process_time()
    async with asyncio.timeout(_PATIENCE), asyncio.TaskGroup() as tasks:
        for number in range(_PRODUCERS):
            tasks.create_task(worker.produce(len(range(number, runs, _PRODUCERS))))
        tasks.create_task(worker.claim_runs())
        if batched:
            tasks.create_task(worker.claim_for_free_slots())
        else:
            for _ in range(slots):
                tasks.create_task(worker.fill_slot())
    taken = Measurement(runs, time.perf_counter() - began, time.process_time() - cpu)
    await _check(contender, runs)
    return taken


class _Worker:
    def __init__(self, contender: Contender, runs: int, slots: int) -> None:
        self._contender = contender
        self._runs = runs
        self._free = slots
        self._left = runs
        self._for_runs = Bell()
        self._for_jobs = Bell()

    async def produce(self, runs: int) -> None:
        for _ in range(runs):
            await self._contender.create()
            self._for_runs.ring(1)

    async def claim_runs(self) -> None:
        left = self._runs
        while left:
            claimed = await self._contender.claim_runs(_RUNS_AT_ONCE)
            left -= claimed
            self._for_jobs.ring(claimed)
            if not claimed:
                await self._for_runs.wait()

    async def fill_slot(self) -> None:
        while self._left:
            jobs = await self._contender.claim_jobs(1)
            for job in jobs:
                await self._execute(job)
            if not jobs and self._left:
                await self._for_jobs.wait()

    async def claim_for_free_slots(self) -> None:
        async with asyncio.TaskGroup() as executing:
            while self._left:
                jobs: Sequence[Any] = await self._contender.claim_jobs(self._free) if self._free else ()
                self._free -= len(jobs)
                for job in jobs:
                    executing.create_task(self._execute_in_slot(job))
                if self._left and not (jobs and self._free):
                    await self._for_jobs.wait()

    async def _execute_in_slot(self, job: Any) -> None:
        await self._execute(job)
        self._free += 1
        self._for_jobs.ring(1)

    async def _execute(self, job: Any) -> None:
        was_last = await self._contender.execute(job)
        self._left -= was_last
        if not self._left:
            self._for_jobs.ring(self._runs)


async def _check(contender: Contender, runs: int) -> None:
    expected = {"runs": runs, "stages": len(STAGES) * runs, "jobs": len(STAGES) * runs}
    expected["events"] = _EVENTS_OF_A_RUN * runs
    found = await contender.tables.count()
    if found != expected:
        raise WrongRowsError(f"{type(contender).__name__} left {found} instead of {expected}")
