"""Jobs on Redis, beside Dramatiq and a bare stream: `python -m benchmarks.redis_jobs`."""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.dramatiq_jobs import is_dramatiq_here
from benchmarks.machine import machine_facts
from benchmarks.redis_contenders import DramatiqContender, SlotContender
from benchmarks.redis_hand_over_worker import DRAMATIQ, QUEUES
from benchmarks.redis_hand_overs import measure_hand_overs
from benchmarks.redis_queues import JobQueue, StagewrightJobs, StreamJobs
from benchmarks.redis_report import RedisReport, as_json, as_markdown
from benchmarks.redis_rounds import JobEntry, run_job_rounds
from redis.asyncio import Redis

from stagewright_test_support.servers import RedisServer

__all__ = ["RedisSettings", "main", "measure_redis_jobs"]

_DISTRIBUTIONS = ("stagewright-core", "stagewright-transport-redis", "redis")
_STREAM = "redis-py's stream"
_DRAMATIQ_THREADS = 8  # of its own command


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """How much is measured.

    Attributes:
        jobs: A round of draining.
        hand_overs: A round of idle hand-overs.
        rounds: How often each contender has its turn.
        slots: How many jobs are done at a time.
    """

    jobs: int = 5_000
    hand_overs: int = 50
    rounds: int = 5
    slots: int = 16


async def measure_redis_jobs(
    url: str, folder: Path, settings: RedisSettings, tell: Callable[[str], None]
) -> RedisReport:
    """Measure everything that is installed.

    Args:
        url: A database, which is emptied again and again.
        folder: For logs.
        settings: How much.
        tell: Hears how far it is.
    """
    entries, queues, distributions = _entries(settings.slots), [*QUEUES], [*_DISTRIBUTIONS]
    if is_dramatiq_here():
        entries += _dramatiqs(settings.slots)
        queues.append(DRAMATIQ)
        distributions.append("dramatiq")
    else:
        tell("dramatiq is not installed; it is left out")
    drains = await run_job_rounds(entries, url, jobs=settings.jobs, rounds=settings.rounds, tell=tell)
    hand_overs = await measure_hand_overs(
        queues, url, folder, jobs=settings.hand_overs, rounds=settings.rounds, tell=tell
    )
    return RedisReport(
        drains=drains,
        rival=_dramatiq(settings.slots),
        floor=_STREAM,
        hand_overs=hand_overs,
        settings=asdict(settings),
        facts=machine_facts(await _server_facts(url), distributions),
    )


def _entries(slots: int) -> list[JobEntry]:
    queues: dict[str, Callable[[str], Awaitable[JobQueue]]] = {
        _STREAM: StreamJobs.open,
        "Stagewright": StagewrightJobs.open,
    }
    return [
        JobEntry(name, takes, SlotContender(open_queue, slots=slots, batched=batched))
        for takes, batched in (("one by one", False), ("for all free slots", True))
        for name, open_queue in queues.items()
    ]


def _dramatiqs(slots: int) -> list[JobEntry]:
    numbers = dict.fromkeys((slots, _DRAMATIQ_THREADS))
    return [JobEntry(_dramatiq(number), "ahead", DramatiqContender(slots=number)) for number in numbers]


def _dramatiq(threads: int) -> str:
    return f"Dramatiq, {threads} threads"


async def _server_facts(url: str) -> dict[str, str]:
    async with Redis.from_url(url) as client:
        told = await client.info("server")
        kept = await client.config_get("appendonly")
    name = str(told.get("server_name", "redis"))
    return {"server": f"{name} {told[f'{name}_version']}, appendonly {kept['appendonly']}"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures as the arguments say, and prints tables."""
    options = _parser().parse_args(arguments)
    settings = RedisSettings(options.jobs, options.hand_overs, options.rounds, options.slots)
    with (
        tempfile.TemporaryDirectory(prefix="stagewright-bench-") as folder,
        RedisServer.start(options.server) as server,
    ):
        report = asyncio.run(measure_redis_jobs(server.url(1), Path(folder), settings, _tell))
    print(as_markdown(report))
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(as_json(report), indent=2) + "\n", encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    usual = RedisSettings()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.redis_jobs", description="Jobs on Redis: enqueue, dequeue, complete."
    )
    parser.add_argument("--json", type=Path, metavar="PATH", help="write every figure to this file as well")
    parser.add_argument("--jobs", type=int, default=usual.jobs, metavar="N", help="jobs a round")
    parser.add_argument(
        "--hand-overs", type=int, default=usual.hand_overs, metavar="N", help="idle hand-overs a round"
    )
    parser.add_argument(
        "--rounds", type=int, default=usual.rounds, metavar="N", help="how often each is measured"
    )
    parser.add_argument("--slots", type=int, default=usual.slots, metavar="N", help="jobs done at a time")
    parser.add_argument("--server", default="valkey", help="valkey, redis, oldest-redis or system-redis")
    return parser


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
