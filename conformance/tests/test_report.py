"""The report, for people and for programs."""

import json

import pytest

from stagewright_conformance.report import Outcome, Report, Result


def outcome(test: str, result: Result, *, target: str = "a|b", suite: str = "RunSuite") -> Outcome:
    needs = ("wake_ups",) if "wake" in test else ()
    problem = "" if result == "passed" else f"{test} is {result}\nindeed"
    return Outcome(
        target=target,
        suite=suite,
        test=test,
        result=result,
        needs=needs,
        clause="`f`: it is.",
        problem=problem,
    )


REPORT = Report(
    [
        outcome("x", "passed"),
        outcome("y", "failed"),
        outcome("wake", "gap"),
        outcome("wake", "passed", target="c"),
        outcome("z", "not exercised", target="c"),
        outcome("", "not exercised", target="c", suite="StageSuite"),
    ]
)


def test_the_text_has_suites_capabilities_and_what_numbers_do_not_say() -> None:
    assert REPORT.as_text() == [
        "suite     a|b                 c",
        "RunSuite  1, 1 gap, 1 FAILED  1, 1 not exercised",
        "",
        "capability  a|b    c",
        "wake_ups    1 gap  1",
        "",
        "failed:",
        "  RunSuite.y on a|b: `f`: it is. (y is failed indeed)",
        "",
        "gaps declared:",
        "  RunSuite on a|b: wake is gap indeed",
        "",
        "not exercised:",
        "  StageSuite on c: is not exercised indeed",
        "  RunSuite on c: z is not exercised indeed",
    ]


def test_many_targets_are_read_downwards() -> None:
    report = Report(outcome("x", "passed", target=f"t{number}") for number in range(9))
    assert report.as_text()[:3] == ["target  RunSuite", "t0      1", "t1      1"]


def test_markdown_escapes_what_would_break_its_tables() -> None:
    lines = REPORT.as_markdown()
    assert lines[:3] == [
        "| suite | a\\|b | c |",
        "| --- | --- | --- |",
        "| RunSuite | 1, 1 gap, 1 FAILED | 1, 1 not exercised |",
    ]
    assert "| wake\\_ups | 1 gap | 1 |" in lines
    assert "- RunSuite on c: z is not exercised indeed" in lines


def test_json_counts_by_suite_and_capability_and_names_what_failed() -> None:
    read = json.loads(json.dumps(REPORT.as_json()))
    assert (read["format"], read["conforming"]) == (1, False)
    first, second = read["targets"]
    assert first["name"] == "a|b"
    assert first["suites"] == {"RunSuite": {"passed": 1, "gap": 1, "failed": 1, "not_exercised": 0}}
    assert first["capabilities"]["wake_ups"] == {"passed": 0, "gap": 1, "failed": 0, "not_exercised": 0}
    [failure] = first["failures"]
    assert (failure["suite"], failure["test"], failure["clause"]) == ("RunSuite", "y", "`f`: it is.")
    assert {left["suite"] for left in second["not_exercised"]} == {"RunSuite", "StageSuite"}


@pytest.mark.parametrize(
    ("results", "conforms"),
    [
        (["passed", "gap", "not exercised"], True),
        (["passed", "failed"], False),
        (["gap", "not exercised"], False),
        ([], False),
    ],
)
def test_conforming_is_what_passed_something_and_failed_nothing(
    results: list[Result], conforms: bool
) -> None:
    outcomes = [outcome(str(number), result) for number, result in enumerate(results)]
    assert Report(outcomes).is_conforming is conforms
