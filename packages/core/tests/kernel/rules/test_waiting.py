"""When a stage that waits may go on."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from stagewright.kernel.rules.waiting import is_due
from stagewright.records import StageRecord
from stagewright.status import Status

NOW = datetime(2025, 1, 1, tzinfo=UTC)


def a_stage(next_poll_at: datetime | None) -> StageRecord:
    return StageRecord(
        id="r",
        run_id="run",
        stage_id="s",
        stage_name="S",
        stage_number=1,
        execution_group=1,
        status=Status.SUSPENDED,
        next_poll_at=next_poll_at,
    )


@given(st.integers(-(10**9), 10**9))
def test_a_stage_goes_on_at_its_time_and_not_a_microsecond_before(microseconds: int) -> None:
    due = NOW + timedelta(microseconds=microseconds)
    assert is_due(a_stage(due), NOW) is (microseconds <= 0)


def test_a_stage_that_was_handed_over_waits_for_nothing() -> None:
    assert is_due(a_stage(None), NOW)
