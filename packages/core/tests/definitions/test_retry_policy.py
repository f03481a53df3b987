from dataclasses import FrozenInstanceError
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagewright.definitions import RetryPolicy
from stagewright.errors import DefinitionError, NonRetryableError


def test_the_defaults_are_three_attempts_two_four_eight_seconds() -> None:
    policy = RetryPolicy()
    assert (policy.max_attempts, policy.max_worker_losses) == (3, 3)
    assert [policy.delay_before(n).total_seconds() for n in (1, 2, 3, 4)] == [2, 4, 8, 16]
    assert policy.delay_before(0) == timedelta(0)


def test_the_delay_grows_by_the_factor_up_to_the_longest() -> None:
    policy = RetryPolicy(delay="10s", factor=2, max_delay="30s")
    assert [policy.delay_before(n).total_seconds() for n in (1, 2, 3, 9)] == [10, 20, 30, 30]


def test_jitter_shortens_by_up_to_a_half() -> None:
    policy = RetryPolicy(delay="10s")
    assert policy.delay_before(1, jitter=lambda: 0.0) == timedelta(seconds=10)
    assert policy.delay_before(1, jitter=lambda: 0.5) == timedelta(seconds=7.5)
    steady = RetryPolicy(delay="10s", jitter=False)
    assert steady.delay_before(1, jitter=lambda: 0.5) == timedelta(seconds=10)


@pytest.mark.guarantee("definitions.back-off-capped")
def test_attempt_five_thousand_waits_the_longest_delay() -> None:
    for factor in (1, 1.5, 2, 1e308):
        assert RetryPolicy(factor=factor, max_delay="400d").delay_before(5_000) <= timedelta(days=400)
    assert RetryPolicy(max_delay="7d").delay_before(5_000) == timedelta(days=7)


@given(
    delay=st.floats(min_value=0, max_value=3e11),
    factor=st.floats(min_value=1, allow_infinity=False, allow_nan=False),
    longest=st.floats(min_value=0, max_value=3e11),
    failures=st.integers(min_value=-1, max_value=10**9),
    share=st.floats(min_value=0, max_value=1, exclude_max=True),
)
def test_no_policy_overflows(
    delay: float, factor: float, longest: float, failures: int, share: float
) -> None:
    policy = RetryPolicy(delay=delay, factor=factor, max_delay=longest)
    pause = policy.delay_before(failures, jitter=lambda: share)
    assert timedelta(0) <= pause <= policy.max_delay


def test_every_bad_argument_is_listed_at_once() -> None:
    with pytest.raises(DefinitionError) as caught:
        RetryPolicy(
            max_attempts=0,
            max_worker_losses=True,
            delay="soon",
            factor=0.5,
            max_delay=-1,
            retry_on="ValueError",  # type: ignore[arg-type]  # wrong on purpose
        )
    assert len(caught.value.problems) == 6
    for name in ("max_attempts", "max_worker_losses", "delay", "factor", "max_delay", "retry_on"):
        assert any(name in problem for problem in caught.value.problems)


@pytest.mark.parametrize("factor", [float("nan"), float("inf"), 10**400, "2", True])
def test_a_factor_is_a_finite_number(factor: object) -> None:
    with pytest.raises(DefinitionError, match="factor"):
        RetryPolicy(factor=factor)  # type: ignore[arg-type]  # wrong on purpose


def test_retry_on_takes_classes_or_a_predicate() -> None:
    assert RetryPolicy().allows(ValueError())
    assert RetryPolicy(retry_on=OSError).allows(TimeoutError())
    assert not RetryPolicy(retry_on=(OSError, KeyError)).allows(ValueError())
    assert RetryPolicy(retry_on=lambda error: "busy" in str(error)).allows(ValueError("busy"))
    assert not RetryPolicy(retry_on=lambda error: False).allows(ValueError())


def test_a_non_retryable_error_is_never_retried() -> None:
    assert not RetryPolicy(retry_on=NonRetryableError).allows(NonRetryableError())
    assert not RetryPolicy().allows(KeyboardInterrupt())


def test_a_predicate_that_raises_leaves_the_decision_to_the_budget() -> None:
    def broken(error: Exception) -> bool:
        raise RuntimeError("no idea")

    error = ValueError("busy")
    assert RetryPolicy(retry_on=broken).allows(error)
    assert error.__notes__ == ["retry_on raised RuntimeError: no idea"]


def test_a_policy_is_frozen_and_compares_by_value() -> None:
    policy = RetryPolicy(5)
    assert policy == RetryPolicy(max_attempts=5)
    with pytest.raises(FrozenInstanceError):
        policy.max_attempts = 6  # type: ignore[misc]  # wrong on purpose


@pytest.mark.parametrize("jitter", ["no", 1, None])
def test_jitter_is_true_or_false(jitter: object) -> None:
    with pytest.raises(DefinitionError, match="jitter=.* must be True or False"):
        RetryPolicy(jitter=jitter)  # type: ignore[arg-type]  # wrong on purpose
