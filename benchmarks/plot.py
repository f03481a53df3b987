"""Plots as SVG: of each case the median as a dot, and the range of its rounds as a line."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

__all__ = ["Panel", "Point", "draw"]

_WIDTH, _HEIGHT, _COLUMNS = 460, 270, 2
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 40, 52
_STEPS = (1, 2, 2.5, 5, 10)
_MOST_TICKS = 5
_STYLE = """
  text { font: 12px sans-serif; fill: #24292f }
  .title { font-weight: bold }
  .grid { stroke: #d8dee4 }
  .first { stroke: #57606a; stroke-dasharray: 5 4 }
  .medians { stroke: #0969da; fill: none }
  .range { stroke: #0969da; stroke-width: 2 }
  .median { fill: #0969da }
"""


@dataclass(frozen=True, slots=True)
class Point:
    """A case: what it is called, and the median, the least and the most of its rounds."""

    label: str
    median: float
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Panel:
    """A plot of its own, whose scale begins at zero.

    Attributes:
        title: What is done.
        unit: Of the values.
        points: From left to right; the first one is what the others are held against.
    """

    title: str
    unit: str
    points: Sequence[Point]


def draw(panels: Sequence[Panel]) -> str:
    """All panels in one picture, two in a line; a dashed line goes on from each first median."""
    columns = min(_COLUMNS, len(panels))
    width, height = columns * _WIDTH, -(-len(panels) // _COLUMNS) * _HEIGHT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<style>{_STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for number, panel in enumerate(panels):
        x, y = number % _COLUMNS * _WIDTH, number // _COLUMNS * _HEIGHT
        lines += [f'<g transform="translate({x} {y})">', *_panel(panel), "</g>"]
    return "\n".join([*lines, "</svg>", ""])


def _panel(panel: Panel) -> Iterator[str]:
    yield _text(_LEFT, 20, f"{panel.title}, {panel.unit}", "start", "title")
    ticks = _ticks(max(point.most for point in panel.points))
    for tick in ticks:
        y = _height_of(tick, ticks[-1])
        yield _line("grid", _LEFT, y, _WIDTH - _RIGHT, y)
        yield _text(_LEFT - 8, y + 4, f"{tick:,g}", "end")
    places = list(_places(len(panel.points)))
    first = _height_of(panel.points[0].median, ticks[-1])
    yield _line("first", places[0], first, _WIDTH - _RIGHT, first)
    medians = [_height_of(point.median, ticks[-1]) for point in panel.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(places, medians, strict=True))
    yield f'<polyline class="medians" points="{path}"/>'
    for x, y, point in zip(places, medians, panel.points, strict=True):
        yield f"<g><title>{escape(_told(point, panel.unit))}</title>"
        yield _line("range", x, _height_of(point.least, ticks[-1]), x, _height_of(point.most, ticks[-1]))
        yield f'<circle class="median" cx="{x:.1f}" cy="{y:.1f}" r="4"/></g>'
        # The number of the label, and below it what there are so many of.
        for line, part in enumerate(point.label.split(" ", maxsplit=1)):
            yield _text(x, _HEIGHT - _BOTTOM + 18 + 15 * line, part, "middle")


def _told(point: Point, unit: str) -> str:
    return f"{point.label}: {point.median:,g} ({point.least:,g}–{point.most:,g}) {unit}"


def _ticks(most: float) -> list[float]:
    """From zero to what is no less than the most, in round steps."""
    step, size = 0.0, 1e-3
    while not step:
        step = next((size * one for one in _STEPS if size * one * _MOST_TICKS >= most), 0.0)
        size *= 10
    ticks = [0.0]
    while len(ticks) == 1 or ticks[-1] < most:
        ticks.append(len(ticks) * step)
    return ticks


def _places(count: int) -> Iterator[float]:
    room = (_WIDTH - _LEFT - _RIGHT) / count
    return (_LEFT + room * (number + 0.5) for number in range(count))


def _height_of(value: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / top


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, text: str, anchor: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
