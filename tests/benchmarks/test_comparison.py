"""Contenders in processes of their own: those that work are compared, those that don't are named."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.__main__ import main
from benchmarks.comparison import Allowance, Places, Result, RowResult, compare
from benchmarks.comparison_report import ComparisonReport, as_json, as_markdown
from benchmarks.entries import Entry, Row, Sizes, rows_of
from benchmarks.figures import Figures
from benchmarks.targets import judge

MADE_UP = """
import time
from benchmarks.figures import Figures

def quick(request):
    print("a line of its own")
    return Figures(request.size, request.size / request.options["a_second"])

def hurried(request):
    return Figures(1, request.seconds or 100)

def broken(request):
    raise RuntimeError("no table | of mine")

def endless(request):
    time.sleep(600)
"""

Compare = Callable[..., RowResult]


@pytest.fixture
def compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compare:
    (tmp_path / "made_up_turns.py").write_text(MADE_UP, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    places = Places(None, None, tmp_path)

    def measure(
        *entries: Entry,
        rounds: int = 1,
        limit: float = 60,
        seconds: float | None = None,
        within: float = 600,
    ) -> RowResult:
        row = Row("made-up", "made-up work", "runs/s", entries)
        told: list[str] = []
        allowance = Allowance(2, limit, seconds)
        (result,) = compare([row], places, allowance, rounds=rounds, tell=told.append, within=within)
        assert len(told) >= len(entries)
        return result

    return measure


def quick(name: str, a_second: int) -> Entry:
    return Entry(name, "made_up_turns:quick", "none", 10, {"a_second": a_second})


def test_who_fails_is_named_with_its_error_and_the_others_are_compared(compared: Compare) -> None:
    entries = (
        quick("Stagewright", 100),
        Entry("broken", "made_up_turns:broken", "none", 10),
        Entry("not there", "made_up_peer_that_is_not_there:turn", "none", 10),
        Entry("without a server", "made_up_turns:quick", "redis", 10),
        Entry("without another", "made_up_turns:quick", "postgresql", 10),
        quick("slower", 50),
    )
    result = compared(*entries, rounds=2)
    assert [len(one.turns) for one in result.results] == [2, 0, 0, 0, 0, 2]
    report = ComparisonReport([result], {"rounds": 2}, {"system": "here"})
    page = as_markdown(report)
    assert "| broken | failed: RuntimeError: no table \\| of mine |" in page
    assert "failed: ModuleNotFoundError: No module named 'made_up_peer_that_is_not_there'" in page
    assert "failed: there is no Valkey here" in page
    assert "failed: there is no PostgreSQL here" in page
    assert re.search(r"\| slower \| 50\.0 \(50\.0–50\.0\) \| 2\.00 \(2\.00–2\.00\) \|", page)
    assert "- system: here" in page
    told = as_json(report)["rows"][0]["entries"]
    assert [one["median"] for one in told] == [100, None, None, None, None, 50]
    assert told[5]["ratios_of_reference"] == [2, 2]


@pytest.mark.parametrize(("seconds", "value"), [(None, 0.01), (0.5, 2)])
def test_a_turn_is_told_what_its_work_may_take(
    compared: Compare, seconds: float | None, value: float
) -> None:
    result = compared(Entry("hurried", "made_up_turns:hurried", "none", 1), seconds=seconds)
    assert result.results[0].values == [value]


def test_when_the_time_is_over_the_first_round_is_still_taken(compared: Compare) -> None:
    result = compared(quick("Stagewright", 100), quick("slower", 50), rounds=3, within=0)
    assert [(len(one.turns), one.left_out) for one in result.results] == [(1, 2), (1, 2)]
    result = compared(quick("Stagewright", 100), rounds=2, within=600)
    assert [(len(one.turns), one.left_out) for one in result.results] == [(2, 0)]


def test_who_takes_too_long_is_ended(compared: Compare) -> None:
    result = compared(Entry("endless", "made_up_turns:endless", "none", 1), limit=2)
    assert result.results[0].failure == "it took more than 2 s"


def test_targets_are_met_or_not_by_the_ratios_of_the_same_rounds() -> None:
    row = next(row for row in rows_of(Sizes()) if row.key == "three")
    speeds = {"Stagewright, worker": (40, 10), "DBOS, async": (9, 2), "DBOS, sync": (5, 1)}
    results = [
        Result(entry, {number: Figures(speed, 1) for number, speed in enumerate(speeds[entry.name])})
        for entry in row.entries
        if entry.name in speeds
    ]
    verdicts = {one.target: one for one in judge([RowResult(row, results)])}
    against_dbos = verdicts["three stages: ≥ 4 × DBOS's best mode on three steps"]
    assert against_dbos.is_met is True
    assert against_dbos.measured == "4.72 (4.44–5.00) of DBOS, async"
    assert verdicts["three stages: 180 runs/s"].is_met is False
    assert verdicts["1,000 steps: ≥ 2 × Restate"].measured == "not measured"
    assert verdicts["backlog: ≥ 3 × Procrastinate's jobs"].is_met is None


@pytest.mark.parametrize(("speed", "is_met"), [(200, True), (199, False)])
def test_steps_are_held_against_those_of_restate(speed: int, is_met: bool) -> None:
    row = next(row for row in rows_of(Sizes()) if row.key == "steps")
    speeds = {"Stagewright": speed, "Restate": 100, "DBOS, sync": 500}
    results = [
        Result(entry, {1: Figures(speeds[entry.name], 1)}) for entry in row.entries if entry.name in speeds
    ]
    verdicts = {one.target: one.is_met for one in judge([RowResult(row, results)])}
    assert verdicts["1,000 steps: ≥ 2 × Restate"] is is_met


def told_by_the_command(folder: Path, rows: str) -> dict[str, Any]:
    written = [f"--json={folder / 'made' / 'told.json'}", f"--markdown={folder / 'made' / 'told.md'}"]
    main(["--tiny", "--without-peers", f"--rows={rows}", *written])
    told: dict[str, Any] = json.loads((folder / "made" / "told.json").read_text(encoding="utf-8"))
    assert all(one["failure"] is None for row in told["rows"] for one in row["entries"])
    return told


def test_the_command_measures_and_tells_it_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = told_by_the_command(tmp_path, "import")
    assert (tmp_path / "made" / "told.md").read_text(encoding="utf-8") == capsys.readouterr().out
    assert [one["name"] for one in told["rows"][0]["entries"]] == ["Stagewright", "Stagewright, package"]
    assert {"postgresql", "sqlite", "load"} <= told["machine"].keys()


@pytest.mark.wide
# The fixture isn't used for its server, which isn't durable, but for what a missing one means.
@pytest.mark.usefixtures("postgres_url")
def test_the_command_measures_every_row(tmp_path: Path) -> None:
    rows = ["three", "steps", "fan-out", "backlog", "first-line", "idle-three", "memory"]
    told = told_by_the_command(tmp_path, ",".join(rows))
    assert [row["key"] for row in told["rows"]] == rows


def test_a_row_that_is_not_there_is_refused() -> None:
    with pytest.raises(SystemExit, match="there is no fourth; there are three, steps"):
        main(["--rows=three,fourth"])


def test_every_peer_is_pinned_and_has_a_line() -> None:
    root = Path(__file__).resolve().parents[2]
    listed = re.search(r"^PEERS = \[(.+)\]", (root / "noxfile.py").read_text(encoding="utf-8"), re.MULTILINE)
    assert listed is not None
    peers = re.findall(r'"([^"]+)"', listed[1])
    pinned = (root / "benchmarks" / "peers.txt").read_text(encoding="utf-8")
    assert [peer for peer in peers if f"\n{peer}==" not in pinned] == []
    names = " ".join(entry.name for row in rows_of(Sizes()) for entry in row.entries).lower()
    assert [peer for peer in peers if peer.removesuffix("-sdk") not in names] == []
