"""How figures look in the tables of all benchmarks."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

__all__ = ["facts_lines", "number", "ratio_cell", "spread_cell", "table"]


def number(value: float) -> str:
    """With about three digits."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def spread_cell(values: Sequence[float]) -> str:
    """The median, and the least and the most of the rounds."""
    return f"{number(median(values))} ({number(min(values))}–{number(max(values))})" if values else ""


def ratio_cell(ratios: Sequence[float]) -> str:
    """The median of the rounds' ratios, and their range; empty without any."""
    return f"{median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})" if ratios else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table, line by line, with an empty one behind it."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]


def facts_lines(settings: Mapping[str, object], facts: Mapping[str, str]) -> list[str]:
    """How it was measured, and on what."""
    told = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in settings.items())
    return [told, "", *(f"- {name}: {value}" for name, value in facts.items())]
