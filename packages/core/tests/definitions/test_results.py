from datetime import timedelta

import pytest

from stagewright.definitions import NotReady, Ready, StageResult, Suspend
from stagewright.errors import InvalidDurationError


def test_a_result_carries_metrics_and_artifacts() -> None:
    plain = StageResult(output=1)
    assert (plain.output, plain.metrics, plain.artifacts) == (1, {}, {})
    full = StageResult(output=1, metrics={"rows": 3}, artifacts={"report": "text"})
    assert full.metrics == {"rows": 3}


def test_a_suspension_has_the_documented_defaults() -> None:
    suspended = Suspend(state={"batch": "b-1"})
    assert suspended.poll_interval == timedelta(seconds=30)
    assert suspended.max_wait == timedelta(hours=24)
    assert Suspend("b-1", poll_interval="5m", max_wait=60).poll_interval == timedelta(minutes=5)


def test_the_answers_of_a_check() -> None:
    assert Ready(3).output == 3
    assert NotReady().next_check_in is None
    assert NotReady("5s").next_check_in == NotReady(next_check_in=5).next_check_in == timedelta(seconds=5)


@pytest.mark.guarantee("values.durations-bounded")
@pytest.mark.parametrize("value", [-1, float("nan"), timedelta.max, 10**12, "soon"])
def test_nonsensical_durations_are_refused_at_construction(value: float | timedelta | str) -> None:
    with pytest.raises(InvalidDurationError, match="poll_interval"):
        Suspend({}, poll_interval=value)
    with pytest.raises(InvalidDurationError, match="max_wait"):
        Suspend({}, max_wait=value)
    with pytest.raises(InvalidDurationError, match="next_check_in"):
        NotReady(next_check_in=value)


def test_long_waits_are_kept_as_they_are() -> None:
    assert Suspend({}, max_wait="400d").max_wait == timedelta(days=400)
