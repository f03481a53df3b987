"""Jobs as the server keeps them: fields of text, times in microseconds."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias

from stagewright.records import DequeuedJob, Fence, JobRecord, NewJob
from stagewright.status import Status
from stagewright_transport_redis.naming import queue_of

__all__ = [
    "Claim",
    "Fields",
    "claim_of",
    "fence_values",
    "fields_of",
    "micros",
    "new_job_values",
    "record_of",
    "text_of",
]

Fields: TypeAlias = dict[str, str]
"""A job's fields as text; "" or no field at all is nothing."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Claim:
    """What one call of `dequeue.lua` found.

    Attributes:
        jobs: What it took.
        is_more: Whether another call would find more without waiting.
        due_in: In how many seconds the next delayed job is due; None without one.
    """

    jobs: list[DequeuedJob]
    is_more: bool
    due_in: float | None


def text_of(value: Any) -> str:  # Any: bytes, or text where the client was told to decode
    """Text that the server answered."""
    return value.decode("utf-8", "surrogatepass") if isinstance(value, bytes) else str(value)


def micros(moment: datetime) -> int:
    """A moment as microseconds of Unix time, exactly."""
    return (moment - _EPOCH) // _MICROSECOND


def fields_of(answer: Sequence[Any]) -> Fields:
    """The fields of a job from a list of names and values."""
    texts = [text_of(value) for value in answer]
    return dict(zip(texts[::2], texts[1::2], strict=True))


def new_job_values(jobs: Iterable[NewJob], groups: Iterable[str | None]) -> list[str | int]:
    """What `new_jobs.lua` wants to know of jobs."""
    values = list[str | int]()
    for job, group in zip(jobs, groups, strict=True):
        values += (
            job.id,
            job.run_id,
            job.stage_id,
            job.workflow_id,
            queue_of(job.workflow_id, job.definition_version),
            group or "",
            job.priority,
            "" if job.due_at is None else micros(job.due_at),
            job.max_worker_losses,
            _text_of_new(job),
        )
    return values


def fence_values(fence: Fence | None) -> tuple[str | int, str | int]:
    """A fence as scripts compare it."""
    return ("", "") if fence is None else (micros(fence.started_at), fence.deliveries)


def record_of(fields: Fields) -> JobRecord:
    """The job of these fields."""
    job = _Enqueued(*json.loads(fields["text"]))
    return JobRecord(
        id=job.id,
        run_id=job.run_id,
        workflow_id=job.workflow_id,
        stage_id=job.stage_id,
        definition_version=job.definition_version,
        payload=job.payload,
        priority=job.priority,
        status=Status(fields["status"]),
        max_attempts=job.max_attempts,
        max_worker_losses=job.max_worker_losses,
        created_at=_known(int(fields["created_at"])),
        updated_at=_known(int(fields["updated_at"])),
        deliveries=_number(fields, "deliveries"),
        failures=_number(fields, "failures"),
        worker_losses=_number(fields, "worker_losses"),
        interruptions=_number(fields, "interruptions"),
        worker_id=fields.get("worker_id") or None,
        started_at=_moment(fields, "started_at"),
        locked_at=_moment(fields, "locked_at"),
        completed_at=_moment(fields, "completed_at"),
        due_at=_moment(fields, "due_at"),
        last_error=fields.get("last_error"),
    )


def claim_of(answer: bytes | str) -> Claim:
    """What `dequeue.lua` answered."""
    is_more, now, due_at, *jobs = json.loads(answer)
    due_in = None if due_at is None else (due_at - now) / 1_000_000
    return Claim([_dequeued_of(*job) for job in jobs], bool(is_more), due_in)


def _dequeued_of(
    enqueued: list[Any], started_at: int, deliveries: int, failures: int, worker_losses: int
) -> DequeuedJob:
    job = _Enqueued(*enqueued)
    return DequeuedJob(
        job_id=job.id,
        run_id=job.run_id,
        workflow_id=job.workflow_id,
        stage_id=job.stage_id,
        definition_version=job.definition_version,
        payload=job.payload,
        priority=job.priority,
        fence=Fence(started_at=_known(started_at), deliveries=deliveries),
        failures=failures,
        worker_losses=worker_losses,
        max_attempts=job.max_attempts,
        max_worker_losses=job.max_worker_losses,
    )


class _Enqueued(NamedTuple):
    """What a job was enqueued with and keeps, in the order in which its text has it."""

    id: str
    run_id: str
    workflow_id: str
    stage_id: str
    definition_version: str | None
    payload: Any
    priority: int
    max_attempts: int
    max_worker_losses: int


def _text_of_new(job: NewJob) -> str:
    return json.dumps(
        _Enqueued(
            id=job.id,
            run_id=job.run_id,
            workflow_id=job.workflow_id,
            stage_id=job.stage_id,
            definition_version=job.definition_version,
            payload=job.payload,
            priority=job.priority,
            max_attempts=job.max_attempts,
            max_worker_losses=job.max_worker_losses,
        )
    )


def _number(fields: Fields, name: str) -> int:
    return int(fields.get(name) or 0)


def _moment(fields: Fields, name: str) -> datetime | None:
    text = fields.get(name)
    return _known(int(text)) if text else None


def _known(number: int) -> datetime:
    return _EPOCH + timedelta(microseconds=number)
