"""Whether a run that stands still can be moved by anything, for any mix of stages and jobs."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import assume, given
from hypothesis import strategies as st

from stagewright.kernel.rules.standstill import Enqueue, FailLost, GiveUp, Keep, MoveOn, judge_standstill
from stagewright.records import JobRecord, StoredStage
from stagewright.status import ACTIVE_STAGE_STATUSES, Status

NOW = datetime(2025, 1, 1, tzinfo=UTC)
ALIVE_SINCE = NOW - timedelta(minutes=5)
MOMENTS = st.none() | st.integers(-600, 600).map(lambda seconds: NOW + timedelta(seconds=seconds))
JOB_STATUSES = st.sampled_from(
    [
        Status.PENDING,
        Status.RUNNING,
        Status.SUSPENDED,
        Status.COMPLETED,
        Status.FAILED,
        Status.CANCELLED,
    ]
)


@st.composite
def stages(draw: st.DrawFn) -> list[StoredStage]:
    count = draw(st.integers(0, 4))
    return [
        StoredStage(
            id=f"r{number}",
            run_id="run",
            stage_id=f"s{number}",
            stage_name="S",
            stage_number=number + 1,
            execution_group=1,
            created_at=NOW,
            updated_at=NOW,
            status=draw(st.sampled_from(list(Status))),
            next_poll_at=draw(MOMENTS),
        )
        for number in range(count)
    ]


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, JobRecord]:
    present = draw(st.sets(st.integers(0, 3)))
    found = {}
    for number in present:
        status = draw(JOB_STATUSES)
        found[f"s{number}"] = JobRecord(
            id=f"j{number}",
            run_id="run",
            workflow_id="flow",
            stage_id=f"s{number}",
            definition_version=None,
            payload={},
            priority=5,
            status=status,
            max_attempts=3,
            max_worker_losses=3,
            created_at=NOW,
            updated_at=NOW,
            locked_at=draw(MOMENTS) if status is Status.RUNNING else None,
        )
    return found


@given(stages(), jobs())
def test_a_run_without_an_open_stage_moves_on_and_no_other(
    stages: list[StoredStage], jobs: dict[str, JobRecord]
) -> None:
    is_open = any(stage.status in ACTIVE_STAGE_STATUSES for stage in stages)
    verdict = judge_standstill(stages, jobs, alive_since=ALIVE_SINCE)
    assert isinstance(verdict, MoveOn) is not is_open


def could_move(stage: StoredStage, job: JobRecord | None) -> bool:
    if stage.status not in ACTIVE_STAGE_STATUSES:
        return False
    if stage.status is Status.SUSPENDED and stage.next_poll_at is not None:
        return True
    if job is None:
        return False
    is_alive = job.status is Status.RUNNING and job.locked_at is not None and job.locked_at > ALIVE_SINCE
    return job.status is Status.PENDING or is_alive


@given(stages(), jobs())
def test_a_run_is_given_up_only_if_nothing_is_left_that_could_move_it(
    stages: list[StoredStage], jobs: dict[str, JobRecord]
) -> None:
    movable = any(could_move(stage, jobs.get(stage.stage_id)) for stage in stages)
    verdict = judge_standstill(stages, jobs, alive_since=ALIVE_SINCE)
    assert not (movable and isinstance(verdict, GiveUp))
    assert movable or not isinstance(verdict, Keep)


@given(stages(), jobs())
def test_a_job_is_enqueued_for_stages_that_want_one_and_have_none(
    stages: list[StoredStage], jobs: dict[str, JobRecord]
) -> None:
    def wants_and_has_none(stage: StoredStage) -> bool:
        job = jobs.get(stage.stage_id)
        resumes = stage.status is Status.SUSPENDED and stage.next_poll_at is None
        has_one = job is not None and job.status in (Status.PENDING, Status.RUNNING)
        return (stage.status is Status.PENDING or resumes) and not has_one

    verdict = judge_standstill(stages, jobs, alive_since=ALIVE_SINCE)
    if not isinstance(verdict, FailLost):
        wanting = tuple(filter(wants_and_has_none, stages))
        assert (verdict.stages if isinstance(verdict, Enqueue) else ()) == wanting


@given(stages(), jobs())
def test_a_stage_whose_failure_was_never_written_down_fails_before_anything_else(
    stages: list[StoredStage], jobs: dict[str, JobRecord]
) -> None:
    lost = [
        stage
        for stage in stages
        if stage.status is Status.RUNNING
        and stage.stage_id in jobs
        and jobs[stage.stage_id].status is Status.FAILED
    ]
    verdict = judge_standstill(stages, jobs, alive_since=ALIVE_SINCE)
    assert isinstance(verdict, FailLost) is bool(lost)
    if isinstance(verdict, FailLost):
        assert verdict.stage in lost
        assert verdict.job is jobs[verdict.stage.stage_id]


@given(jobs(), st.integers(300, 10**8))
def test_a_worker_that_comes_back_to_life_keeps_its_run(jobs: dict[str, JobRecord], silent_for: int) -> None:
    stage = StoredStage(
        id="r0",
        run_id="run",
        stage_id="s0",
        stage_name="S",
        stage_number=1,
        execution_group=1,
        created_at=NOW,
        updated_at=NOW,
        status=Status.RUNNING,
    )
    template = next(iter(jobs.values()), None)
    assume(template is not None)
    assert template is not None
    last_seen = NOW - timedelta(seconds=silent_for)
    silent = replace(template, stage_id="s0", status=Status.RUNNING, locked_at=last_seen)
    assert judge_standstill([stage], {"s0": silent}, alive_since=ALIVE_SINCE) == GiveUp()
    beating = replace(silent, locked_at=NOW)
    assert judge_standstill([stage], {"s0": beating}, alive_since=ALIVE_SINCE) == Keep()
