"""The plot of the scaling benchmark, from its JSON or from its tables, which give the same one."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.cells import number
from benchmarks.plot import Panel, Point, draw

__all__ = ["plot_of_json", "plot_of_tables"]

_UNIT = "runs/s"
_HEADING = re.compile(r"#+ (.+)")
_CASE = re.compile(r"\| ([^|]+) \| ([\d,.]+) \(([\d,.]+)–([\d,.]+)\) \|")


def plot_of_json(told: Mapping[str, Any]) -> str:
    """A panel for each row; a case that failed isn't in it. Values are those of the tables, with three digits."""
    return draw(
        [panel for row in told["rows"] for panel in _panel(_title(row["title"]), _points(row["cases"]))]
    )


def plot_of_tables(told: str) -> str:
    """A panel for each Markdown table, called what its heading says."""
    panels: list[Panel] = []
    title, points = "", list[Point]()
    for line in [*told.splitlines(), "# end"]:
        if heading := _HEADING.fullmatch(line):
            panels += _panel(title, points)
            title, points = heading[1], []
        elif case := _CASE.match(line):
            points.append(Point(case[1], *map(_value, case.groups()[1:])))
    return draw(panels)


def _panel(title: str, points: Sequence[Point]) -> list[Panel]:
    return [Panel(title, _UNIT, points)] if points else []


def _points(cases: Sequence[Mapping[str, Any]]) -> list[Point]:
    return [
        Point(case["name"], *(_value(number(value)) for value in _measured(case)))
        for case in cases
        if case["turns"]
    ]


def _measured(case: Mapping[str, Any]) -> Iterator[float]:
    speeds = [turn["done"] / turn["seconds"] for turn in case["turns"].values()]
    yield from (case["runs_per_second"], min(speeds), max(speeds))


def _title(title: str) -> str:
    return title[0].upper() + title[1:]


def _value(told: str) -> float:
    return float(told.replace(",", ""))
