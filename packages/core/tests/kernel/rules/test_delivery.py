"""How long an event that was refused waits."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from stagewright.kernel.rules.delivery import retry_delay

SECOND = timedelta(seconds=1)


@given(st.integers(1, 10**9))
def test_a_pause_never_shrinks_and_never_exceeds_its_limit(refusals: int) -> None:
    assert SECOND <= retry_delay(refusals) <= retry_delay(refusals + 1) <= 300 * SECOND


@given(st.integers(1, 8))
def test_a_pause_doubles_until_its_limit(refusals: int) -> None:
    assert retry_delay(refusals + 1) == 2 * retry_delay(refusals)
