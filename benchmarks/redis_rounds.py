"""Jobs by second: every contender once in each round, so that a slow moment of the machine hits all of them alike."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.redis_contenders import JobContender
from benchmarks.redis_queues import WrongJobsError
from redis.asyncio import Redis

__all__ = ["JobEntry", "JobMeasurement", "JobResult", "run_job_rounds"]

_PATIENCE = 600.0


@dataclass(frozen=True, slots=True)
class JobEntry:
    """A contender in one way of taking jobs.

    Attributes:
        name: What the report calls it.
        takes: How it takes jobs, in a few words.
        contender: Who is measured.
    """

    name: str
    takes: str
    contender: JobContender

    @property
    def title(self) -> str:
        return f"{self.name}, {self.takes}"


@dataclass(frozen=True, slots=True)
class JobMeasurement:
    """What one drain took.

    Attributes:
        jobs: How many jobs there were.
        seconds: From the first enqueueing until the last job was acknowledged.
        cpu_seconds: Of this process, all its threads.
        server_cpu_seconds: Of the server.
    """

    jobs: int
    seconds: float
    cpu_seconds: float
    server_cpu_seconds: float

    @property
    def jobs_per_second(self) -> float:
        return self.jobs / self.seconds


@dataclass(frozen=True, slots=True)
class JobResult:
    """What the rounds gave for one entry.

    Attributes:
        entry: The entry.
        rounds: Its measurements, in order.
    """

    entry: JobEntry
    rounds: tuple[JobMeasurement, ...]

    @property
    def jobs_per_second(self) -> float:
        return median(one.jobs_per_second for one in self.rounds)

    @property
    def spread(self) -> tuple[float, float]:
        """The slowest and the fastest round, in jobs per second."""
        speeds = [one.jobs_per_second for one in self.rounds]
        return min(speeds), max(speeds)

    @property
    def cpu_ms(self) -> float:
        """Milliseconds a job of this process."""
        return 1_000 * median(one.cpu_seconds / one.jobs for one in self.rounds)

    @property
    def server_cpu_ms(self) -> float:
        """Milliseconds a job of the server."""
        return 1_000 * median(one.server_cpu_seconds / one.jobs for one in self.rounds)

    def ratios_to(self, other: "JobResult") -> list[float]:
        """Its jobs per second over those of another one, round by round."""
        pairs = zip(self.rounds, other.rounds, strict=True)
        return [own.jobs_per_second / theirs.jobs_per_second for own, theirs in pairs]


async def run_job_rounds(
    entries: Sequence[JobEntry], url: str, *, jobs: int, rounds: int, tell: Callable[[str], None]
) -> list[JobResult]:
    """Measure all entries in turn, as often as there are rounds, after a short round that warms up what is kept.

    Raises:
        WrongJobsError: If a contender did other work than it should have.
        TimeoutError: If one takes more than ten minutes: a job was lost.
    """
    for entry in entries:
        await _measure(entry, url, max(1, jobs // 10))
    measured: dict[str, list[JobMeasurement]] = {entry.title: [] for entry in entries}
    for number in range(1, rounds + 1):
        for entry in entries:
            taken = await _measure(entry, url, jobs)
            measured[entry.title].append(taken)
            tell(f"round {number}: {entry.title}: {taken.jobs_per_second:.0f} jobs/s")
    return [JobResult(entry, tuple(measured[entry.title])) for entry in entries]


async def _measure(entry: JobEntry, url: str, jobs: int) -> JobMeasurement:
    contender = entry.contender
    async with Redis.from_url(url) as client, asyncio.timeout(_PATIENCE):
        await client.flushdb()
        await contender.open(url)
        try:
            server = await _cpu_of(client)
            began, cpu = time.perf_counter(), time.process_time()
            ended = await contender.drain(jobs)
            seconds, own = time.perf_counter() - began, time.process_time() - cpu
            taken = JobMeasurement(jobs, seconds, own, await _cpu_of(client) - server)
            left = await contender.left()
        finally:
            await contender.close()
    if sorted(ended) != list(range(jobs)) or left:
        raise WrongJobsError(f"{entry.title} ended {len(ended)} of {jobs} jobs, and {left} are left")
    return taken


async def _cpu_of(client: "Redis") -> float:
    told = await client.info("cpu")
    return float(told["used_cpu_user"]) + float(told["used_cpu_sys"])
