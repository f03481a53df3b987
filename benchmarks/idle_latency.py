"""How soon an idle worker in another process begins, with the defaults: `python -m benchmarks.idle_latency`."""

import argparse
import asyncio
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.idle_worker import CHAIN, STAMP

from stagewright import Kernel, open_kernel
from stagewright.commands import CreateRun
from stagewright.hosting import wait_for_run
from stagewright_test_support.servers import PostgresServer
from stagewright_test_support.servers.launch import launch

__all__ = ["main", "measure_latency"]

_ROOT = Path(__file__).resolve().parents[1]
_PAUSE = 0.05
_WARM_UP = 5


async def measure_latency(url: str, folder: Path, runs: int) -> dict[str, list[float]]:
    """Create runs one after the other, each when the worker is idle again.

    Args:
        url: The database.
        folder: For the worker's log.
        runs: How many of each kind.

    Returns:
        Milliseconds: from `CreateRun` to the first line of the body; of three stages, from `CreateRun` to COMPLETED.
    """
    async with open_kernel([STAMP, CHAIN], url, create_schema=True) as kernel:
        worker = launch(
            [sys.executable, "-m", "benchmarks.idle_worker", url],
            log=folder / "worker.log",
            account=None,
            farewell=signal.SIGKILL,
            environment=dict(os.environ) | {"PYTHONPATH": str(_ROOT)},
        )
        try:
            for _ in range(_WARM_UP):
                await _first_line(kernel)
                await _completed(kernel)
            return {
                "CreateRun to the first line of the body": [await _first_line(kernel) for _ in range(runs)],
                "three stages, CreateRun to COMPLETED": [await _completed(kernel) for _ in range(runs)],
            }
        finally:
            worker.terminate()
            worker.wait()


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
