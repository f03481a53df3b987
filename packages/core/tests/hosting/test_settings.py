from datetime import timedelta
from typing import Any

import pytest

from stagewright.errors import InvalidDurationError, InvalidSettingError
from stagewright.hosting import HOST_DEFAULTS, HostSettings, Retention
from stagewright.status import TERMINAL_RUN_STATUSES, Status


def test_the_defaults_find_a_lost_worker_in_under_a_minute() -> None:
    found = HOST_DEFAULTS.stale_lease_threshold + HOST_DEFAULTS.orchestration_interval
    assert found < timedelta(minutes=1)
    assert HOST_DEFAULTS.job_heartbeat_interval * 4 < HOST_DEFAULTS.stale_lease_threshold


def test_durations_are_given_in_any_form_and_none_keeps_what_there_is() -> None:
    settings = HOST_DEFAULTS.having({"poll_interval": "250ms", "abort_grace": 2, "shutdown_timeout": None})
    assert settings.poll_interval == timedelta(milliseconds=250)
    assert settings.abort_grace == timedelta(seconds=2)
    assert settings.shutdown_timeout == HOST_DEFAULTS.shutdown_timeout
    assert HOST_DEFAULTS.poll_interval == timedelta(seconds=1)


def test_a_name_that_is_no_setting_is_refused_with_those_that_are() -> None:
    with pytest.raises(InvalidSettingError, match=r"pol_interval=1 is no setting .*poll_interval"):
        HOST_DEFAULTS.having({"pol_interval": 1})


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"concurrency": 0}, InvalidSettingError),
        ({"concurrency": True}, InvalidSettingError),
        ({"max_suspended_checks_per_tick": -1}, InvalidSettingError),
        ({"max_outbox_flush_per_tick": 2.0}, InvalidSettingError),
        ({"worker_id": ""}, InvalidSettingError),
        ({"worker_id": "x" * 256}, InvalidSettingError),
        ({"serves": "none"}, InvalidSettingError),
        ({"serves": ["h"]}, InvalidSettingError),
        ({"serves": [("h", "1")]}, InvalidSettingError),
        ({"serves": 5}, InvalidSettingError),
        ({"max_claims_per_tick": 10**30}, InvalidSettingError),
        ({"orchestration_interval": 0}, InvalidDurationError),
        ({"stale_lease_threshold": "5 minutes"}, InvalidDurationError),
        ({"job_heartbeat_interval": "23s"}, InvalidSettingError),
    ],
)
def test_what_no_host_could_work_with_is_refused_by_name(
    given: dict[str, Any], error: type[Exception]
) -> None:
    [name] = given
    with pytest.raises(error, match=f"{name}="):
        HOST_DEFAULTS.having(given)


def test_a_cap_of_zero_is_none_and_stuck_is_long_after_stale() -> None:
    assert HostSettings(job_absolute_timeout=timedelta(0)).absolute_timeout is None
    assert HOST_DEFAULTS.absolute_timeout == timedelta(hours=1)
    assert HOST_DEFAULTS.stuck_threshold == timedelta(minutes=5)
    assert HostSettings(stale_lease_threshold=timedelta(minutes=10)).stuck_threshold == timedelta(minutes=30)


def test_a_retention_is_off_by_default_and_given_in_any_form() -> None:
    assert HOST_DEFAULTS.retention is None
    month = Retention(older_than=timedelta(days=30))
    assert frozenset(month.statuses) == TERMINAL_RUN_STATUSES
    assert month.limit == 100
    for given in ("30d", timedelta(days=30), {"older_than": "30d"}, month):
        assert HOST_DEFAULTS.having({"retention": given}).retention == month
    failed = {"older_than": "6h", "statuses": ["FAILED"], "limit": 7}
    expected = Retention(older_than=timedelta(hours=6), statuses=(Status.FAILED,), limit=7)
    assert HOST_DEFAULTS.having({"retention": failed}).retention == expected


@pytest.mark.parametrize(
    ("given", "error", "problem"),
    [
        ("a month", InvalidDurationError, "retention="),
        (30, InvalidDurationError, 'retention=30 has no unit; write for instance "30d"'),
        (0.5, InvalidDurationError, "retention=0.5 has no unit"),
        ("30", InvalidDurationError, "retention='30' has no unit"),
        (timedelta(-1), InvalidDurationError, "retention="),
        ({"older_than": "x"}, InvalidDurationError, r"retention\.older_than="),
        ({}, InvalidSettingError, "needs older_than"),
        ({"older_then": "3d"}, InvalidSettingError, "has no 'older_then'"),
        ({"older_than": "3d", "limit": 0}, InvalidSettingError, r"retention\.limit=0"),
        (
            {"older_than": "3d", "limit": 10**30},
            InvalidSettingError,
            r"retention\.limit=.* at most 1,000,000",
        ),
        ({"older_than": "3d", "limit": True}, InvalidSettingError, r"retention\.limit=True"),
        (
            {"older_than": "3d", "statuses": ["RUNNING"]},
            InvalidSettingError,
            r"retention\.statuses='RUNNING'",
        ),
        ({"older_than": "3d", "statuses": "FAILED"}, InvalidSettingError, r"retention\.statuses='FAILED'"),
        ({"older_than": "3d", "statuses": []}, InvalidSettingError, r"retention\.statuses="),
    ],
)
def test_a_retention_that_makes_no_sense_is_refused_by_name(
    given: object, error: type[Exception], problem: str
) -> None:
    with pytest.raises(error, match=problem):
        HOST_DEFAULTS.having({"retention": given})


def test_settings_take_nothing_for_a_retention_that_is_none() -> None:
    odd: Any = "30d"
    with pytest.raises(InvalidSettingError, match="retention="):
        HostSettings(retention=odd)


def test_an_interval_of_nothing_is_shown_as_people_write_it() -> None:
    with pytest.raises(InvalidDurationError, match=r"^poll_interval='0:00:00' must be longer than nothing$"):
        HOST_DEFAULTS.having({"poll_interval": 0})
