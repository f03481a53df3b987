"""What a check found, shown whole."""

import pytest

__all__ = ["expect_none"]


def expect_none(faults: list[str]) -> None:
    """Fails the test with every fault on a line of its own."""
    if faults:
        pytest.fail(f"{len(faults)} found:\n  " + "\n  ".join(faults), pytrace=False)
