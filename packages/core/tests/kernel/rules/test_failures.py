"""Whether a failed stage is tried again, and after how long."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagewright import RetryPolicy
from stagewright.kernel.rules.delivery import retry_delay
from stagewright.kernel.rules.failures import GiveUp, TryAgain, judge_failure

FRACTIONS = st.floats(0, 1, exclude_max=True)


@given(
    earlier=st.integers(0, 10_000), most=st.integers(1, 10_000), retryable=st.booleans(), fraction=FRACTIONS
)
def test_a_stage_fails_exactly_at_its_budget_or_when_nothing_helps(
    earlier: int, most: int, retryable: bool, fraction: float
) -> None:
    verdict = judge_failure(
        earlier_failures=earlier, max_attempts=most, retryable=retryable, policy=None, jitter=lambda: fraction
    )
    assert verdict.failures == earlier + 1
    assert isinstance(verdict, TryAgain) is (retryable and earlier + 1 < most)


@given(
    failures=st.integers(1, 1_000_000),
    delay=st.floats(0, 1e9),
    factor=st.floats(1, 1e300),
    longest=st.floats(0, 1e9),
    fraction=FRACTIONS,
)
def test_a_pause_is_never_negative_never_over_its_limit_and_never_overflows(
    failures: int, delay: float, factor: float, longest: float, fraction: float
) -> None:
    policy = RetryPolicy(1_000_000, delay=delay, factor=factor, max_delay=longest)
    verdict = judge_failure(
        earlier_failures=failures - 1,
        max_attempts=10**9,
        retryable=True,
        policy=policy,
        jitter=lambda: fraction,
    )
    assert isinstance(verdict, TryAgain)
    assert timedelta(0) <= verdict.delay <= policy.max_delay


@given(failures=st.integers(1, 60))
def test_without_jitter_pauses_double_up_to_an_hour(failures: int) -> None:
    verdict = judge_failure(
        earlier_failures=failures - 1,
        max_attempts=100,
        retryable=True,
        policy=RetryPolicy(100, jitter=False),
        jitter=lambda: 0.9,
    )
    assert verdict == TryAgain(failures, timedelta(seconds=min(2**failures, 3_600)))


@pytest.mark.parametrize("fraction", [0.0, 0.5, 0.999])
def test_jitter_takes_up_to_a_half_away(fraction: float) -> None:
    policy = RetryPolicy(delay="10s")
    verdict = judge_failure(
        earlier_failures=0, max_attempts=3, retryable=True, policy=policy, jitter=lambda: fraction
    )
    assert verdict == TryAgain(1, timedelta(seconds=10) * (1 - fraction / 2))


def test_a_budget_of_one_is_one_try() -> None:
    verdict = judge_failure(earlier_failures=0, max_attempts=1, retryable=True, policy=None, jitter=lambda: 0)
    assert verdict == GiveUp(1)


@given(st.integers(1, 10**9))
def test_a_refused_event_waits_from_a_second_to_five_minutes(refusals: int) -> None:
    assert timedelta(seconds=1) <= retry_delay(refusals) <= timedelta(minutes=5)
    assert retry_delay(refusals) <= retry_delay(refusals + 1)
