"""The report of what was exercised: by suite and by capability, on each target, for people and for programs."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

__all__ = ["Outcome", "Report", "Result"]

Result: TypeAlias = Literal["passed", "gap", "failed", "not exercised"]

_SUFFIXES: Final[dict[Result, str]] = {
    "passed": "",
    "gap": " gap",
    "failed": " FAILED",
    "not exercised": " not exercised",
}
_LONGEST_PROBLEM: Final = 300
_MOST_COLUMNS: Final = 8
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one test on one target.

    Attributes:
        target: What the suite was pointed at.
        suite: The name of the suite.
        test: The name of the test with its parameters; empty for a suite of which no test was started.
        result: `gap` is a failure that the adapter has declared, by a capability that it lacks.
        needs: The capabilities without which the test can't pass.
        clause: The clause of the port that the test checks.
        problem: Why it failed, is a gap, or wasn't exercised; empty where it passed.
    """

    target: str
    suite: str
    test: str
    result: Result
    needs: tuple[str, ...] = ()
    clause: str = ""
    problem: str = ""


Table: TypeAlias = list[list[str]]


class Report:
    """What the outcomes of many tests amount to."""

    def __init__(self, outcomes: Iterable[Outcome]) -> None:
        """Put outcomes together; their order doesn't matter."""
        self.outcomes = tuple(sorted(outcomes, key=lambda one: (one.target, one.suite, one.test)))
        self.targets = tuple(dict.fromkeys(one.target for one in self.outcomes))

    @property
    def is_conforming(self) -> bool:
        """Whether something passed and nothing failed."""
        results = {one.result for one in self.outcomes}
        return "passed" in results and "failed" not in results

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """Those that failed."""
        return tuple(one for one in self.outcomes if one.result == "failed")

    def as_text(self) -> list[str]:
        """Lines for a terminal: suites down and targets across, capabilities alike, then what the numbers don't say.

        Where there are more targets than suites, and more than eight, targets go down and suites across.
        """
        lines = _aligned(self._suites_table())
        capabilities = self._capabilities_table()
        if capabilities:
            lines += ["", *_aligned(capabilities)]
        for title, notes in self._notes().items():
            lines += ["", title, *(f"  {note}" for note in notes)]
        return lines

    def as_markdown(self) -> list[str]:
        """The same as two tables and lists in Markdown."""
        lines = _pipes(self._suites_table())
        capabilities = self._capabilities_table()
        if capabilities:
            lines += ["", *_pipes(capabilities)]
        for title, notes in self._notes().items():
            lines += ["", f"{title[:1].upper()}{title[1:]}", "", *(f"- {_escaped(note)}" for note in notes)]
        return lines

    def as_json(self) -> dict[str, Any]:  # Any: JSON
        """The same for programs: `format`, `conforming` and `targets`.

        Each target has its `name`, its `suites` and `capabilities` with the number of tests by result, its `failures`
        with suite, test, clause and problem, and what is `not_exercised`, with the reason.
        """
        return {
            "format": _FORMAT,
            "conforming": self.is_conforming,
            "targets": [self._target_as_json(target) for target in self.targets],
        }

    def _target_as_json(self, target: str) -> dict[str, Any]:
        mine = [one for one in self.outcomes if one.target == target]
        unexercised = dict.fromkeys((one.suite, one.problem) for one in mine if one.result == "not exercised")
        return {
            "name": target,
            "suites": {
                suite: _counts(one.result for one in mine if one.suite == suite)
                for suite in dict.fromkeys(one.suite for one in mine)
            },
            "capabilities": {
                name: _counts(one.result for one in mine if name in one.needs)
                for name in sorted({name for one in mine for name in one.needs})
            },
            "failures": [
                {"suite": one.suite, "test": one.test, "clause": one.clause, "problem": one.problem}
                for one in mine
                if one.result == "failed"
            ],
            "not_exercised": [{"suite": suite, "reason": reason} for suite, reason in unexercised],
        }

    def _suites_table(self) -> Table:
        suites = sorted({one.suite for one in self.outcomes if one.test})
        return self._table("suite", suites, lambda suite, one: one.suite == suite)

    def _capabilities_table(self) -> Table:
        names = sorted({name for one in self.outcomes for name in one.needs})
        return self._table("capability", names, lambda name, one: name in one.needs) if names else []

    def _table(self, head: str, rows: Sequence[str], belongs: Callable[[str, Outcome], bool]) -> Table:
        table = [[head, *self.targets]]
        for row in rows:
            mine = [one for one in self.outcomes if one.test and belongs(row, one)]
            table.append([row, *(_cell(one.result for one in mine if one.target == t) for t in self.targets)])
        if len(self.targets) <= max(len(rows), _MOST_COLUMNS):
            return table
        # Many targets are read downwards.
        return [
            ["target", *rows],
            *([target, *cells] for target, *cells in list(zip(*table, strict=True))[1:]),
        ]

    def _notes(self) -> dict[str, list[str]]:
        failures = [
            f"{one.suite}.{one.test} on {one.target}: {one.clause or 'no clause'} ({_short(one.problem)})"
            for one in self.failed
        ]
        notes = {
            "failed:": failures,
            "gaps declared:": self._by_reason("gap"),
            "not exercised:": self._by_reason("not exercised"),
        }
        return {title: lines for title, lines in notes.items() if lines}

    def _by_reason(self, result: Result) -> list[str]:
        """One line for each reason and the targets it holds for, with the suites."""
        suites: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        targets: dict[tuple[str, str], list[str]] = {}
        for one in self.outcomes:
            if one.result == result:
                targets.setdefault((one.problem, one.suite), []).append(one.target)
        for (problem, suite), found in sorted(targets.items()):
            suites.setdefault((problem, tuple(dict.fromkeys(found))), []).append(suite)
        return [
            f"{', '.join(names)} on {', '.join(found)}: {_short(problem)}"
            for (problem, found), names in suites.items()
        ]


def _counts(results: Iterable[Result]) -> dict[str, int]:
    counted = Counter(results)
    return {result.replace(" ", "_"): counted[result] for result in _SUFFIXES}


def _cell(results: Iterable[Result]) -> str:
    counted = Counter(results)
    return ", ".join(f"{counted[one]}{suffix}" for one, suffix in _SUFFIXES.items() if counted[one]) or "-"


def _short(problem: str) -> str:
    line = " ".join(problem.split())
    return line if len(line) <= _LONGEST_PROBLEM else f"{line[:_LONGEST_PROBLEM]}…"


def _aligned(table: Table) -> list[str]:
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]


def _pipes(table: Table) -> list[str]:
    head, *rows = [[_escaped(text) for text in row] for row in table]
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")
