"""Which delivered jobs must not run, for any run and any build."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagewright.kernel.rules.ghosts import ghost_of
from stagewright.records import RunRecord
from stagewright.status import TERMINAL_RUN_STATUSES, Status

MOMENT = datetime(2025, 1, 1, tzinfo=UTC)


def run(status: Status, version: str | None) -> RunRecord:
    return RunRecord(
        id="r",
        workflow_id="f",
        workflow_name="f",
        status=status,
        input=None,
        created_at=MOMENT,
        updated_at=MOMENT,
        definition_version=version,
    )


@given(
    st.sampled_from(list(Status)),
    st.one_of(st.none(), st.sampled_from(["1", "2"])),
    st.sampled_from(["1", "2"]),
)
def test_a_job_runs_only_for_a_running_run_of_this_version(
    status: Status, pinned: str | None, live: str
) -> None:
    runs_here = ghost_of(run(status, pinned), live) is None
    assert runs_here is (status is Status.RUNNING and pinned in (None, live))


@given(st.sampled_from(sorted(TERMINAL_RUN_STATUSES)), st.one_of(st.none(), st.text()), st.text())
def test_nobody_wants_a_job_of_an_ended_run(status: Status, pinned: str | None, live: str) -> None:
    assert ghost_of(run(status, pinned), live) == "orphan"


@pytest.mark.parametrize(
    ("status", "pinned", "expected"),
    [
        (Status.PENDING, "1", "race"),
        (Status.PENDING, None, "race"),
        (Status.PENDING, "2", "version"),
        (Status.RUNNING, "2", "version"),
        (Status.RUNNING, "1", None),
    ],
)
def test_another_version_is_handed_back_before_the_state_is_looked_at(
    status: Status, pinned: str | None, expected: str | None
) -> None:
    assert ghost_of(run(status, pinned), "1") == expected
