"""Stagewright, the floor and its peers in one interleaved run: `python -m benchmarks`."""

import argparse
import asyncio
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]  # it ships no types
from benchmarks.comparison import Allowance, Places, compare
from benchmarks.comparison_report import ComparisonReport, as_json, as_markdown
from benchmarks.entries import Row, Sizes, rows_of
from benchmarks.machine import RUN_DISTRIBUTIONS, database_facts, machine_facts
from benchmarks.peers.restate_server import restate_version

from stagewright_test_support.servers import PostgresServer, RedisServer
from stagewright_test_support.servers.redis_client import ask_redis
from stagewright_test_support.servers.redis_programs import redis_missing

__all__ = ["main"]

_QUICK = Sizes(
    runs=300,
    slow_runs=100,
    steps=200,
    fan_outs=40,
    backlog=2_000,
    slow_backlog=400,
    idle=10,
    imports=1,
    steady_rounds=1,
    seconds=0.8,
)
# So that it ends within five minutes.
_QUICK_SECONDS = 280
_TINY = Sizes(runs=4, slow_runs=3, steps=5, fan_outs=2, backlog=6, slow_backlog=4, idle=2, imports=1, slots=2)
_PEERS = (
    "dbos",
    "procrastinate",
    "pgqueuer",
    "celery",
    "dramatiq",
    "restate-sdk",
    "redis",
    "psycopg",
    "uvloop",
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures as the arguments say, prints Markdown, and writes it and JSON where it is told."""
    options = _parser().parse_args(arguments)
    sizes = _TINY if options.tiny else _QUICK if options.quick else Sizes()
    rounds = options.rounds or (2 if options.quick else 1 if options.tiny else 5)
    rows = _chosen(rows_of(sizes), options.rows, without_peers=options.without_peers)
    load, began = os.getloadavg()[0], time.monotonic()
    with tempfile.TemporaryDirectory(prefix="stagewright-bench-") as folder, ExitStack() as started:
        postgres, redis = _servers_for(rows, started)
        places = Places(postgres, redis, Path(folder))
        allowance = Allowance(sizes.slots, options.limit, sizes.seconds)
        within = options.within or (_QUICK_SECONDS if options.quick else math.inf)
        compared = compare(rows, places, allowance, rounds=rounds, tell=_tell, within=within)
        servers = _told_of(postgres, redis)
    facts = machine_facts(servers, [*RUN_DISTRIBUTIONS, *filter(_is_here, _PEERS)])
    facts["load"] = f"{load:.1f} when it began, {facts['load']} when it ended"
    left_out = sum(result.left_out for row in compared for result in row.results)
    facts["duration"] = f"{time.monotonic() - began:.0f} s; turns left out for want of time: {left_out}"
    report = ComparisonReport(compared, {"rounds": rounds} | asdict(sizes), facts)
    _write(report, options.json, options.markdown)


def _servers_for(rows: Sequence[Row], started: ExitStack) -> tuple[PostgresServer | None, RedisServer | None]:
    needed = {entry.place for row in rows for entry in row.entries}
    postgres = redis = None
    if "postgresql" in needed:
        postgres = started.enter_context(PostgresServer.start(durable=True))
    if "redis" in needed and redis_missing("valkey") is None:
        redis = started.enter_context(RedisServer.start("valkey"))
    return postgres, redis


def _told_of(postgres: PostgresServer | None, redis: RedisServer | None) -> dict[str, str]:
    number = "not started" if postgres is None else asyncio.run(_version_of(postgres.address))
    told = database_facts(postgres=number)
    if redis is not None:
        answer = ask_redis(redis.port, "INFO", "server")
        number = answer.get("valkey_version", "unknown") if isinstance(answer, dict) else "unknown"
        told["valkey"] = f"{number}, keeps nothing"
    if (restate := restate_version()) is not None:
        told["restate"] = f"{restate}, on its own log, with its defaults"
    return told


def _chosen(rows: Sequence[Row], keys: str | None, *, without_peers: bool) -> list[Row]:
    wanted = {row.key for row in rows} if keys is None else set(keys.split(","))
    unknown = wanted - {row.key for row in rows}
    if unknown:
        known = ", ".join(row.key for row in rows)
        raise SystemExit(f"--rows: there is no {', '.join(sorted(unknown))}; there are {known}")
    chosen = [row for row in rows if row.key in wanted]
    return [row.without_peers() for row in chosen] if without_peers else chosen


def _is_here(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True


async def _version_of(url: str) -> str:
    connection = await asyncpg.connect(url)
    try:
        return str(await connection.fetchval("SHOW server_version"))
    finally:
        await connection.close()


def _write(report: ComparisonReport, figures: Path | None, page: Path | None) -> None:
    told = as_markdown(report)
    print(told)
    for path, text in ((figures, json.dumps(as_json(report), indent=2)), (page, told)):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n", encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Stagewright, the floor and peers, interleaved."
    )
    parser.add_argument("--quick", action="store_true", help="smaller turns and fewer rounds")
    parser.add_argument("--tiny", action="store_true", help="whether it works at all; no measure of anything")
    parser.add_argument("--rows", metavar="KEYS", help="only these, with commas between them")
    parser.add_argument("--without-peers", action="store_true", help="Stagewright and the floor alone")
    parser.add_argument("--rounds", type=int, metavar="N", help="how often each has its turn")
    parser.add_argument(
        "--limit", type=float, default=300, metavar="S", help="seconds after which a turn is ended"
    )
    parser.add_argument(
        "--within", type=float, metavar="S", help="seconds after which only turns of the first round begin"
    )
    parser.add_argument("--json", type=Path, metavar="PATH", help="write every figure to this file as well")
    parser.add_argument("--markdown", type=Path, metavar="PATH", help="write the tables to this file as well")
    return parser


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
