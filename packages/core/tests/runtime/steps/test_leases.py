"""Whose a step is, by who has it and who asks."""

from datetime import UTC, datetime, timedelta

import pytest

from stagewright.records import StepOwner, StepRecord
from stagewright.runtime.steps.leases import Asker, Free, Held, Standing, Superseded, Void, standing_of

NOW = datetime(2025, 1, 1, tzinfo=UTC)
SOON = NOW + timedelta(seconds=5)


def owner(text: str | None) -> StepOwner | None:
    if text is None:
        return None
    job_id, deliveries = text.split("/")
    return StepOwner(job_id=job_id, deliveries=int(deliveries))


@pytest.mark.parametrize(
    ("has", "attempt", "lease", "asks", "asking_attempt", "standing"),
    [
        # No lease: the owner's until a later delivery, or a later attempt, asks.
        ("j/1", 1, None, "j/2", 1, Void()),
        ("j/2", 1, None, "j/2", 1, Held(SOON)),
        ("j/3", 1, None, "j/2", 1, Superseded()),
        ("j/1", 1, None, "j/2", 2, Void()),
        ("j/5", 1, None, "k/1", 2, Void()),
        ("j/1", 2, None, "k/5", 1, Superseded()),
        ("j/9", 1, None, "k/1", 1, Void()),
        ("k/1", 1, None, "j/9", 1, Superseded()),
        ("j/1", 1, None, None, 1, Held(SOON)),
        ("j/1", 1, None, None, 2, Void()),
        ("j/1", 2, None, None, 1, Superseded()),
        # Given up.
        (None, 1, None, "j/1", 1, Free()),
        (None, 1, None, None, 1, Free()),
        (None, 1, None, "j/1", 2, Free()),
        (None, 2, None, "j/1", 1, Superseded()),
        # An explicit lease is a time, and it has ended when it is equal to now.
        ("j/1", 1, 3, "j/2", 1, Held(NOW + timedelta(seconds=3))),
        ("j/1", 1, 60, "j/2", 1, Held(SOON)),
        ("j/1", 1, 60, "k/1", 2, Held(SOON)),
        ("j/1", 1, 0, "j/2", 1, Void()),
        ("j/1", 1, -1, "j/1", 1, Void()),
        ("j/3", 1, 60, "j/2", 1, Superseded()),
        (None, 1, 60, None, 2, Held(SOON)),
        (None, 1, 0, None, 1, Void()),
    ],
)
def test_whose_a_running_step_is(
    has: str | None,
    attempt: int,
    lease: int | None,
    asks: str | None,
    asking_attempt: int,
    standing: Standing,
) -> None:
    step = StepRecord(
        id="s",
        stage_record_id="r",
        step_id="a",
        seq=1,
        kind="run",
        status="running",
        created_at=NOW,
        updated_at=NOW,
        stage_attempt=attempt,
        owner=owner(has),
        lease_expires_at=None if lease is None else NOW + timedelta(seconds=lease),
    )
    assert standing_of(step, Asker(owner(asks), asking_attempt), NOW) == standing


@pytest.mark.parametrize("lease", [None, timedelta(seconds=1)])
def test_at_the_end_of_the_calendar_a_step_is_looked_at_again_there(lease: timedelta | None) -> None:
    last = datetime(9999, 12, 31, 23, 59, 57, tzinfo=UTC)
    end = last + timedelta(seconds=2)
    step = StepRecord(
        id="s",
        stage_record_id="r",
        step_id="a",
        seq=1,
        kind="run",
        status="running",
        created_at=NOW,
        updated_at=NOW,
        stage_attempt=1,
        owner=owner("j/1"),
        lease_expires_at=None if lease is None else last + lease,
    )
    expected = Held(end if lease is None else last + lease)
    assert standing_of(step, Asker(owner("j/1"), 1), last) == expected
