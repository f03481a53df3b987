"""How soon an idle worker in another process begins, with the defaults: `python -m benchmarks.idle_latency`."""

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.figures import repeat
from benchmarks.idle_worker import CHAIN, STAMP

from stagewright import Kernel, open_kernel
from stagewright.commands import CreateRun
from stagewright.hosting import wait_for_run
from stagewright_test_support.servers import PostgresServer
from stagewright_test_support.servers.launch import launch

__all__ = ["COMPLETED", "FIRST_LINE", "main", "measure_latency", "measure_resident"]

FIRST_LINE = "CreateRun to the first line of the body"
COMPLETED = "three stages, CreateRun to COMPLETED"

_ROOT = Path(__file__).resolve().parents[1]
_PAUSE = 0.05
_WARM_UP = 5
_SETTLED = 2.0


async def measure_latency(
    url: str,
    folder: Path,
    runs: int,
    kinds: Sequence[str] = (FIRST_LINE, COMPLETED),
    *,
    seconds: float | None = None,
) -> dict[str, list[float]]:
    """Create runs one after the other, each when the worker is idle again.

    Args:
        url: The database.
        folder: For the worker's log.
        runs: How many of each kind.
        kinds: What is measured.
        seconds: When they are over, no more of a kind are created than there are, or ten.

    Returns:
        Milliseconds, by the kind.
    """
    async with open_kernel([STAMP, CHAIN], url, create_schema=True) as kernel:
        with _worker(url, folder):
            await _warm_up(kernel, kinds)
            return {kind: [await _MEASURES[kind](kernel) for _ in repeat(runs, seconds)] for kind in kinds}


async def measure_resident(url: str, folder: Path) -> float:
    """The resident memory, in MB, of a worker that has done a few runs and is idle again."""
    async with open_kernel([STAMP, CHAIN], url, create_schema=True) as kernel:
        with _worker(url, folder) as process:
            await _warm_up(kernel, list(_MEASURES))
            await asyncio.sleep(_SETTLED)
            told = await asyncio.to_thread(
                subprocess.check_output, ["ps", "-o", "rss=", "-p", str(process)], text=True
            )
    return int(told) * 1024 / 1e6


@contextmanager
def _worker(url: str, folder: Path) -> Iterator[int]:
    worker = launch(
        [sys.executable, "-m", "benchmarks.idle_worker", url],
        log=folder / "worker.log",
        account=None,
        farewell=signal.SIGKILL,
        environment=dict(os.environ) | {"PYTHONPATH": str(_ROOT)},
    )
    try:
        yield worker.pid
    finally:
        worker.terminate()
        worker.wait()


async def _warm_up(kernel: Kernel, kinds: Sequence[str]) -> None:
    for _ in range(_WARM_UP):
        for kind in kinds:
            await _MEASURES[kind](kernel)


async def _first_line(kernel: Kernel) -> float:
    began = time.monotonic_ns()
    created = await kernel.dispatch(CreateRun("stamp", None))
    run = await wait_for_run(kernel, created.run_id, timeout=60)
    await asyncio.sleep(_PAUSE)
    assert isinstance(run.output, int)
    return (run.output - began) / 1e6


async def _completed(kernel: Kernel) -> float:
    clock = kernel.ports.clock
    began = clock.now()
    created = await kernel.dispatch(CreateRun("chain", 1))
    run = await wait_for_run(kernel, created.run_id, timeout=60)
    await asyncio.sleep(_PAUSE)
    assert run.completed_at is not None
    return (run.completed_at - began).total_seconds() * 1e3


_MEASURES: Mapping[str, Callable[[Kernel], Awaitable[float]]] = {
    FIRST_LINE: _first_line,
    COMPLETED: _completed,
}


def _row(database: str, what: str, figures: Sequence[float]) -> str:
    cuts = statistics.quantiles(figures, n=100)
    return f"| {database} | {what} | {cuts[49]:.1f} | {cuts[98]:.1f} | {max(figures):.1f} |"


def main(arguments: Sequence[str]) -> None:
    """Measure on PostgreSQL and SQLite and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.idle_latency")
    parser.add_argument("--runs", type=int, default=200, help="of each kind and database")
    runs: int = parser.parse_args(arguments).runs
    rows = ["| database | what | p50 ms | p99 ms | most ms |", "|---|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as name, PostgresServer.start(durable=True) as server:
        folder = Path(name)
        urls = {"PostgreSQL": server.create_database("idle"), "SQLite": f"sqlite:///{folder / 'idle.db'}"}
        for database, url in urls.items():
            for what, figures in asyncio.run(measure_latency(url, folder, runs)).items():
                rows.append(_row(database, what, figures))
    sys.stdout.write("\n".join(rows) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
