"""Three-stage runs held against the floor: `python -m benchmarks.three_stages` measures, and prints a table."""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.report import as_json, as_markdown
from benchmarks.three_stage_runs import Settings, measure

from stagewright_test_support.servers import PostgresServer

__all__ = ["main"]

_QUICK = Settings(runs=150, sqlite_runs=30, rounds=3)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures as the arguments say."""
    options = _parser().parse_args(arguments)
    settings = _QUICK if options.quick else Settings()
    given = {
        name: value
        for name in ("runs", "sqlite_runs", "rounds", "slots")
        if (value := getattr(options, name))
    }
    settings = replace(settings, **given)
    with (
        tempfile.TemporaryDirectory(prefix="stagewright-bench-") as folder,
        PostgresServer.start(durable=True) as server,
    ):
        report = asyncio.run(measure(server, Path(folder), settings, _tell))
    print(as_markdown(report))
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(as_json(report), indent=2) + "\n", encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.three_stages", description="Three-stage runs, create to COMPLETED."
    )
    parser.add_argument("--quick", action="store_true", help="fewer runs and rounds, in under two minutes")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write every figure to this file as well")
    parser.add_argument("--runs", type=int, metavar="N", help="runs a round on PostgreSQL")
    parser.add_argument("--sqlite-runs", type=int, metavar="N", help="runs a round on SQLite")
    parser.add_argument("--rounds", type=int, metavar="N", help="how often each is measured")
    parser.add_argument("--slots", type=int, metavar="N", help="jobs executed at a time")
    return parser


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
