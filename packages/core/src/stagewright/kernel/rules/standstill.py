"""Whether a run that nothing has changed for long can still be moved by anything."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from stagewright.records import JobRecord, StoredStage
from stagewright.status import ACTIVE_STAGE_STATUSES, Status

__all__ = [
    "Enqueue",
    "FailLost",
    "GiveUp",
    "Keep",
    "MoveOn",
    "Standstill",
    "judge_standstill",
    "stages_without_a_job",
]


@dataclass(frozen=True, slots=True)
class Keep:
    """Something will move it: a job that can be claimed, a worker that is alive, a time that comes."""


@dataclass(frozen=True, slots=True)
class Enqueue:
    """These stages want a job, and there is none to be claimed."""

    stages: tuple[StoredStage, ...]


@dataclass(frozen=True, slots=True)
class FailLost:
    """This stage is RUNNING, and its job has FAILED: its failure was never written down."""

    stage: StoredStage
    job: JobRecord


@dataclass(frozen=True, slots=True)
class MoveOn:
    """No stage is open: what follows from that was never done."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Nothing is left that could move it."""


_LEFT_BEHIND: Final = frozenset({Status.SUSPENDED, Status.COMPLETED, Status.CANCELLED})
"""What a job is whose stage goes on all the same: the transport forgot what came after."""

Standstill: TypeAlias = Keep | Enqueue | FailLost | MoveOn | GiveUp


def judge_standstill(
    stages: Sequence[StoredStage],
    jobs: Mapping[str, JobRecord],
    *,
    alive_since: datetime,
    may_lose_jobs: bool = False,
) -> Standstill:
    """Decide what has become of a run.

    Args:
        stages: The run's stages.
        jobs: Its jobs by stage id.
        alive_since: A worker that renewed its lease after this is alive.
        may_lose_jobs: Whether a stage that is RUNNING without a job, or with one that says otherwise, had one that was
            lost.
    """
    active = [stage for stage in stages if stage.status in ACTIVE_STAGE_STATUSES]
    if not active:
        return MoveOn()
    for stage in active:
        job = jobs.get(stage.stage_id)
        if stage.status is Status.RUNNING and job is not None and job.status is Status.FAILED:
            return FailLost(stage, job)
    jobless = tuple(
        stage
        for stage in active
        if (_wants_a_job(stage) and not _has_job(jobs.get(stage.stage_id)))
        or (may_lose_jobs and stage.status is Status.RUNNING and _is_lost(jobs.get(stage.stage_id)))
    )
    if jobless:
        return Enqueue(jobless)
    if any(_moves(stage, jobs.get(stage.stage_id), alive_since) for stage in active):
        return Keep()
    return GiveUp()


def stages_without_a_job(
    stages: Sequence[StoredStage], jobs: Mapping[str, JobRecord]
) -> tuple[StoredStage, ...]:
    """The stages whose job was given to the transport, which has it no longer, and which can't go on without.

    Args:
        stages: The stages of a run.
        jobs: The jobs that the transport has for them by stage id, read after the stages.
    """
    return tuple(
        stage
        for stage in stages
        if _is_lost(jobs.get(stage.stage_id))
        and stage.job_enqueued_at is not None
        and (_wants_a_job(stage) or stage.status is Status.RUNNING)
    )


def _wants_a_job(stage: StoredStage) -> bool:
    return stage.status is Status.PENDING or (stage.status is Status.SUSPENDED and stage.next_poll_at is None)


def _has_job(job: JobRecord | None) -> bool:
    return job is not None and job.status in (Status.PENDING, Status.RUNNING)


def _is_lost(job: JobRecord | None) -> bool:
    """Whether a stage that is PENDING or RUNNING had another job; one that is FAILED may have failed just now."""
    return job is None or job.status in _LEFT_BEHIND


def _moves(stage: StoredStage, job: JobRecord | None, alive_since: datetime) -> bool:
    if stage.status is Status.SUSPENDED and stage.next_poll_at is not None:
        return True
    if job is None:
        return False
    is_alive = job.status is Status.RUNNING and job.locked_at is not None and job.locked_at > alive_since
    return job.status is Status.PENDING or is_alive
