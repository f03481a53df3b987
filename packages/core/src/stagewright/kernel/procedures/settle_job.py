"""Acknowledging the job that an outcome answers."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from stagewright.errors import SupersededError
from stagewright.kernel.procedures.execution import JobRef
from stagewright.kernel.unit_of_work import UnitOfWork
from stagewright.ports import JobLeases, JobQueue
from stagewright.records import Acknowledgement

__all__ = ["Settlement", "acknowledge", "require_owned", "settle_job"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What becomes of the job.

    Attributes:
        kind: Which acknowledgement it gets.
        error: With `fail`: why.
        retry: With `fail`: whether it is delivered again.
        delay: With `retry`: after how long.
        next_poll_at: With `suspend`: when the stage is looked at next.
    """

    kind: Literal["complete", "suspend", "fail"]
    error: str = ""
    retry: bool = False
    delay: timedelta | None = None
    next_poll_at: datetime | None = None


async def settle_job(unit: UnitOfWork, job: JobRef | None, settlement: Settlement) -> None:
    """Acknowledge in this transaction where the transport takes part, else after its commit.

    Raises:
        SupersededError: If the delivery doesn't own the job any more.
    """
    if job is None:
        return
    if unit.jobs is None:
        transport = unit.ports.job_transport
        unit.after_commit(lambda: acknowledge(transport, job, settlement))
    elif await acknowledge(unit.jobs, job, settlement) == "superseded":
        raise SupersededError(job.job_id)


async def acknowledge(queue: JobQueue, job: JobRef, settlement: Settlement) -> Acknowledgement:
    """Give a job the acknowledgement that its settlement says."""
    match settlement.kind:
        case "complete":
            return await queue.complete(job.job_id, job.fence)
        case "suspend":
            assert settlement.next_poll_at is not None  # a suspension says when it is looked at
            return await queue.suspend(job.job_id, settlement.next_poll_at, job.fence)
        case "fail":
            return await queue.fail(
                job.job_id, settlement.error, retry=settlement.retry, delay=settlement.delay, fence=job.fence
            )


async def require_owned(leases: JobLeases, job: JobRef) -> None:
    """Refuse a delivery that isn't the job's last one.

    Raises:
        SupersededError: If the delivery doesn't own the job any more.
    """
    if not await leases.touch(job.job_id, job.fence):
        raise SupersededError(job.job_id)
