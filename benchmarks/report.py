"""The figures as a Markdown table and as JSON."""

from typing import Any

from benchmarks.cells import facts_lines, ratio_cell
from benchmarks.rounds import Result
from benchmarks.sent_statements import SentStatements
from benchmarks.three_stage_runs import Report

__all__ = ["as_json", "as_markdown"]

_HEAD = (
    "| | claims | runs/s (slowest–fastest) | of the floor | client CPU ms a stage | statements a run | commits a run |",
    "|---|---|---|---|---|---|---|",
)


def as_markdown(report: Report) -> str:
    """A table with a line for each entry, then how it was measured and on what."""
    lines = [*_HEAD, *(_line(result, report.costs[result.entry.name]) for result in report.results), ""]
    lines += facts_lines(report.settings, report.facts)
    return "\n".join(lines)


def as_json(report: Report) -> dict[str, Any]:
    """The same, and every round's figures."""
    return {
        "benchmark": "three-stage runs, create to COMPLETED",
        "settings": dict(report.settings),
        "machine": dict(report.facts),
        "results": [_entry(result, report.costs[result.entry.name]) for result in report.results],
    }


def _line(result: Result, cost: SentStatements) -> str:
    slowest, fastest = result.spread
    cells = (
        result.entry.name,
        "in batches" if result.entry.batched else "one by one",
        f"{result.runs_per_second:.1f} ({slowest:.1f}–{fastest:.1f})",
        ratio_cell(result.ratios),
        f"{result.cpu_ms_per_stage:.2f}",
        str(cost.statements),
        str(cost.commits),
    )
    return f"| {' | '.join(cells)} |"


def _entry(result: Result, cost: SentStatements) -> dict[str, Any]:
    return {
        "name": result.entry.name,
        "batched": result.entry.batched,
        "floor": result.entry.floor,
        "runs_per_second": result.runs_per_second,
        "ratio_to_floor": result.ratio,
        "client_cpu_ms_per_stage": result.cpu_ms_per_stage,
        "statements_per_run": cost.statements,
        "commits_per_run": cost.commits,
        "rounds": [
            {"runs": one.runs, "seconds": one.seconds, "cpu_seconds": one.cpu_seconds}
            for one in result.rounds
        ],
        "ratios": list(result.ratios),
    }
