"""A test that needs what no adapter can declare; collected by an inner run alone."""

import pytest


@pytest.mark.needs("telepathy")
def test_minds_are_read() -> None:
    raise AssertionError
