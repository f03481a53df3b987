"""The pytest plugin of this repository, loaded through its `pytest11` entry point."""

import pytest

from stagewright_test_support.services import missing_backends, required_backends

__all__ = ["pytest_configure"]


def pytest_configure(config: pytest.Config) -> None:
    """Makes the marker known and refuses to start without a required backend."""
    config.addinivalue_line(
        "markers", "guarantee(slug): the test proves the promise of that slug in docs/guarantees"
    )
    missing = missing_backends(required_backends())
    if missing:
        raise pytest.UsageError("required backends are missing:\n  " + "\n  ".join(missing))
