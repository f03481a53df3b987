"""The plot shows the figures that it is given, and the one of the documents shows those of their tables."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from benchmarks.comparison import Result, RowResult
from benchmarks.entries import Entry, Row
from benchmarks.figures import Figures
from benchmarks.plot import Panel, Point, draw
from benchmarks.publish import block_of, main
from benchmarks.scaling_plot import plot_of_json, plot_of_tables
from benchmarks.scaling_report import ScalingReport, as_json, as_markdown

DOCS = Path(__file__).resolve().parents[2] / "docs"
SVG = "{http://www.w3.org/2000/svg}"
KEYS = ("processes", "finished", "pending", "suspended")


def places(picture: str, tag: str, kind: str, *names: str) -> list[tuple[float, ...]]:
    found = [one for one in ElementTree.fromstring(picture).iter(SVG + tag) if one.get("class") == kind]
    return [tuple(float(one.attrib[name]) for name in names) for one in found]


def test_medians_ranges_and_the_first_one_are_drawn_to_scale() -> None:
    points = [Point("1 process", 100, 80, 120), Point("2 processes", 50, 50, 60), Point("3 & more", 0, 0, 0)]
    picture = draw([Panel("By processes", "runs/s", points)])
    high, half, zero = (y for _, y in places(picture, "circle", "median", "cx", "cy"))
    assert zero - high == pytest.approx(2 * (zero - half))
    (_, first, also_first), *_ = places(picture, "line", "first", "x1", "y1", "y2")
    assert first == also_first == high
    ranges = places(picture, "line", "range", "y1", "y2")
    each = (zero - high) / 100
    assert [(zero - least, zero - most) for least, most in ranges] == [
        pytest.approx((80 * each, 120 * each), abs=0.2),
        pytest.approx((50 * each, 60 * each), abs=0.2),
        (0, 0),
    ]
    grid = places(picture, "line", "grid", "y1")
    assert max(grid) == (zero,)
    assert min(grid)[0] <= ranges[0][1]
    told = [one.text for one in ElementTree.fromstring(picture).iter(SVG + "title")]
    assert told[0] == "1 process: 100 (80–120) runs/s"
    labels = [one.text for one in ElementTree.fromstring(picture).iter(SVG + "text")]
    assert labels[-6:] == ["1", "process", "2", "processes", "3", "& more"]


def report_of(keys: tuple[str, ...] = KEYS) -> ScalingReport:
    rows = []
    for number, key in enumerate(keys):
        entries = [Entry(f"{case:,} of them", "", "postgresql", 9) for case in (1, 20_000, 300)]
        results = [
            Result(entries[0], {1: Figures(1_234_567, 1_000), 2: Figures(1_100 + number, 1)}, loads=[0.5]),
            Result(entries[1], {1: Figures(77_777, 1_000)}, loads=[0.5]),
            Result(entries[2], failure="it took more than 2 s"),
        ]
        rows.append(RowResult(Row(key, f"runs by {key}", "runs/s", entries), results))
    return ScalingReport(rows, {"rounds": 2}, {"system": "here"})


def test_json_and_tables_give_the_same_plot() -> None:
    picture = plot_of_json(as_json(report_of()))
    assert picture == plot_of_tables(as_markdown(report_of()))
    assert [len(places(picture, "circle", "median", "cx")), picture.count('class="title"')] == [8, 4]
    assert "<title>20,000 of them: 77.8 (77.8–77.8) runs/s</title>" in picture
    assert "300" not in re.findall(r">([^<]*)</text>", picture)


def test_the_plot_of_the_documents_shows_the_figures_of_their_tables() -> None:
    page = (DOCS / "performance.md").read_text(encoding="utf-8")
    assert "](scaling.svg)" in page
    picture = (DOCS / "scaling.svg").read_text(encoding="utf-8")
    assert picture == plot_of_tables(block_of(page, "scaling"))
    assert len(places(picture, "circle", "median", "cx")) >= 8


PAGE = """# Performance

<!-- comparison -->
| older | figures |
<!-- end of comparison -->
what is said
<!-- scaling -->
<!-- end of scaling -->
the end
"""


def written(folder: Path, report: ScalingReport) -> list[str]:
    """The arguments of a command whose folders hold a page and that report."""
    measured, docs = folder / "measured", folder / "docs"
    measured.mkdir()
    docs.mkdir()
    (docs / "performance.md").write_text(PAGE, encoding="utf-8")
    (measured / "scaling.json").write_text(json.dumps(as_json(report)), encoding="utf-8")
    (measured / "scaling.md").write_text(f"{as_markdown(report)}\n", encoding="utf-8")
    return [f"--measured={measured}", f"--docs={docs}"]


def test_one_command_puts_what_was_measured_into_the_documents(tmp_path: Path) -> None:
    arguments = written(tmp_path, report_of())
    for _ in range(2):
        main(arguments)
        page = (tmp_path / "docs" / "performance.md").read_text(encoding="utf-8")
        before, _, rest = page.partition(
            "<!-- scaling -->\n\n#### Runs by processes\n\n|  | runs/s (least–most) |"
        )
        assert before == PAGE.partition("<!-- scaling -->")[0]
        assert rest.endswith("\n- system: here\n\n<!-- end of scaling -->\nthe end\n")
        picture = (tmp_path / "docs" / "scaling.svg").read_text(encoding="utf-8")
        assert picture == plot_of_tables(block_of(page, "scaling"))


def test_a_run_of_some_rows_is_not_put_into_the_documents(tmp_path: Path) -> None:
    arguments = written(tmp_path, report_of(("processes", "finished")))
    with pytest.raises(SystemExit, match=r"scaling\.json lacks pending, suspended"):
        main(arguments)
    assert (tmp_path / "docs" / "performance.md").read_text(encoding="utf-8") == PAGE
    (tmp_path / "measured" / "scaling.json").unlink()
    with pytest.raises(SystemExit, match="neither"):
        main(arguments)
