"""Jobs as the server keeps them: fields of text, times in microseconds."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from stagewright.records import DequeuedJob, Fence, JobRecord, NewJob
from stagewright.status import Status
from stagewright_transport_redis.naming import queue_of

__all__ = [
    "Fields",
    "dequeued_of",
    "fence_values",
    "fields_of",
    "micros",
    "moment",
    "new_job_values",
    "record_of",
    "text_of",
]

Fields: TypeAlias = dict[str, str]
"""A job's fields as text; "" is nothing."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def text_of(value: Any) -> str:  # Any: bytes, or text where the client was told to decode
    """Text that the server answered."""
    return value.decode("utf-8", "surrogatepass") if isinstance(value, bytes) else str(value)


def micros(moment: datetime) -> int:
    """A moment as microseconds of Unix time, exactly."""
    return (moment - _EPOCH) // _MICROSECOND


def moment(text: str) -> datetime | None:
    """The moment of so many microseconds of Unix time; None for nothing."""
    return _EPOCH + int(text) * _MICROSECOND if text else None


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
            job.definition_version or "",
            int(job.definition_version is not None),
            json.dumps(job.payload),
            job.priority,
            "" if job.due_at is None else micros(job.due_at),
            job.max_attempts,
            job.max_worker_losses,
            group or "",
            queue_of(job.workflow_id, job.definition_version),
        )
    return values


def fence_values(fence: Fence | None) -> tuple[str | int, str | int]:
    """A fence as scripts compare it."""
    return ("", "") if fence is None else (micros(fence.started_at), fence.deliveries)


def record_of(fields: Fields) -> JobRecord:
    """The job of these fields."""
    return JobRecord(
        id=fields["id"],
        run_id=fields["run_id"],
        workflow_id=fields["workflow_id"],
        stage_id=fields["stage_id"],
        definition_version=_version(fields),
        payload=json.loads(fields["payload"]),
        priority=int(fields["priority"]),
        status=Status(fields["status"]),
        max_attempts=int(fields["max_attempts"]),
        max_worker_losses=int(fields["max_worker_losses"]),
        created_at=_known(fields["created_at"]),
        updated_at=_known(fields["updated_at"]),
        deliveries=int(fields["deliveries"]),
        failures=int(fields["failures"]),
        worker_losses=int(fields["worker_losses"]),
        interruptions=int(fields["interruptions"]),
        worker_id=fields["worker_id"] or None,
        started_at=moment(fields["started_at"]),
        locked_at=moment(fields["locked_at"]),
        completed_at=moment(fields["completed_at"]),
        due_at=moment(fields["due_at"]),
        last_error=fields["last_error"] if fields["has_error"] == "1" else None,
    )


def dequeued_of(fields: Fields) -> DequeuedJob:
    """The delivery of a job with these fields."""
    return DequeuedJob(
        job_id=fields["id"],
        run_id=fields["run_id"],
        workflow_id=fields["workflow_id"],
        stage_id=fields["stage_id"],
        definition_version=_version(fields),
        payload=json.loads(fields["payload"]),
        priority=int(fields["priority"]),
        fence=Fence(started_at=_known(fields["started_at"]), deliveries=int(fields["deliveries"])),
        failures=int(fields["failures"]),
        worker_losses=int(fields["worker_losses"]),
        max_attempts=int(fields["max_attempts"]),
        max_worker_losses=int(fields["max_worker_losses"]),
    )


def _version(fields: Fields) -> str | None:
    return fields["definition_version"] if fields["is_pinned"] == "1" else None


def _known(text: str) -> datetime:
    return _EPOCH + int(text) * _MICROSECOND
