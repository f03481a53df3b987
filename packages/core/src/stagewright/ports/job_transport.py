"""Who brings jobs to workers."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable

from stagewright.records import Acknowledgement, DequeuedJob, Fence, JobRecord, LeaseSweep, NewJob, Serves

__all__ = ["JobAdmin", "JobLeases", "JobQueue", "JobTransport"]


class JobQueue(Protocol):
    """Enqueueing, delivering and acknowledging jobs.

    A fence on an acknowledgement makes it apply only while the job is RUNNING under exactly that delivery; otherwise
    nothing is written and the answer is `superseded`, also when the job is gone. Without a fence it always applies,
    and a job that doesn't exist raises `RecordNotFoundError`.

    Inside a transaction an acknowledgement may be held back: it answers `acknowledged` then, and one that turns out to
    be superseded raises `SupersededError` at the latest at commit.

    Jobs that were enqueued by one call count as enqueued one after the other, in the order given.
    """

    async def enqueue_parallel(self, jobs: Sequence[NewJob]) -> list[str]:
        """Make jobs claimable, together.

        There is one job per run and stage: enqueueing for a pair that has one replaces it, whatever its state, by a
        PENDING job with all counters at zero.

        Returns:
            The jobs' ids, in the order given; nothing for nothing.
        """
        ...

    async def dequeue(self, *, worker_id: str, serves: Serves = None, limit: int = 1) -> list[DequeuedJob]:
        """Take up to `limit` PENDING jobs that are due and served.

        Higher priority goes first, then the earlier enqueued. Each becomes RUNNING under `worker_id` with one more
        delivery and a new `started_at`. No two callers get the same job. A store that fails raises; it never answers
        with an empty list.
        """
        ...

    async def complete(self, job_id: str, fence: Fence | None = None) -> Acknowledgement:
        """The stage is done: the job becomes COMPLETED."""
        ...

    async def suspend(
        self, job_id: str, next_poll_at: datetime, fence: Fence | None = None
    ) -> Acknowledgement:
        """The stage waits: the job becomes SUSPENDED, leaves its worker, and keeps `next_poll_at` as its `due_at`."""
        ...

    async def fail(
        self,
        job_id: str,
        error: str,
        *,
        retry: bool,
        delay: timedelta | None = None,
        fence: Fence | None = None,
    ) -> Acknowledgement:
        """The body failed: one more failure, and `error` is kept.

        With `retry` the job becomes PENDING and due after `delay` (None is at once); whether the budget allows that
        is the caller's decision. Without, it becomes FAILED.
        """
        ...

    async def defer(
        self, job_id: str, until: datetime, reason: str, fence: Fence | None = None
    ) -> Acknowledgement:
        """Hand the job back unexecuted: PENDING, due at `until`, one more interruption and no budget spent."""
        ...


class JobLeases(Protocol):
    """Leases of delivered jobs, on the transport's own clock."""

    async def touch(self, job_id: str, fence: Fence) -> bool:
        """Renew the lease; False if this delivery doesn't own the job any more."""
        ...

    async def release_stale(self, threshold: timedelta) -> LeaseSweep:
        """End the leases of RUNNING jobs that were not renewed for longer than `threshold`.

        Each has one more worker loss and a last error that starts with `LEASE_HEARTBEAT_LOST` and names the last
        owner. It becomes PENDING again, or FAILED once it has lost `max_worker_losses` workers.
        """
        ...

    async def expire_runaway(self, absolute_timeout: timedelta) -> list[JobRecord]:
        """Fail RUNNING jobs that were delivered longer ago than `absolute_timeout`, renewed or not.

        Their last error starts with `LEASE_ABSOLUTE_CAP`.
        """
        ...


class JobAdmin(Protocol):
    """Jobs by run."""

    async def cancel_by_run(self, run_id: str) -> int:
        """Make a run's PENDING and SUSPENDED jobs CANCELLED; a RUNNING job is its worker's.

        Jobs that a claimer is taking at this moment are skipped, never waited for.

        Returns:
            How many were cancelled.
        """
        ...

    async def delete_by_run_and_stages(self, run_id: str, stage_ids: Collection[str]) -> int:
        """Delete the jobs of these stages, whatever their state, and return how many there were."""
        ...

    async def get_jobs_by_run(self, run_id: str) -> list[JobRecord]:
        """All jobs of a run, by the time they were enqueued."""
        ...

    async def depth(self) -> int:
        """How many jobs are PENDING and due."""
        ...


@runtime_checkable
class JobTransport(JobQueue, JobLeases, JobAdmin, Protocol):
    """All of a job transport."""
