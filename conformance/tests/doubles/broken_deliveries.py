"""Job transports whose deliveries at once have one clause broken; collected by an inner run alone."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from stagewright.memory import InMemoryDatabase, InMemoryJobTransport
from stagewright.memory.heartbeats import InMemoryHeartbeats
from stagewright.records import Acknowledgement, DequeuedJob, Fence, HeldLease, JobRecord, NewJob
from stagewright.status import Status
from stagewright_conformance import DeliveredJobEnlistmentSuite, DeliveredJobSuite
from stagewright_test_support.doubles import TransportDoubles


class Patched(InMemoryJobTransport):
    """Changes what was delivered before anybody sees it."""

    @staticmethod
    def patched(record: JobRecord, job: NewJob, old: JobRecord | None) -> JobRecord:
        """The job, wrongly."""
        raise NotImplementedError

    async def enqueue_delivered(self, jobs: Sequence[NewJob], *, worker_id: str) -> list[DequeuedJob]:
        async with self.transaction() as inner:
            before = {job.id: await _standing(inner, job) for job in jobs}
            taken = await InMemoryJobTransport.enqueue_delivered(inner, jobs, worker_id=worker_id)
            async with inner._statement("patch") as tx:
                for job in jobs:
                    row = tx.get(self._database.jobs, (job.run_id, job.stage_id))
                    assert row is not None
                    record = self.patched(row.record, job, before[job.id])
                    tx.put(self._database.jobs, replace(row, record=record))
        return taken


async def _standing(transport: InMemoryJobTransport, job: NewJob) -> JobRecord | None:
    jobs = await transport.get_jobs_by_run(job.run_id)
    return next((each for each in jobs if each.stage_id == job.stage_id), None)


class KeepsDueTimes(Patched):
    """The time at which the job would have been due is kept."""

    @staticmethod
    def patched(record: JobRecord, job: NewJob, old: JobRecord | None) -> JobRecord:
        return replace(record, due_at=job.due_at)


class TestKeepsDueTimes(TransportDoubles, DeliveredJobSuite):
    double = KeepsDueTimes


class KeepsFailures(Patched):
    """A replaced job's failures count against its successor."""

    @staticmethod
    def patched(record: JobRecord, job: NewJob, old: JobRecord | None) -> JobRecord:
        return record if old is None else replace(record, failures=old.failures)


class TestKeepsFailures(TransportDoubles, DeliveredJobSuite):
    double = KeepsFailures


class DeliversToNobody(Patched):
    """The job doesn't say whose it is."""

    @staticmethod
    def patched(record: JobRecord, job: NewJob, old: JobRecord | None) -> JobRecord:
        return replace(record, worker_id=None)


class TestDeliversToNobody(TransportDoubles, DeliveredJobSuite):
    double = DeliversToNobody


class CountsNoDelivery(InMemoryJobTransport):
    """Only a claim counts as a delivery."""

    async def enqueue_delivered(self, jobs: Sequence[NewJob], *, worker_id: str) -> list[DequeuedJob]:
        taken = await super().enqueue_delivered(jobs, worker_id=worker_id)
        async with self._statement("count") as tx:
            for job in jobs:
                row = tx.get(self._database.jobs, (job.run_id, job.stage_id))
                assert row is not None
                tx.put(self._database.jobs, replace(row, record=replace(row.record, deliveries=0)))
        return [replace(job, fence=replace(job.fence, deliveries=0)) for job in taken]


class TestCountsNoDelivery(TransportDoubles, DeliveredJobSuite):
    double = CountsNoDelivery


class BeginsLeasesEarly(Patched):
    """The lease began when the transport was made."""

    @staticmethod
    def patched(record: JobRecord, job: NewJob, old: JobRecord | None) -> JobRecord:
        return replace(record, locked_at=datetime(2031, 1, 1, tzinfo=UTC))


class TestBeginsLeasesEarly(TransportDoubles, DeliveredJobSuite):
    double = BeginsLeasesEarly


class HasNoLease(Patched):
    """Nothing says since when the job is held, and no sweep finds it."""

    @staticmethod
    def patched(record: JobRecord, job: NewJob, old: JobRecord | None) -> JobRecord:
        return replace(record, locked_at=None)


class TestHasNoLease(TransportDoubles, DeliveredJobSuite):
    double = HasNoLease


class NeverRunsAway(InMemoryJobTransport):
    """The cap on how long a job runs is for those that were claimed."""

    async def expire_runaway(self, absolute_timeout: timedelta) -> list[JobRecord]:
        running = self._database.jobs.all().values()
        if any(row.record.deliveries == 1 for row in running):
            return []
        return await super().expire_runaway(absolute_timeout)


class TestNeverRunsAway(TransportDoubles, DeliveredJobSuite):
    double = NeverRunsAway


class ShowsThemFirst(InMemoryJobTransport):
    """The job is claimable for a moment."""

    async def enqueue_delivered(self, jobs: Sequence[NewJob], *, worker_id: str) -> list[DequeuedJob]:
        await self.enqueue_parallel([replace(job, due_at=None) for job in jobs])
        await asyncio.sleep(0)
        return await super().enqueue_delivered(jobs, worker_id=worker_id)


class TestShowsThemFirst(TransportDoubles, DeliveredJobSuite):
    double = ShowsThemFirst


class PutsThemIntoTheQueue(InMemoryJobTransport):
    """Whatever is first in the queue is delivered."""

    async def enqueue_delivered(self, jobs: Sequence[NewJob], *, worker_id: str) -> list[DequeuedJob]:
        async with self.transaction() as tx:
            await tx.enqueue_parallel([replace(job, due_at=None) for job in jobs])
            return await tx.dequeue(worker_id=worker_id, limit=len(jobs))


class TestPutsThemIntoTheQueue(TransportDoubles, DeliveredJobSuite):
    double = PutsThemIntoTheQueue


class AnswersByStage(InMemoryJobTransport):
    """The answer comes in the order of the stages' ids."""

    async def enqueue_delivered(self, jobs: Sequence[NewJob], *, worker_id: str) -> list[DequeuedJob]:
        in_order = sorted(jobs, key=lambda job: job.stage_id)
        return await super().enqueue_delivered(in_order, worker_id=worker_id)


class TestAnswersByStage(TransportDoubles, DeliveredJobSuite):
    double = AnswersByStage


class GivesAnotherFence(InMemoryJobTransport):
    """The fence is of when the caller asked, and not of the delivery."""

    async def enqueue_delivered(self, jobs: Sequence[NewJob], *, worker_id: str) -> list[DequeuedJob]:
        taken = await super().enqueue_delivered(jobs, worker_id=worker_id)
        early = timedelta(microseconds=1)
        return [
            replace(job, fence=replace(job.fence, started_at=job.fence.started_at - early)) for job in taken
        ]


class TestGivesAnotherFence(TransportDoubles, DeliveredJobSuite):
    double = GivesAnotherFence


class AsksNoFirstDelivery(InMemoryJobTransport):
    """Any fence of a first delivery settles it."""

    async def complete(self, job_id: str, fence: Fence | None = None) -> Acknowledgement:
        row = next((row for row in self._database.jobs.all().values() if row.record.id == job_id), None)
        first = row is not None and row.record.deliveries == 1 and row.record.status is Status.RUNNING
        return await super().complete(job_id, None if first else fence)


class TestAsksNoFirstDelivery(TransportDoubles, DeliveredJobSuite):
    double = AsksNoFirstDelivery


class RenewsClaimsAlone(InMemoryJobTransport):
    """A lease that no claim began isn't renewed."""

    def __init__(self, database: InMemoryDatabase | None = None) -> None:
        super().__init__(database)
        self.at_once: set[str] = set()

    async def enqueue_delivered(self, jobs: Sequence[NewJob], *, worker_id: str) -> list[DequeuedJob]:
        self.at_once.update(job.id for job in jobs)
        return await super().enqueue_delivered(jobs, worker_id=worker_id)

    async def touch(self, job_id: str, fence: Fence) -> bool:
        return job_id not in self.at_once and await super().touch(job_id, fence)


class TestRenewsClaimsAlone(TransportDoubles, DeliveredJobSuite):
    double = RenewsClaimsAlone


class BeatsForClaimsAlone(RenewsClaimsAlone):
    """A lease that no claim began isn't renewed from a thread."""

    async def touch(self, job_id: str, fence: Fence) -> bool:
        return await InMemoryJobTransport.touch(self, job_id, fence)

    def open_heartbeats(self) -> InMemoryHeartbeats | None:
        at_once = self.at_once

        class Channel(InMemoryHeartbeats):
            def _renew(self, leases: Sequence[HeldLease]) -> list[bool]:
                return [
                    lease.job_id not in at_once and super(Channel, self)._renew([lease])[0]
                    for lease in leases
                ]

        return Channel(self._database, self._clock)


class TestBeatsForClaimsAlone(TransportDoubles, DeliveredJobSuite):
    double = BeatsForClaimsAlone


class CancelsThem(RenewsClaimsAlone):
    """A job that was never claimed is cancelled with its run."""

    async def touch(self, job_id: str, fence: Fence) -> bool:
        return await InMemoryJobTransport.touch(self, job_id, fence)

    async def cancel_by_run(self, run_id: str) -> int:
        jobs = [job for job in await self.get_jobs_by_run(run_id) if job.id in self.at_once]
        for job in jobs:
            await self.fail(job.id, "cancelled", retry=False)
        return len(jobs) + await super().cancel_by_run(run_id)


class TestCancelsThem(TransportDoubles, DeliveredJobSuite):
    double = CancelsThem


class SharesPayloads(InMemoryJobTransport):
    """The answer holds the caller's own payload."""

    async def enqueue_delivered(self, jobs: Sequence[NewJob], *, worker_id: str) -> list[DequeuedJob]:
        taken = await super().enqueue_delivered(jobs, worker_id=worker_id)
        async with self._statement("share") as tx:
            for job, own in zip(taken, jobs, strict=True):
                row = tx.get(self._database.jobs, (own.run_id, own.stage_id))
                assert row is not None
                tx.put(self._database.jobs, replace(row, record=replace(row.record, payload=job.payload)))
        return taken


class TestSharesPayloads(TransportDoubles, DeliveredJobSuite):
    double = SharesPayloads


class SaysLess(InMemoryJobTransport):
    """The answer leaves out what the caller knows."""

    async def enqueue_delivered(self, jobs: Sequence[NewJob], *, worker_id: str) -> list[DequeuedJob]:
        taken = await super().enqueue_delivered(jobs, worker_id=worker_id)
        return [replace(job, definition_version=None) for job in taken]


class TestSaysLess(TransportDoubles, DeliveredJobSuite):
    double = SaysLess


class DeliversOutside(InMemoryJobTransport):
    """An enlisted transport delivers at once, whatever becomes of the transaction."""

    async def enqueue_delivered(self, jobs: Sequence[NewJob], *, worker_id: str) -> list[DequeuedJob]:
        return await InMemoryJobTransport.enqueue_delivered(
            InMemoryJobTransport(self._database), jobs, worker_id=worker_id
        )


class TestDeliversOutside(TransportDoubles, DeliveredJobEnlistmentSuite):
    double = DeliversOutside


class LeavesWhatIsSettled(InMemoryJobTransport):
    """A job that the same transaction has settled keeps its place."""

    async def enqueue_delivered(self, jobs: Sequence[NewJob], *, worker_id: str) -> list[DequeuedJob]:
        kept = []
        for job in jobs:
            standing = await _standing(self, job)
            if standing is None or standing.status is not Status.COMPLETED or self._transaction is None:
                kept.append(job)
        taken = await super().enqueue_delivered(kept, worker_id=worker_id)
        fence = Fence(started_at=self._clock.now(), deliveries=1)
        return taken or [_made_up(job, fence) for job in jobs]


def _made_up(job: NewJob, fence: Fence) -> DequeuedJob:
    return DequeuedJob(
        job_id=job.id,
        run_id=job.run_id,
        workflow_id=job.workflow_id,
        stage_id=job.stage_id,
        definition_version=job.definition_version,
        payload=job.payload,
        priority=job.priority,
        fence=fence,
        failures=0,
        worker_losses=0,
        max_attempts=job.max_attempts,
        max_worker_losses=job.max_worker_losses,
    )


class TestLeavesWhatIsSettled(TransportDoubles, DeliveredJobEnlistmentSuite):
    double = LeavesWhatIsSettled


class DropsWhatWaits(InMemoryJobTransport):
    """What the same transaction has enqueued for the run is lost."""

    async def enqueue_delivered(self, jobs: Sequence[NewJob], *, worker_id: str) -> list[DequeuedJob]:
        if self._transaction is not None:
            for run_id in {job.run_id for job in jobs}:
                for job in await self.get_jobs_by_run(run_id):
                    if job.status is Status.PENDING:
                        await self.delete_by_run_and_stages(run_id, [job.stage_id])
        return await super().enqueue_delivered(jobs, worker_id=worker_id)


class TestDropsWhatWaits(TransportDoubles, DeliveredJobEnlistmentSuite):
    double = DropsWhatWaits


class StandsBack(InMemoryJobTransport):
    """A job that the same transaction has enqueued for the stage is not replaced."""

    async def enqueue_delivered(self, jobs: Sequence[NewJob], *, worker_id: str) -> list[DequeuedJob]:
        standing = [await _standing(self, job) for job in jobs] if self._transaction is not None else []
        waits = any(job is not None and job.status is Status.PENDING for job in standing)
        if not waits:
            return await super().enqueue_delivered(jobs, worker_id=worker_id)
        return [_made_up(job, Fence(started_at=self._clock.now(), deliveries=1)) for job in jobs]


class TestStandsBack(TransportDoubles, DeliveredJobEnlistmentSuite):
    double = StandsBack


class DeliversAtTheCommit(InMemoryJobTransport):
    """Until its transaction has committed, the job isn't its worker's."""

    async def complete(self, job_id: str, fence: Fence | None = None) -> Acknowledgement:
        if self._transaction is not None:
            async with self._statement("look") as tx:
                row = tx.first(self._database.jobs, "id", job_id)
            known = [each.record.id for each in self._database.jobs.all().values()]
            if row is not None and job_id not in known:
                return "superseded"
        return await super().complete(job_id, fence)


class TestDeliversAtTheCommit(TransportDoubles, DeliveredJobEnlistmentSuite):
    double = DeliversAtTheCommit


class SettlesForAnybody(InMemoryJobTransport):
    """In a transaction that also delivers, whoever knows the job's id may settle it."""

    async def complete(self, job_id: str, fence: Fence | None = None) -> Acknowledgement:
        return await super().complete(job_id, fence if self._transaction is None else None)


class TestSettlesForAnybody(TransportDoubles, DeliveredJobEnlistmentSuite):
    double = SettlesForAnybody


class GoesToTheFront(InMemoryJobTransport):
    """A job that comes back to the queue is before those that wait."""

    async def enqueue_delivered(self, jobs: Sequence[NewJob], *, worker_id: str) -> list[DequeuedJob]:
        taken = await super().enqueue_delivered(jobs, worker_id=worker_id)
        async with self._statement("front") as tx:
            for number, job in enumerate(jobs):
                row = tx.get(self._database.jobs, (job.run_id, job.stage_id))
                assert row is not None
                tx.put(self._database.jobs, replace(row, position=number - len(jobs)))
        return taken


class TestGoesToTheFront(TransportDoubles, DeliveredJobEnlistmentSuite):
    double = GoesToTheFront
