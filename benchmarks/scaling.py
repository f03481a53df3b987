"""Throughput by more processes and over full tables: `python -m benchmarks.scaling`."""

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]  # it ships no types
from benchmarks.comparison import Result, RowResult
from benchmarks.entries import Entry, Row
from benchmarks.figures import Request
from benchmarks.full_tables import Filling, fill_tables
from benchmarks.machine import RUN_DISTRIBUTIONS, database_facts, machine_facts
from benchmarks.scaling_plot import plot_of_json
from benchmarks.scaling_report import ScalingReport, as_json, as_markdown
from benchmarks.turn_process import TurnFailedError, take_turn

from stagewright_test_support.servers import PostgresServer

__all__ = ["Case", "ScalingSizes", "cases_of", "main", "measure_scaling"]

_TURNS = "benchmarks.scaling_turns"


@dataclass(frozen=True, slots=True)
class Case:
    """An entry, and the tables that it works on.

    Attributes:
        entry: What takes the turns.
        filling: What the tables are filled with.
        runs: Of how many runs.
        is_kept: Whether all rounds have the same database, or each one that is filled anew.
    """

    entry: Entry
    filling: Filling
    runs: int
    is_kept: bool = False


@dataclass(frozen=True, slots=True)
class ScalingSizes:
    """How much is measured.

    Attributes:
        workers: How many processes, at most.
        seconds: How long they are watched.
        waiting: Of how many runs that wait.
        finished: The numbers of runs that have ended.
        created: How many runs are created over those.
        pending: The numbers of runs whose jobs wait, the first one to compare with.
        suspended: The numbers of stages that are due at once.
        slots: How many bodies a process runs at a time.
        rounds: How often each is measured.
    """

    workers: int = 4
    seconds: float = 5
    waiting: int = 20_000
    finished: Sequence[int] = field(default=(0, 10_000, 1_000_000))
    created: int = 1_000
    pending: Sequence[int] = field(default=(2_000, 100_000))
    suspended: Sequence[int] = field(default=(1_000, 10_000))
    slots: int = 16
    rounds: int = 3


_QUICK = ScalingSizes(
    seconds=3, waiting=10_000, finished=(0, 10_000, 100_000), created=500, pending=(1_000, 20_000), rounds=2
)


def cases_of(sizes: ScalingSizes) -> list[tuple[Row, list[Case]]]:
    """What is measured; the first case of each row is what the others are held against."""
    workers = [
        Case(
            _entry(
                f"{number} {'process' if number == 1 else 'processes'}",
                "processes",
                sizes.waiting,
                workers=number,
                seconds=sizes.seconds,
            ),
            "pending",
            sizes.waiting,
        )
        for number in range(1, sizes.workers + 1)
    ]
    finished = [
        Case(
            _entry(f"{count:,} finished runs" if count else "empty tables", "new_runs", sizes.created),
            "finished",
            count,
            is_kept=True,
        )
        for count in sizes.finished
    ]
    taken = sizes.pending[0] // 2
    pending = [
        Case(_entry(f"{count:,} pending jobs", "take_waiting", taken), "pending", count)
        for count in sizes.pending
    ]
    # The same number of each, so that what differs is how many more are due.
    resumed = sizes.suspended[0] * 9 // 10
    suspended = [
        Case(_entry(f"{count:,} stages due", "take_waiting", resumed), "suspended", count)
        for count in sizes.suspended
    ]
    return [
        (_row("processes", "worker processes, from a backlog", workers), workers),
        (_row("finished", "new runs over runs that have ended", finished), finished),
        (_row("pending", "one worker, from a backlog", pending), pending),
        (_row("suspended", "one worker, suspended stages that are due at once", suspended), suspended),
    ]


def _entry(name: str, turn: str, size: int, **options: float) -> Entry:
    return Entry(name, f"{_TURNS}:{turn}", "postgresql", size, options)


def _row(key: str, title: str, cases: Sequence[Case]) -> Row:
    return Row(key, title, "runs/s", [case.entry for case in cases])


def measure_scaling(
    server: PostgresServer,
    folder: Path,
    sizes: ScalingSizes,
    *,
    limit: float,
    tell: Callable[[str], None],
    keys: Sequence[str] | None = None,
) -> list[RowResult]:
    """Give every case its turn in each round, row by row.

    Args:
        server: A durable PostgreSQL; databases are made in it.
        folder: For logs.
        sizes: How much.
        limit: How many seconds a turn may take.
        tell: Is told of each turn.
        keys: Which rows; all, if it isn't told.
    """
    measured = []
    for row, cases in cases_of(sizes):
        if keys is not None and row.key not in keys:
            continue
        results = [Result(case.entry) for case in cases]
        kept: dict[int, str] = {}
        for number in range(1, sizes.rounds + 1):
            for place, (case, result) in enumerate(zip(cases, results, strict=True)):
                with _filled(server, case, kept, place) as url:
                    asked = Request(url, str(folder), case.entry.size, sizes.slots, case.entry.options)
                    _take(result, number, asked, folder / "turn.log", limit)
                told = result.failure or f"{result.values[-1]:,.1f} {row.unit}"
                tell(f"round {number}: {row.key}: {case.entry.name}: {told}")
        for url in kept.values():
            server.drop_database(url.rpartition("/")[2])
        measured.append(RowResult(row, results))
    return measured


def _take(result: Result, number: int, request: Request, log: Path, limit: float) -> None:
    result.loads.append(os.getloadavg()[0])
    try:
        result.turns[number] = take_turn(result.entry.call, request, log=log, limit=limit)
    except TurnFailedError as failed:
        result.failure = str(failed)


@contextmanager
def _filled(server: PostgresServer, case: Case, kept: dict[int, str], place: int) -> Iterator[str]:
    if place in kept:
        yield kept[place]
        return
    name = f"{case.filling}_{place}"
    url = server.create_database(name)
    asyncio.run(fill_tables(url, case.filling, case.runs))
    if case.is_kept:
        kept[place] = url
    yield url
    if not case.is_kept:
        server.drop_database(name)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures as the arguments say, prints Markdown, and writes it and JSON where it is told."""
    options = _parser().parse_args(arguments)
    sizes = _QUICK if options.quick else ScalingSizes()
    sizes = replace(sizes, rounds=options.rounds or sizes.rounds)
    keys = None if options.rows is None else options.rows.split(",")
    load = os.getloadavg()[0]
    with (
        tempfile.TemporaryDirectory(prefix="stagewright-bench-") as folder,
        PostgresServer.start(durable=True) as server,
    ):
        rows = measure_scaling(server, Path(folder), sizes, limit=options.limit, tell=_tell, keys=keys)
        version = asyncio.run(_version_of(server.address))
    facts = machine_facts(database_facts(postgres=version), RUN_DISTRIBUTIONS)
    facts["load"] = f"{load:.1f} when it began, {facts['load']} when it ended"
    report = ScalingReport(rows, asdict(sizes), facts)
    told, figures = as_markdown(report), as_json(report)
    print(told)
    for path, text in (
        (options.json, json.dumps(figures, indent=2)),
        (options.markdown, told),
        (options.svg, plot_of_json(figures)),
    ):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n", encoding="utf-8")


async def _version_of(url: str) -> str:
    connection = await asyncpg.connect(url)
    try:
        return str(await connection.fetchval("SHOW server_version"))
    finally:
        await connection.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scaling", description="By more processes, and over full tables."
    )
    parser.add_argument("--quick", action="store_true", help="smaller tables and fewer rounds")
    parser.add_argument("--rows", metavar="KEYS", help="of processes, finished, pending and suspended")
    parser.add_argument("--rounds", type=int, metavar="N", help="how often each is measured")
    parser.add_argument("--limit", type=float, default=300, metavar="S", help="seconds that a turn may take")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write every figure to this file as well")
    parser.add_argument("--markdown", type=Path, metavar="PATH", help="write the tables to this file as well")
    parser.add_argument("--svg", type=Path, metavar="PATH", help="write the plot to this file as well")
    return parser


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
