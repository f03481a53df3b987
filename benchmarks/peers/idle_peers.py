"""Idle workers of peers, each a process of its own: `python -m benchmarks.peers.idle_peers PEER URL`.

The body of a job writes the time of its first line, in nanoseconds of the system's monotonic clock.
"""

import asyncio
import importlib
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.peers.pgqueuer_turns import open_queue
from benchmarks.peers.procrastinate_turns import make_app

__all__ = ["DBOS", "PEERS", "PGQUEUER", "PROCRASTINATE", "dbos_client", "main"]

PROCRASTINATE, PGQUEUER, DBOS = "procrastinate", "pgqueuer", "dbos"
_SLOTS = 8
_POLLING = 0.05  # of DBOS's queue, whose default is a second


@dataclass(frozen=True, slots=True)
class _Peer:
    prepare: Callable[[str], Awaitable[None]]
    work: Callable[[str], None]


def _stamp() -> None:
    sys.stdout.write(f"{time.monotonic_ns()}\n")
    sys.stdout.flush()


async def _prepare_procrastinate(url: str) -> None:
    app = make_app(url, 1)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


def _work_by_procrastinate(url: str) -> None:
    async def stamp() -> None:
        _stamp()

    async def work() -> None:
        app = make_app(url, _SLOTS)
        app.task(name="stamp")(stamp)
        async with app.open_async():
            await app.run_worker_async(concurrency=_SLOTS)

    asyncio.run(work())


async def _prepare_pgqueuer(url: str) -> None:
    queue, connection = await open_queue(url)
    await queue.qm.queries.install()
    await connection.close()


def _work_by_pgqueuer(url: str) -> None:
    async def stamp(_job: Any) -> None:
        _stamp()

    async def work() -> None:
        queue, _ = await open_queue(url)
        queue.entrypoint("stamp")(stamp)
        await queue.run()

    uvloop: Any = importlib.import_module("uvloop")
    uvloop.run(work())


async def _prepare_dbos(url: str) -> None:
    def make_tables() -> None:
        dbos: Any = importlib.import_module("dbos")
        dbos.DBOS(config=_dbos_config(url))
        dbos.DBOS.launch()
        dbos.DBOS.destroy()

    await asyncio.to_thread(make_tables)


def _work_by_dbos(url: str) -> None:
    dbos: Any = importlib.import_module("dbos")
    dbos.DBOS(config=_dbos_config(url))
    dbos.DBOS.workflow(name="stamp")(_stamp)
    dbos.DBOS.launch()
    dbos.DBOS.register_queue("bench", polling_interval_sec=_POLLING)
    threading.Event().wait()


def _dbos_config(url: str) -> Mapping[str, Any]:
    # One version for the process that enqueues and the one that works.
    return {
        "name": "bench",
        "system_database_url": url,
        "log_level": "CRITICAL",
        "application_version": "bench",
    }


def dbos_client(url: str) -> Any:
    """What enqueues from outside of an application."""
    dbos: Any = importlib.import_module("dbos")
    return dbos.DBOSClient(system_database_url=url)


PEERS: Mapping[str, _Peer] = {
    PROCRASTINATE: _Peer(_prepare_procrastinate, _work_by_procrastinate),
    PGQUEUER: _Peer(_prepare_pgqueuer, _work_by_pgqueuer),
    DBOS: _Peer(_prepare_dbos, _work_by_dbos),
}


def main(arguments: Sequence[str]) -> None:
    """Do jobs until the process is ended."""
    peer, url = arguments
    PEERS[peer].work(url)


if __name__ == "__main__":
    main(sys.argv[1:])
