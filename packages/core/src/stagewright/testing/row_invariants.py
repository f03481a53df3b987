"""What holds of a run's rows whenever nobody is in the middle of something: runs, stages and jobs.

Each function answers with what is wrong, in words; nothing for rows that agree.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from stagewright.records import (
    AnnotationRecord,
    EventRecord,
    JobRecord,
    RunRecord,
    StepRecord,
    StoredStage,
)
from stagewright.status import ACTIVE_STAGE_STATUSES, TERMINAL_RUN_STATUSES, Status

__all__ = ["RunRows", "job_faults", "repeated", "run_faults", "stage_faults"]

_DONE = (Status.COMPLETED, Status.SKIPPED)
_CLAIMABLE_OR_CLAIMED = (Status.PENDING, Status.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRows:
    """Everything that is kept of one run.

    Attributes:
        queue_is_elsewhere: Whether its jobs live outside the transactions of its other rows, so that one may be behind
            the other for a while.
        stage_ids: The stages of its workflow, group by group; empty where that version isn't known here.
    """

    run: RunRecord
    stages: Sequence[StoredStage] = ()
    jobs: Sequence[JobRecord] = ()
    steps: Sequence[StepRecord] = ()
    events: Sequence[EventRecord] = ()
    annotations: Sequence[AnnotationRecord] = ()
    queue_is_elsewhere: bool = False
    stage_ids: Sequence[Sequence[str]] = field(default=())


def run_faults(rows: RunRows) -> Iterator[str]:
    """A run agrees with itself and with its stages."""
    run = rows.run
    ended = run.status in TERMINAL_RUN_STATUSES
    if run.status in (Status.SUSPENDED, Status.SKIPPED):
        yield f"its status is {run.status}, which no run has"
    if ended is not (run.completed_at is not None):
        yield f"it is {run.status} with completed_at={run.completed_at}"
    if run.status is Status.RUNNING and run.started_at is None:
        yield "it is RUNNING and was never started"
    if run.status is not Status.COMPLETED and run.output is not None:
        yield f"it is {run.status} and has an output"
    if (run.status is Status.FAILED) is not (run.error is not None):
        yield f"it is {run.status} with error={run.error}"
    lasted = None
    if run.started_at is not None and run.completed_at is not None:
        lasted = run.completed_at - run.started_at
    if run.duration != lasted:
        yield f"its duration is {run.duration}, from {run.started_at} to {run.completed_at}"
    if ended:
        yield from (
            f"it is {run.status}, and its stage {stage.stage_id!r} is {stage.status}"
            for stage in rows.stages
            if stage.status in ACTIVE_STAGE_STATUSES
        )
    if run.status is Status.PENDING and rows.stages:
        yield "it is PENDING and has stages"
    if run.status is Status.COMPLETED:
        yield from _missing_stages(rows)


def _missing_stages(rows: RunRows) -> Iterator[str]:
    done = {stage.stage_id for stage in rows.stages if stage.status in _DONE}
    for stage in rows.stages:
        if stage.stage_id not in done:
            yield f"it is COMPLETED, and its stage {stage.stage_id!r} is {stage.status}"
    for stage_id in (stage_id for group in rows.stage_ids for stage_id in group):
        if stage_id not in done:
            yield f"it is COMPLETED without its stage {stage_id!r}"


def stage_faults(rows: RunRows) -> Iterator[str]:
    """Each stage agrees with itself, and a group is there only once all before it are done."""
    yield from repeated("stage", (stage.stage_id for stage in rows.stages))
    for stage in rows.stages:
        for fault in _faults_of_one_stage(stage):
            yield f"its stage {stage.stage_id!r} {fault}"
    groups = sorted({stage.execution_group for stage in rows.stages})
    for stage in rows.stages:
        if groups and stage.execution_group < groups[-1] and stage.status not in _DONE:
            yield (
                f"its stage {stage.stage_id!r} of group {stage.execution_group} is {stage.status}, and group "
                f"{groups[-1]} has begun"
            )


def _faults_of_one_stage(stage: StoredStage) -> Iterator[str]:
    status = stage.status
    if stage.attempt < 1 or stage.version < 1 or stage.stage_number < 1 or stage.execution_group < 1:
        yield (
            f"has attempt {stage.attempt}, version {stage.version}, number {stage.stage_number} and group "
            f"{stage.execution_group}"
        )
    if (status in ACTIVE_STAGE_STATUSES) is not (stage.completed_at is None):
        yield f"is {status} with completed_at={stage.completed_at}"
    if status in (Status.RUNNING, Status.SUSPENDED) and stage.started_at is None:
        yield f"is {status} and was never started"
    if status is Status.COMPLETED and stage.error is not None:
        yield "is COMPLETED with an error"
    if status is Status.FAILED and stage.error is None:
        yield "is FAILED without an error"
    has_output = stage.output is not None or stage.output_claim is not None
    if has_output and status is not Status.COMPLETED:
        yield f"is {status} and has an output"
    if stage.output is not None and stage.output_claim is not None:
        yield "has its output both inline and in the blob store"
    if stage.next_poll_at is not None and status is not Status.SUSPENDED:
        yield f"is {status} and is to be looked at at {stage.next_poll_at}"


def job_faults(rows: RunRows) -> Iterator[str]:
    """Jobs agree with themselves, belong to stages of the run, and no stage waits for a job that isn't there."""
    run = rows.run
    yield from repeated("job of stage", (job.stage_id for job in rows.jobs))
    jobs = {job.stage_id: job for job in rows.jobs}
    stages = {stage.stage_id: stage for stage in rows.stages}
    for job in rows.jobs:
        for fault in _faults_of_one_job(job):
            yield f"the job of its stage {job.stage_id!r} {fault}"
        if job.workflow_id != run.workflow_id:
            yield f"the job of its stage {job.stage_id!r} is of workflow {job.workflow_id!r}"
        waits = job.status in (Status.PENDING, Status.SUSPENDED)
        if waits and job.definition_version != run.definition_version:
            yield (
                f"the job of its stage {job.stage_id!r} is of version {job.definition_version!r}, the run of "
                f"{run.definition_version!r}"
            )
        if job.stage_id not in stages:
            yield f"it has a job for stage {job.stage_id!r}, and no such stage"
        stage = stages.get(job.stage_id)
        # A stage that was executed without its job leaves it behind; whoever claims it settles it.
        was_cut_off = stage is None or stage.status not in (*_DONE, Status.FAILED)
        # A PENDING one was held while its run ended, by a claim or a worker that was lost: the next claim settles it.
        sleeps = job.status is Status.SUSPENDED
        ended = run.status in TERMINAL_RUN_STATUSES
        if ended and sleeps and was_cut_off and not rows.queue_is_elsewhere:
            yield f"it is {run.status}, and the job of its stage {job.stage_id!r} is {job.status}"
    for stage in rows.stages:
        missing = _missing_job(rows, stage, jobs.get(stage.stage_id))
        if run.status is Status.RUNNING and missing is not None:
            yield f"its stage {stage.stage_id!r} {missing}"


def _missing_job(rows: RunRows, stage: StoredStage, job: JobRecord | None) -> str | None:
    """What keeps a stage from ever moving on; a stage whose job is owed is given it by the next maintenance."""
    state = "there is none" if job is None else f"it is {job.status}"
    status = None if job is None else job.status
    resumes = stage.status is Status.SUSPENDED and stage.next_poll_at is None
    if rows.queue_is_elsewhere and status is Status.FAILED:
        return None  # its lease ended for good, and who was to fail the stage may be lost; the stuck reaper finds it
    if stage.status is Status.PENDING or resumes:
        if stage.job_enqueued_at is not None and status not in _CLAIMABLE_OR_CLAIMED:
            return f"is {stage.status} and wants a job that isn't owed to it, and {state}"
    elif rows.queue_is_elsewhere or status is None:
        return None
    elif stage.status is Status.RUNNING and status not in _CLAIMABLE_OR_CLAIMED:
        return f"is RUNNING, and nobody has its job: {state}"
    elif stage.status is Status.SUSPENDED and status in TERMINAL_RUN_STATUSES:
        return f"is SUSPENDED, and its job has ended: {state}"
    return None


def _faults_of_one_job(job: JobRecord) -> Iterator[str]:
    is_running = job.status is Status.RUNNING
    owned = (job.worker_id, job.started_at, job.locked_at)
    if is_running and None in owned:
        yield f"is RUNNING under worker {job.worker_id!r}, since {job.started_at}, held at {job.locked_at}"
    if not is_running and job.locked_at is not None:
        yield f"is {job.status} and has a lease"
    if (job.status in TERMINAL_RUN_STATUSES) is not (job.completed_at is not None):
        yield f"is {job.status} with completed_at={job.completed_at}"
    if job.status not in TERMINAL_RUN_STATUSES:
        if job.failures >= job.max_attempts:
            yield f"is {job.status} after {job.failures} failures of at most {job.max_attempts}"
        if job.worker_losses >= job.max_worker_losses:
            yield f"is {job.status} after {job.worker_losses} lost workers of at most {job.max_worker_losses}"
    if job.worker_losses + job.interruptions + is_running > job.deliveries:
        yield (
            f"was delivered {job.deliveries} times, lost {job.worker_losses} workers and was handed back "
            f"{job.interruptions} times"
        )


def repeated(what: str, names: Iterable[object]) -> Iterator[str]:
    """A fault for each name that comes more than once."""
    for name, count in Counter(names).items():
        if count > 1:
            yield f"{what} {name!r} is there {count} times"
