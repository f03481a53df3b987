import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / ".ci" / "count_tests.py"


def a_report(path: Path, *, tests: int, failures: int = 0, errors: int = 0, skipped: int = 0) -> Path:
    counts = f'tests="{tests}" failures="{failures}" errors="{errors}" skipped="{skipped}"'
    path.write_text(f"<testsuites><testsuite {counts} /></testsuites>", encoding="utf-8")
    return path


def count(*reports: Path) -> tuple[int, list[str]]:
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, reports)], capture_output=True, text=True, check=False
    )
    return ended.returncode, ended.stdout.splitlines()


def test_reports_are_added_up(tmp_path: Path) -> None:
    first = a_report(tmp_path / "a.xml", tests=5, skipped=1)
    second = a_report(tmp_path / "b.xml", tests=2)
    assert count(first, second) == (0, ["6 passed, 0 failed, 1 skipped"])


def test_a_failure_or_an_error_fails(tmp_path: Path) -> None:
    report = a_report(tmp_path / "a.xml", tests=5, failures=1, errors=1)
    assert count(report) == (1, ["3 passed, 2 failed, 0 skipped"])


def test_a_tier_that_ran_nothing_fails(tmp_path: Path) -> None:
    whole = a_report(tmp_path / "a.xml", tests=5)
    skipped = a_report(tmp_path / "b.xml", tests=3, skipped=3)
    missing = tmp_path / "c.xml"
    code, lines = count(whole, skipped, missing)
    assert code == 1
    assert lines == [
        f"{skipped}: no test ran",
        f"{missing}: no test ran",
        "5 passed, 0 failed, 3 skipped",
    ]
