from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone

import pytest

from stagewright.errors import InvalidDurationError
from stagewright.ports import Clock
from stagewright.testing import FakeClock


def test_it_stands_still_until_it_is_moved() -> None:
    clock: Clock = FakeClock()
    assert clock.now() == clock.now() == datetime(2025, 1, 1, tzinfo=UTC)


def test_it_moves_by_a_duration() -> None:
    clock = FakeClock()
    assert clock.advance("90s") == datetime(2025, 1, 1, 0, 1, 30, tzinfo=UTC)
    clock.advance(0.5)
    clock.advance(timedelta(days=1))
    assert clock.now() == datetime(2025, 1, 2, 0, 1, 30, 500_000, tzinfo=UTC)


def test_it_is_set_forward_and_back_and_answers_in_utc() -> None:
    clock = FakeClock(datetime(2030, 5, 1, 2, tzinfo=timezone(timedelta(hours=2))))
    assert clock.now() == datetime(2030, 5, 1, tzinfo=UTC)
    assert clock.now().tzinfo is UTC
    clock.set(datetime(2020, 1, 1, tzinfo=UTC))
    assert clock.now() == datetime(2020, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("duration", [-1, float("nan"), "soon", 1e12])
def test_a_duration_that_no_clock_can_go_is_refused(duration: float | str) -> None:
    clock = FakeClock()
    with pytest.raises(InvalidDurationError):
        clock.advance(duration)
    assert clock.now() == datetime(2025, 1, 1, tzinfo=UTC)


def test_a_moment_without_a_zone_is_refused() -> None:
    naive = datetime(2025, 1, 1)  # noqa: DTZ001 - the error is under test
    with pytest.raises(InvalidDurationError, match="no time zone"):
        FakeClock(naive)
    with pytest.raises(InvalidDurationError, match="no time zone"):
        FakeClock().set(naive)
    with pytest.raises(InvalidDurationError, match="start='2025' is no moment"):
        FakeClock("2025")  # type: ignore[arg-type]  # what an untyped caller may give


def test_a_moment_beyond_the_calendar_is_refused() -> None:
    moment = datetime.max.replace(tzinfo=timezone(timedelta(hours=-12)))
    for call in (FakeClock, FakeClock().set):
        with pytest.raises(InvalidDurationError, match="beyond the calendar"):
            call(moment)


def test_no_step_of_another_thread_is_lost() -> None:
    clock = FakeClock()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(clock.advance, [1] * 2_000))
    assert clock.now() - datetime(2025, 1, 1, tzinfo=UTC) == timedelta(seconds=2_000)
