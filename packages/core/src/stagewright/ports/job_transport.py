"""Who brings jobs to workers."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable

from stagewright.records import (
    Acknowledgement,
    DequeuedJob,
    Fence,
    JobQuery,
    JobRecord,
    LeaseSweep,
    NewJob,
    Page,
    Serves,
)

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

    async def resume(self, jobs: Sequence[NewJob]) -> list[JobRecord]:
        """Make the jobs of stages that wait no longer claimable, each at most once however often it is asked for.

        A job that is SUSPENDED becomes PENDING and due at once, with its id and all its counters. One that is missing
        or has ended is enqueued anew, as by `enqueue_parallel`. One that is PENDING or RUNNING is left alone, and so is
        one that another transaction is settling at this moment: it isn't waited for.

        Returns:
            The jobs of these runs and stages as they stand now, in the order given. Only one that is PENDING is sure to
            be delivered; of any other it has to be asked again.
        """
        ...

    async def dequeue(self, *, worker_id: str, serves: Serves = None, limit: int = 1) -> list[DequeuedJob]:
        """Take up to `limit` PENDING jobs that are due and served.

        Higher priority goes first, then the earlier enqueued. Each becomes RUNNING under `worker_id` with one more
        delivery and a new `started_at`. No two callers get the same job. A store that fails raises; it never answers
        with an empty list. What a transport with fairness does besides is said by `GroupsJobs`.
        """
        ...

    async def complete(self, job_id: str, fence: Fence | None = None) -> Acknowledgement:
        """The stage is done: the job becomes COMPLETED, and its `due_at` None."""
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
        is the caller's decision. Without, it becomes FAILED, and its `due_at` None.
        """
        ...

    async def defer(
        self, job_id: str, until: datetime, reason: str, fence: Fence | None = None
    ) -> Acknowledgement:
        """Hand the job back unexecuted: PENDING, due at `until`, one more interruption and no budget spent."""
        ...


class JobLeases(Protocol):
    """Leases of delivered jobs, on the transport's own clock; jobs are answered by the time they were enqueued."""

    async def touch(self, job_id: str, fence: Fence) -> bool:
        """Renew the lease, and change nothing else of the job; False if this delivery doesn't own it any more."""
        ...

    async def release_stale(self, threshold: timedelta) -> LeaseSweep:
        """End the leases of RUNNING jobs that were not renewed for longer than `threshold`.

        Each has one more worker loss, and the last error `LEASE_HEARTBEAT_LOST: not renewed by worker w1` with the
        name of the last owner, which the errors of stages and runs quote. It becomes PENDING again, or FAILED once it
        has lost `max_worker_losses` workers.
        """
        ...

    async def expire_runaway(self, absolute_timeout: timedelta) -> list[JobRecord]:
        """Fail RUNNING jobs that were delivered longer ago than `absolute_timeout`, renewed or not.

        Their last error is `LEASE_ABSOLUTE_CAP: still running 60 s after it was delivered`, with the timeout in it.
        """
        ...


class JobAdmin(Protocol):
    """Jobs by run, and jobs for people to look at."""

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

    async def list_jobs(self, query: JobQuery, *, limit: int, cursor: str | None = None) -> Page[JobRecord]:
        """Jobs by the time they were enqueued, the newest first, up to `limit` of them. Nothing is locked.

        Following `next_cursor` shows every job that existed at the start exactly once, also while jobs are enqueued and
        delivered; one that is enqueued anew meanwhile is a new one.

        Raises:
            InvalidCursorError: If the cursor was not given by this method.
        """
        ...

    async def depth(self) -> int:
        """How many jobs are PENDING and due."""
        ...


@runtime_checkable
class JobTransport(JobQueue, JobLeases, JobAdmin, Protocol):
    """All of a job transport."""
