from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagewright.duration import add_duration, add_within_calendar, parse_duration, subtract_within_calendar
from stagewright.errors import InvalidDurationError

LONGEST = datetime.max.replace(tzinfo=UTC) - datetime.min.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("250ms", timedelta(milliseconds=250)),
        ("30s", timedelta(seconds=30)),
        ("5m", timedelta(minutes=5)),
        ("6h", timedelta(hours=6)),
        ("7d", timedelta(days=7)),
        (" 1.5h ", timedelta(minutes=90)),
        ("0s", timedelta(0)),
        ("400d", timedelta(days=400)),
    ],
)
def test_text_is_a_number_with_one_unit(text: str, expected: timedelta) -> None:
    assert parse_duration(text, field="delay") == expected


@pytest.mark.parametrize("value", [0, 1, 2.5, timedelta(days=400), timedelta(microseconds=1)])
def test_numbers_are_seconds_and_timedeltas_stay(value: float | timedelta) -> None:
    expected = value if isinstance(value, timedelta) else timedelta(seconds=value)
    assert parse_duration(value, field="delay") == expected


@pytest.mark.guarantee("values.durations-bounded")
@pytest.mark.parametrize(
    "value",
    [
        -1,
        -0.001,
        timedelta(seconds=-1),
        float("nan"),
        float("inf"),
        float("-inf"),
        10**12,
        10**400,
        timedelta.max,
        "1h30m",
        "-5s",
        "5 m",
        "5",
        "",
        "٥s",
        "9999999999999d",
        "1e3s",
        True,
        None,
        [],
        b"5s",
    ],
)
def test_what_no_engine_can_keep_is_refused_by_name(value: object) -> None:
    with pytest.raises(InvalidDurationError) as caught:
        parse_duration(value, field="poll_interval")  # type: ignore[arg-type]  # wrong on purpose
    assert caught.value.field == "poll_interval"
    assert "poll_interval" in str(caught.value)


@given(st.floats() | st.integers() | st.timedeltas())
def test_every_number_is_a_bounded_duration_or_a_typed_error(value: float | timedelta) -> None:
    try:
        duration = parse_duration(value, field="delay")
    except InvalidDurationError:
        return
    assert timedelta(0) <= duration <= LONGEST


@given(st.datetimes(timezones=st.just(UTC)), st.timedeltas(min_value=timedelta(0)))
def test_adding_a_duration_stays_in_the_calendar_or_is_a_typed_error(
    moment: datetime, duration: timedelta
) -> None:
    try:
        later = add_duration(moment, duration, field="delay")
    except InvalidDurationError:
        return
    assert later - moment == duration


def test_four_hundred_days_can_be_added_and_the_largest_timedelta_cannot() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    assert add_duration(moment, timedelta(days=400), field="delay") == datetime(2027, 2, 5, tzinfo=UTC)
    with pytest.raises(InvalidDurationError, match="9999"):
        add_duration(moment, timedelta.max, field="delay")


@given(st.datetimes(timezones=st.just(UTC)), st.timedeltas(min_value=timedelta(0)))
def test_what_the_engine_adds_by_itself_ends_with_the_calendar(moment: datetime, duration: timedelta) -> None:
    later = add_within_calendar(moment, duration)
    assert moment <= later
    assert later - moment == duration or later.year == 9999


@given(st.datetimes(timezones=st.just(UTC)), st.timedeltas(min_value=timedelta(0)))
def test_what_the_engine_looks_back_by_ends_with_the_beginning_of_the_calendar(
    moment: datetime, age: timedelta
) -> None:
    earlier = subtract_within_calendar(moment, age)
    assert earlier <= moment
    assert moment - earlier == age or earlier == datetime(1, 1, 1, tzinfo=UTC)
