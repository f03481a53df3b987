import copy
import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stagewright.duration import Duration
from stagewright.errors import InvalidSettingError
from stagewright.presigned_urls import PresignedUrl, seconds_to_sign

END = datetime(2031, 2, 3, 4, 5, 6, tzinfo=UTC)


def test_a_url_is_a_text_that_says_its_end_and_is_not_shown_in_passing() -> None:
    url = PresignedUrl("https://storage.example/bucket/k?signature=hidden", END)
    assert url == "https://storage.example/bucket/k?signature=hidden"
    assert url.expires_at == END
    assert (
        repr(url)
        == "PresignedUrl('https://storage.example/bucket/k?***', expires_at=2031-02-03T04:05:06+00:00)"
    )
    for twin in (pickle.loads(pickle.dumps(url)), copy.deepcopy(url)):
        assert (twin, twin.expires_at) == (url, END)


@pytest.mark.parametrize(
    ("expires", "at_most", "seconds"),
    [
        ("1h", timedelta(days=9), 3_600),
        ("1ms", timedelta(days=9), 1),
        (90, timedelta(days=9), 90),
        (0.5, timedelta(days=9), 1),
        (timedelta(milliseconds=1), timedelta(days=9), 1),
        (timedelta(seconds=1), timedelta(days=9), 1),
        (timedelta(seconds=1.001), timedelta(days=9), 2),
        (timedelta(days=7), timedelta(days=9), 604_800),
        (timedelta(hours=1), timedelta(minutes=1.999), 119),
        (timedelta(hours=1), timedelta(seconds=0.5), 0),
        (timedelta(hours=1), timedelta(seconds=-5), -5),
    ],
)
def test_the_shorter_life_counts(expires: Duration, at_most: timedelta, seconds: int) -> None:
    assert seconds_to_sign(expires, at_most=at_most) == seconds


@pytest.mark.parametrize(
    "expires",
    [
        *(timedelta(0), timedelta(seconds=-1), timedelta(days=7, microseconds=1)),
        *("0s", "8d", 0, -1, 604_801, float("nan"), float("inf")),
        *("soon", "1w", "", None, True, b"1h"),
    ],
)
def test_what_is_no_time_and_too_much_are_refused(expires: Any) -> None:
    with pytest.raises(InvalidSettingError, match="no more than 7 days"):
        seconds_to_sign(expires)
