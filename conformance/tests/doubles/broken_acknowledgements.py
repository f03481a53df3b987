"""Job transports with one clause about acknowledgements or leases broken; collected by an inner run alone."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from stagewright.memory import InMemoryJobTransport
from stagewright.records import (
    Acknowledgement,
    Fence,
    LeaseSweep,
    NewJob,
)
from stagewright_conformance import (
    JobAcknowledgementSuite,
    JobAdminSuite,
    JobFenceSuite,
    JobLeaseSuite,
)
from stagewright_test_support.doubles import TransportDoubles


class IgnoresFences(InMemoryJobTransport):
    """A worker that lost its job completes it."""

    async def complete(self, job_id: str, fence: Fence | None = None) -> Acknowledgement:
        return await super().complete(job_id)


class TestIgnoresFences(TransportDoubles, JobFenceSuite):
    double = IgnoresFences


class WritesWhenSuperseded(InMemoryJobTransport):
    """A superseded worker is told so, and its outcome is written."""

    async def suspend(
        self, job_id: str, next_poll_at: datetime, fence: Fence | None = None
    ) -> Acknowledgement:
        answer = await super().suspend(job_id, next_poll_at, fence)
        if answer == "superseded" and await self._exists(job_id):
            await super().suspend(job_id, next_poll_at)
        return answer

    async def _exists(self, job_id: str) -> bool:
        async with self._statement("look") as tx:
            return tx.first(self.database.jobs, "id", job_id) is not None


class TestWritesWhenSuperseded(TransportDoubles, JobFenceSuite):
    double = WritesWhenSuperseded


class ComparesHalfTheFence(InMemoryJobTransport):
    """The number of deliveries is compared, the time of the delivery isn't."""

    async def complete(self, job_id: str, fence: Fence | None = None) -> Acknowledgement:
        async with self._statement("look") as tx:
            row = tx.first(self.database.jobs, "id", job_id)
        if fence is not None and row is not None and row.record.started_at is not None:
            fence = replace(fence, started_at=row.record.started_at)
        return await super().complete(job_id, fence)


class TestComparesHalfTheFence(TransportDoubles, JobFenceSuite):
    double = ComparesHalfTheFence


class DeferSpendsAnAttempt(InMemoryJobTransport):
    """Handing a job back counts as a failure."""

    async def defer(
        self, job_id: str, until: datetime, reason: str, fence: Fence | None = None
    ) -> Acknowledgement:
        return await super().fail(job_id, reason, retry=True, delay=until - self._clock.now(), fence=fence)


class TestDeferSpendsAnAttempt(TransportDoubles, JobAcknowledgementSuite):
    double = DeferSpendsAnAttempt


class RetriesAtOnce(InMemoryJobTransport):
    """A failed job doesn't wait for its delay."""

    async def fail(
        self, job_id: str, error: str, *, retry: bool, delay: timedelta | None = None, fence: Fence | None = None
    ) -> Acknowledgement:  # fmt: skip
        return await super().fail(job_id, error, retry=retry, fence=fence)


class TestRetriesAtOnce(TransportDoubles, JobAcknowledgementSuite):
    double = RetriesAtOnce


class ReleasesRenewedLeases(InMemoryJobTransport):
    """A renewed lease is lost all the same."""

    async def release_stale(self, threshold: timedelta) -> LeaseSweep:
        return await super().release_stale(timedelta(microseconds=-1))


class TestReleasesRenewedLeases(TransportDoubles, JobLeaseSuite):
    double = ReleasesRenewedLeases


class RenewsForAnybody(InMemoryJobTransport):
    """Touching is always told to have worked."""

    async def touch(self, job_id: str, fence: Fence) -> bool:
        await super().touch(job_id, fence)
        return True


class TestRenewsForAnybody(TransportDoubles, JobLeaseSuite):
    double = RenewsForAnybody


class RevivesForEver(InMemoryJobTransport):
    """A job may lose any number of workers."""

    async def enqueue_parallel(self, jobs: Sequence[NewJob]) -> list[str]:
        return await super().enqueue_parallel([replace(job, max_worker_losses=99) for job in jobs])


class TestRevivesForEver(TransportDoubles, JobLeaseSuite):
    double = RevivesForEver


class DeletesOtherRuns(InMemoryJobTransport):
    """Deleting nothing of a run deletes all of it."""

    async def delete_by_run_and_stages(self, run_id: str, stage_ids: Collection[str]) -> int:
        if not stage_ids:
            stage_ids = [job.stage_id for job in await self.get_jobs_by_run(run_id)]
        return await super().delete_by_run_and_stages(run_id, stage_ids)


class TestDeletesOtherRuns(TransportDoubles, JobAdminSuite):
    double = DeletesOtherRuns
