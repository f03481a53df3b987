"""Registers the suite's markers, and refuses a test that needs a capability nobody can declare."""

import sys
from pathlib import Path

import pytest

from stagewright_conformance.capabilities import CAPABILITY_NAMES
from stagewright_conformance.exercised import Exercised, mark_for_report
from stagewright_conformance.targets import installed_targets, target_lines

__all__ = ["pytest_addoption", "pytest_cmdline_main", "pytest_collection_modifyitems", "pytest_configure"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer the report of what was exercised."""
    parser.addoption(
        "--conformance-table",
        action="store_true",
        help="print how many tests of each conformance suite passed on each target",
    )
    parser.addoption(
        "--conformance-markdown", metavar="FILE", type=Path, help="write what was exercised as Markdown"
    )
    parser.addoption("--conformance-json", metavar="FILE", type=Path, help="write what was exercised as JSON")
    parser.addoption(
        "--conformance-targets",
        action="store_true",
        help="list what the suite can be pointed at, by what installed plugins say, and run nothing",
    )


def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """List the targets where that is asked for; else let pytest go on."""
    if not config.getoption("conformance_targets"):
        return None
    for line in target_lines(installed_targets()):
        sys.stdout.write(f"{line}\n")
    return 0


def pytest_configure(config: pytest.Config) -> None:
    """Make the markers known, so that the suite runs under `--strict-markers`."""
    config.addinivalue_line(
        "markers", "needs(capability): the test can't pass without this capability of the adapter"
    )
    config.addinivalue_line(
        "markers", "guarantee(slug): the test proves the promise of that slug in docs/guarantees"
    )
    config.addinivalue_line(
        "markers", "conformance_target(name): what the suite is pointed at, for the table"
    )
    table, markdown, json_file = (
        config.getoption(f"conformance_{form}") for form in ("table", "markdown", "json")
    )
    if (table or markdown or json_file) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Exercised(table=bool(table), markdown=markdown, json_file=json_file))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Check every `needs` against the fields of `Capabilities`, and note what the report says."""
    for item in items:
        mark_for_report(item)
        for marker in item.iter_markers("needs"):
            unknown = [name for name in marker.args if name not in CAPABILITY_NAMES]
            if unknown or not marker.args:
                raise pytest.UsageError(f"{item.nodeid} needs {unknown or 'nothing'}, which is no capability")
