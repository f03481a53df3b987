"""The comparison as Markdown and as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from benchmarks.cells import facts_lines, number, ratio_cell, spread_cell, table
from benchmarks.comparison import Result, RowResult, ratios_between
from benchmarks.targets import Judgement, judge

__all__ = ["ComparisonReport", "as_json", "as_markdown"]

_VERDICTS = {True: "met", False: "**not met**", None: ""}


@dataclass(frozen=True, slots=True)
class ComparisonReport:
    """Everything that was measured.

    Attributes:
        rows: What was compared.
        settings: How it was measured.
        facts: On what.
    """

    rows: Sequence[RowResult]
    settings: Mapping[str, object]
    facts: Mapping[str, str]

    @property
    def judgements(self) -> list[Judgement]:
        return judge(self.rows)


def as_markdown(report: ComparisonReport) -> str:
    """The targets, a table for each row, then how it was measured and on what."""
    lines = table(
        ("target", "measured", ""),
        ((one.target, one.measured, _VERDICTS[one.is_met]) for one in report.judgements),
    )
    for one in report.rows:
        lines += _row_lines(one)
    return "\n".join([*lines, *facts_lines(report.settings, report.facts)])


def _row_lines(compared: RowResult) -> list[str]:
    row = compared.row
    each = f"client CPU ms a {row.each[0]}" if row.each[1] > 1 else "client CPU ms each"
    head = ["", f"{row.unit} (least–most)", "Stagewright is … times as good", "p99", each, "load"]
    cells = [_cells(compared, result) for result in compared.results]
    told = [index for index in range(len(head)) if index < 2 or any(line[index] for line in cells)]
    title = [f"### {row.title[0].upper()}{row.title[1:]}", ""]
    return title + table([head[index] for index in told], ([line[index] for index in told] for line in cells))


def _cells(compared: RowResult, result: Result) -> list[str]:
    reference = compared.reference_of(result)
    if result.failure is not None and not result.turns:
        return [result.entry.name, f"failed: {_in_a_cell(result.failure)}", "", "", "", ""]
    is_less_better = compared.row.is_less_better
    ratios = [] if result is reference else ratios_between(reference, result, is_less_better=is_less_better)
    failed = "" if result.failure is None else f"; then failed: {_in_a_cell(result.failure)}"
    return [
        result.entry.name,
        spread_cell(result.values) + failed,
        ratio_cell(ratios),
        "" if result.p99 is None else number(result.p99),
        "" if result.cpu_ms is None else number(result.cpu_ms / compared.row.each[1]),
        f"{min(result.loads):.1f}–{max(result.loads):.1f}",
    ]


def _in_a_cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")[:200]


def as_json(report: ComparisonReport) -> dict[str, Any]:
    """The same, and every turn's figures."""
    return {
        "benchmark": "Stagewright, the floor and peers",
        "settings": dict(report.settings),
        "machine": dict(report.facts),
        "targets": [asdict(one) for one in report.judgements],
        "rows": [
            {
                "key": one.row.key,
                "title": one.row.title,
                "unit": one.row.unit,
                "entries": [_entry(one, result) for result in one.results],
            }
            for one in report.rows
        ],
    }


def _entry(compared: RowResult, result: Result) -> dict[str, Any]:
    reference = compared.reference_of(result)
    return {
        "name": result.entry.name,
        "size": result.entry.size,
        "median": median(result.values) if result.turns else None,
        "reference": reference.entry.name,
        "ratios_of_reference": ratios_between(reference, result, is_less_better=compared.row.is_less_better),
        "failure": result.failure,
        "loads": result.loads,
        "turns": {str(number): asdict(figures) for number, figures in result.turns.items()},
    }
