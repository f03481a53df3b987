"""Listens to pytest for what was exercised, and writes the report of it."""

import inspect
import json
from pathlib import Path
from typing import Final

import pytest

from stagewright_conformance.report import Outcome, Report
from stagewright_conformance.suite import Suite

__all__ = ["Exercised", "mark_for_report"]

_PROPERTY: Final = "stagewright-conformance"
_UNNAMED: Final = "(unnamed)"


def mark_for_report(item: pytest.Item) -> None:
    """Note on a test of the suite what the report says of it; nothing on any other test."""
    kind = getattr(item, "cls", None)
    if not isinstance(kind, type) or not issubclass(kind, Suite):
        return
    names = [base.__name__ for base in kind.__mro__ if issubclass(base, Suite)]
    marker = item.get_closest_marker("conformance_target")
    clause = inspect.getdoc(getattr(item, "function", None)) or ""
    noted = {
        "suite": next(name for name in names if name.endswith("Suite") and not name.startswith("Test")),
        "target": str(marker.args[0]) if marker is not None and marker.args else _UNNAMED,
        "needs": sorted({str(name) for one in item.iter_markers("needs") for name in one.args}),
        "clause": clause.partition("\n\n")[0].replace("\n", " "),
    }
    item.user_properties.append((_PROPERTY, json.dumps(noted)))


class Exercised:
    """Keeps what became of each test of the suite, also of those that ran in other processes."""

    def __init__(
        self, *, table: bool = False, markdown: Path | None = None, json_file: Path | None = None
    ) -> None:
        """Begin with nothing.

        Args:
            table: Whether the report is printed at the end.
            markdown: Where it is written as Markdown.
            json_file: Where it is written as JSON.
        """
        self._table = table
        self._markdown = markdown
        self._json = json_file
        self._outcomes: dict[str, Outcome] = {}

    def add(self, *outcomes: Outcome) -> None:
        """Take in what no test of pytest's stands for."""
        for outcome in outcomes:
            self._outcomes[f"{outcome.target} {outcome.suite} {outcome.test}"] = outcome

    def report(self) -> Report:
        """What was exercised so far."""
        return Report(self._outcomes.values())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take in one phase of a test."""
        noted = next((str(value) for name, value in report.user_properties if name == _PROPERTY), None)
        if noted is None or (report.passed and report.when != "call"):
            return
        place = json.loads(noted)
        self._outcomes[report.nodeid] = Outcome(
            target=place["target"],
            suite=place["suite"],
            test=report.nodeid.rpartition("::")[2],
            needs=tuple(place["needs"]),
            clause=place["clause"],
            result=(
                "failed"
                if report.failed
                else "passed"
                if report.passed
                else "gap"
                if hasattr(report, "wasxfail")
                else "not exercised"
            ),
            problem=_problem_of(report),
        )

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print and write the report; no table where no test of the suite ran."""
        report = self.report()
        if self._table and report.outcomes:
            terminalreporter.section("conformance: what was exercised")
            for line in report.as_text():
                terminalreporter.write_line(line)
        if self._markdown is not None:
            self._markdown.write_text("\n".join(report.as_markdown()) + "\n", encoding="utf-8")
        if self._json is not None:
            written = json.dumps(report.as_json(), indent=2, ensure_ascii=False)
            self._json.write_text(f"{written}\n", encoding="utf-8")


def _problem_of(report: pytest.TestReport) -> str:
    if report.passed:
        return ""
    if hasattr(report, "wasxfail"):
        return str(report.wasxfail).removeprefix("reason: ")
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(report.longrepr if crash is None else crash.message)
