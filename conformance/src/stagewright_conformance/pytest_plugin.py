"""Registers the suite's markers, and refuses a test that needs a capability nobody can declare."""

import pytest

from stagewright_conformance.capabilities import CAPABILITY_NAMES

__all__ = ["pytest_collection_modifyitems", "pytest_configure"]


def pytest_configure(config: pytest.Config) -> None:
    """Make the markers known, so that the suite runs under `--strict-markers`."""
    config.addinivalue_line(
        "markers", "needs(capability): the test can't pass without this capability of the adapter"
    )
    config.addinivalue_line(
        "markers", "guarantee(slug): the test proves the promise of that slug in docs/guarantees"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Check every `needs` against the fields of `Capabilities`."""
    for item in items:
        for marker in item.iter_markers("needs"):
            unknown = [name for name in marker.args if name not in CAPABILITY_NAMES]
            if unknown or not marker.args:
                raise pytest.UsageError(f"{item.nodeid} needs {unknown or 'nothing'}, which is no capability")
