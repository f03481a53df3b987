"""The pauses between the executions of a step."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagewright.runtime.steps.options import read_options

DEFAULTS: dict[str, Any] = {
    "retries": 0,
    "retry_delay": 0,
    "backoff": None,
    "lease": None,
    "heartbeat": None,
    "on_reclaim": "rerun",
}


@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        ({"retry_delay": "10s"}, [10, 10, 10]),
        ({"retry_delay": "10s", "backoff": 2}, [10, 20, 40]),
        ({"retry_delay": "10s", "backoff": {"factor": 2, "max_delay": "30s"}}, [10, 20, 30]),
        ({"retry_delay": "10s", "backoff": {"max_delay": "5s"}}, [5, 5, 5]),
        ({"retry_delay": "10s", "backoff": {"factor": 2, "jitter": True}}, [2.5, 5, 10]),
        ({"backoff": 2}, [0, 0, 0]),
        ({"retry_delay": "10s", "backoff": {"max_delay": 0}}, [0, 0, 0]),
    ],
)
def test_pauses_grow_as_told(options: dict[str, Any], seconds: list[float]) -> None:
    read = read_options("a", **{**DEFAULTS, **options})
    assert [read.pause_after(attempt, lambda: 0.25).total_seconds() for attempt in (1, 2, 3)] == seconds


@given(
    delay=st.floats(min_value=0, max_value=1e10),
    factor=st.floats(min_value=1, max_value=1e300),
    attempt=st.integers(min_value=1, max_value=1_000_000),
)
def test_pauses_never_overflow(delay: float, factor: float, attempt: int) -> None:
    options: dict[str, Any] = DEFAULTS | {"retry_delay": delay, "backoff": factor}
    read = read_options("a", **options)
    assert timedelta(0) <= read.pause_after(attempt, lambda: 0.999) <= timedelta(days=36_525)
