"""What Stagewright sets out to reach, each target a ratio or a figure of one interleaved run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.cells import number, ratio_cell
from benchmarks.comparison import Result, RowResult, ratios_between

__all__ = ["Judgement", "judge"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """A target, and what became of it.

    Attributes:
        target: What is wanted.
        measured: What was measured.
        is_met: None where nothing was measured.
    """

    target: str
    measured: str
    is_met: bool | None


@dataclass(frozen=True, slots=True)
class _Ratio:
    target: str
    row: str
    own: str
    others: tuple[str, ...]
    least: float

    def judge(self, rows: Mapping[str, RowResult]) -> Judgement:
        own = _of(rows, self.row, self.own)
        others = [one for one in (_of(rows, self.row, name) for name in self.others) if one is not None]
        if own is None or not others:
            return Judgement(self.target, "not measured", None)
        best = max(others, key=lambda one: median(one.values))
        ratios = ratios_between(own, best)
        if not ratios:
            return Judgement(self.target, "not measured", None)
        return Judgement(
            self.target, f"{ratio_cell(ratios)} of {best.entry.name}", median(ratios) >= self.least
        )


@dataclass(frozen=True, slots=True)
class _Figure:
    target: str
    row: str
    own: str
    unit: str
    figure: Callable[[RowResult, Result], float | None]
    is_met: Callable[[float], bool]

    def judge(self, rows: Mapping[str, RowResult]) -> Judgement:
        own = _of(rows, self.row, self.own)
        found = None if own is None else self.figure(rows[self.row], own)
        if found is None:
            return Judgement(self.target, "not measured", None)
        return Judgement(self.target, f"{number(found)} {self.unit}".rstrip(), self.is_met(found))


def judge(rows: Sequence[RowResult]) -> list[Judgement]:
    """Every target, in order."""
    by_key = {one.row.key: one for one in rows}
    return [target.judge(by_key) for target in _TARGETS]


def _of(rows: Mapping[str, RowResult], row: str, name: str) -> Result | None:
    result = rows[row].result_of(name) if row in rows else None
    return result if result is not None and result.turns else None


def _value(_row: RowResult, result: Result) -> float | None:
    return median(result.values)


def _p99(_row: RowResult, result: Result) -> float | None:
    return result.p99


def _cpu_each(row: RowResult, result: Result) -> float | None:
    return None if result.cpu_ms is None else result.cpu_ms / row.row.each[1]


def _replay_percent(_row: RowResult, result: Result) -> float | None:
    turns = result.turns.values()
    found = [100 * one.more["replay_ms"] / (1e3 * one.seconds) for one in turns if "replay_ms" in one.more]
    return median(found) if found else None


def _below(limit: float) -> Callable[[float], bool]:
    return lambda found: found < limit


def _at_least(limit: float) -> Callable[[float], bool]:
    return lambda found: found >= limit


_DBOS = ("DBOS, async", "DBOS, sync")
_DBOS_SQLITE = ("DBOS, async on SQLite", "DBOS, sync on SQLite")
_RESTATE = ("Restate",)
_LOOPS, _WORKER = "Stagewright, bare loops", "Stagewright, worker"

_TARGETS: tuple[_Ratio | _Figure, ...] = (
    _Ratio("three stages: ≥ 4 × DBOS's best mode on three steps", "three", _WORKER, _DBOS, 4),
    _Ratio(
        "three stages: ≥ 0.5 of the floor, the faster way",
        "three",
        _WORKER,
        ("floor", "floor in batches"),
        0.5,
    ),
    _Ratio("three stages, claims one by one: ≥ 0.5 of the floor", "three", _LOOPS, ("floor",), 0.5),
    _Ratio(
        "three stages, claims in batches: ≥ 0.5 of the floor",
        "three",
        f"{_LOOPS} in batches",
        ("floor in batches",),
        0.5,
    ),
    _Ratio("three stages, a stretch: as many as Restate", "three", _WORKER, _RESTATE, 1),
    _Figure("three stages: 180 runs/s", "three", _WORKER, "runs/s", _value, _at_least(180)),
    _Figure("client CPU: < 1.5 ms a stage", "three", _WORKER, "ms", _cpu_each, _below(1.5)),
    _Ratio("1,000 steps: ≥ 6 × DBOS", "steps", "Stagewright", _DBOS, 6),
    _Ratio("1,000 steps: ≥ 6 × DBOS, both on SQLite", "steps", "Stagewright on SQLite", _DBOS_SQLITE, 6),
    _Ratio("1,000 steps: ≥ 2 × Restate", "steps", "Stagewright", _RESTATE, 2),
    _Figure("replay: < 1 % of doing the steps", "steps", "Stagewright", "%", _replay_percent, _below(1)),
    _Ratio("backlog: ≥ 3 × Procrastinate's jobs", "backlog", _WORKER, ("Procrastinate",), 3),
    _Figure("idle to the first line: p50 < 10 ms", "first-line", "Stagewright", "ms", _value, _below(10)),
    _Figure("idle to the first line: p99 < 30 ms", "first-line", "Stagewright", "ms", _p99, _below(30)),
    _Figure("idle, three stages: p50 < 20 ms", "idle-three", "Stagewright", "ms", _value, _below(20)),
    _Figure("idle worker: RSS < 90 MB", "memory", "Stagewright", "MB", _value, _below(90)),
    _Figure("import stagewright: < 250 ms", "import", "Stagewright, package", "ms", _value, _below(250)),
    _Figure("import of all its names: < 250 ms", "import", "Stagewright", "ms", _value, _below(250)),
)
