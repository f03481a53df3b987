"""Scaling as Markdown and as JSON."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from benchmarks.cells import facts_lines, ratio_cell, spread_cell, table
from benchmarks.comparison import Result, RowResult, ratios_between

__all__ = ["ScalingReport", "as_json", "as_markdown"]

_LOCKS = "waits for locks"


@dataclass(frozen=True, slots=True)
class ScalingReport:
    """Everything that was measured.

    Attributes:
        rows: Cases; the first one of each is what the others are held against.
        settings: How it was measured.
        facts: On what.
    """

    rows: Sequence[RowResult]
    settings: Mapping[str, object]
    facts: Mapping[str, str]


def as_markdown(report: ScalingReport) -> str:
    """A table for each row, then how it was measured and on what."""
    lines: list[str] = []
    for measured in report.rows:
        title = measured.row.title
        first = measured.results[0].entry.name
        has_samples = any(
            "samples" in one.more for result in measured.results for one in result.turns.values()
        )
        head = ["", f"{measured.row.unit} (least–most)", f"of {first}", _LOCKS, "load"]
        lines += [f"### {title[0].upper()}{title[1:]}", ""]
        told = [index for index, name in enumerate(head) if has_samples or name != _LOCKS]
        cells = [_cells(measured.results[0], result) for result in measured.results]
        lines += table([head[one] for one in told], ([line[one] for one in told] for line in cells))
    return "\n".join([*lines, *facts_lines(report.settings, report.facts)])


def _cells(first: Result, result: Result) -> list[str]:
    if not result.turns:
        return [
            result.entry.name,
            f"failed: {' '.join((result.failure or '').split())[:200]}",
            "",
            "",
            "",
        ]
    ratios = ratios_between(result, first)
    loads = f"{min(result.loads):.1f}–{max(result.loads):.1f}"
    told = ratio_cell(ratios) if result is not first else ""
    return [result.entry.name, spread_cell(result.values), told, _locked(result), loads]


def _locked(result: Result) -> str:
    seen: Counter[str] = Counter()
    for one in result.turns.values():
        seen.update({name: int(count) for name, count in one.more.items()})
    samples, locked = seen.pop("samples", 0), seen.pop("locked", 0)
    kinds = ", ".join(f"{name} {count}" for name, count in seen.most_common())
    return f"{locked} of {samples} samples{f': {kinds}' if kinds else ''}" if samples else ""


def as_json(report: ScalingReport) -> dict[str, Any]:
    """The same, and every turn's figures."""
    return {
        "benchmark": "scaling of Stagewright on PostgreSQL",
        "settings": dict(report.settings),
        "machine": dict(report.facts),
        "rows": [
            {
                "key": measured.row.key,
                "title": measured.row.title,
                "cases": [
                    {
                        "name": result.entry.name,
                        "runs_per_second": median(result.values) if result.turns else None,
                        "ratios_to_first": ratios_between(result, measured.results[0]),
                        "failure": result.failure,
                        "loads": result.loads,
                        "turns": {str(number): asdict(one) for number, one in result.turns.items()},
                    }
                    for result in measured.results
                ],
            }
            for measured in report.rows
        ],
    }
