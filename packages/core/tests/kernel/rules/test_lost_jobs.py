"""What the loss of a job means for its stage: the reason is kept, and the last owner named."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagewright.kernel.rules.lost_jobs import error_of_lost_job
from stagewright.records import JobRecord
from stagewright.status import Status

NOW = datetime(2025, 1, 1, tzinfo=UTC)


def a_job(last_error: str | None, worker_id: str | None = "w7") -> JobRecord:
    return JobRecord(
        id="j",
        run_id="run",
        workflow_id="flow",
        stage_id="s",
        definition_version=None,
        payload={},
        priority=5,
        status=Status.FAILED,
        max_attempts=3,
        max_worker_losses=4,
        worker_losses=4,
        created_at=NOW,
        updated_at=NOW,
        worker_id=worker_id,
        last_error=last_error,
    )


@pytest.mark.parametrize("code", ["LEASE_HEARTBEAT_LOST", "LEASE_ABSOLUTE_CAP"])
def test_a_lost_lease_keeps_its_code_and_names_the_last_owner(code: str) -> None:
    error = error_of_lost_job(a_job(f"{code}: it was silent"))
    assert (error.code, error.stage_id) == (code, "s")
    assert error.message.startswith("it was silent (")
    assert "'w7'" in error.message
    assert ("4 of at most 4" in error.message) is (code == "LEASE_HEARTBEAT_LOST")


@given(st.none() | st.text())
def test_any_other_words_are_kept_as_they_are(said: str | None) -> None:
    error = error_of_lost_job(a_job(said))
    if error.code == "JOB_LOST":
        assert error.message == (said or "its job is FAILED, and nothing says why")
    assert error.message or said == ""
    assert error.stage_id == "s"
