"""The table of what was exercised: how many tests of each suite passed on each target."""

from collections import Counter

import pytest

from stagewright_conformance.suite import Suite

__all__ = ["Exercised", "mark_for_table"]

_PROPERTY = "stagewright-conformance"
_UNNAMED = "(unnamed)"


def mark_for_table(item: pytest.Item) -> None:
    """Note on a test of the suite which suite and which target it belongs to; nothing on any other test."""
    kind = getattr(item, "cls", None)
    if not isinstance(kind, type) or not issubclass(kind, Suite):
        return
    suites = [
        base.__name__ for base in kind.__mro__ if base.__module__.startswith("stagewright_conformance.")
    ]
    marker = item.get_closest_marker("conformance_target")
    target = str(marker.args[0]) if marker is not None and marker.args else _UNNAMED
    item.user_properties.append((_PROPERTY, f"{suites[0]}\t{target}"))


class Exercised:
    """Counts outcomes by suite and target, also of tests that ran in other processes."""

    def __init__(self) -> None:
        self._passed: Counter[tuple[str, str]] = Counter()
        self._gaps: Counter[tuple[str, str]] = Counter()
        self._failed: Counter[tuple[str, str]] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count one report."""
        place = next((str(value) for name, value in report.user_properties if name == _PROPERTY), None)
        if place is None or (report.when != "call" and not report.failed):
            return
        suite, _, target = place.partition("\t")
        if report.failed:
            self._failed[suite, target] += 1
        elif report.skipped:
            self._gaps[suite, target] += 1
        else:
            self._passed[suite, target] += 1

    def lines(self) -> list[str]:
        """The table: suites down, targets across; each cell says passed, and what else there was."""
        places = {*self._passed, *self._gaps, *self._failed}
        targets = sorted({target for _, target in places})
        suites = sorted({suite for suite, _ in places})
        rows = [["suite", *targets]]
        rows += [[suite, *(self._cell((suite, target)) for target in targets)] for suite in suites]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in rows]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table, unless no test of the suite ran."""
        lines = self.lines()
        if len(lines) > 1:
            terminalreporter.section("conformance: what was exercised")
            for line in lines:
                terminalreporter.write_line(line.rstrip())

    def _cell(self, place: tuple[str, str]) -> str:
        counts = {"": self._passed[place], "gap": self._gaps[place], "FAILED": self._failed[place]}
        parts = [f"{count} {name}".strip() for name, count in counts.items() if count]
        return ", ".join(parts) or "-"
