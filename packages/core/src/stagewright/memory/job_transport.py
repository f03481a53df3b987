from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from stagewright.duration import add_duration
from stagewright.memory.group_rooms import GroupRooms
from stagewright.memory.job_leases import InMemoryJobLeases
from stagewright.memory.rows import JobRow
from stagewright.memory.served import is_served
from stagewright.memory.transaction import Transaction
from stagewright.records import Acknowledgement, DequeuedJob, Fence, JobRecord, NewJob, Serves, group_of
from stagewright.records.copies import detached, detached_value
from stagewright.status import Status

__all__ = ["InMemoryJobTransport"]


class InMemoryJobTransport(InMemoryJobLeases):
    """Jobs in this process's memory: a `JobTransport` that enlists, with all that is optional.

    Args:
        database: The database; one of its own unless given.
        clock: By which leases are stamped; the database's unless given.
        fairness: A cap on the RUNNING jobs of one group; none unless given.
    """

    async def enqueue_parallel(self, jobs: Sequence[NewJob]) -> list[str]:
        """Make jobs claimable, each in the place of the one that its run and stage had."""
        table = self._database.jobs
        async with self._statement("enqueue_parallel") as tx:
            for key in sorted({(job.run_id, job.stage_id) for job in jobs}):
                await tx.lock((table.name, key))
            now = self._clock.now()
            for job in jobs:
                tx.put(table, self._new_row(job, now))
            if jobs:
                self._wake_groups(tx)
        return [job.id for job in jobs]

    async def enqueue_delivered(self, jobs: Sequence[NewJob], *, worker_id: str) -> list[DequeuedJob]:
        """Make jobs which this worker has already, each in the place of the one that its run and stage had."""
        table = self._database.jobs
        async with self._statement("enqueue_delivered") as tx:
            for key in sorted({(job.run_id, job.stage_id) for job in jobs}):
                await tx.lock((table.name, key))
            now = self._clock.now()
            delivered = []
            for job in jobs:
                row = self._new_row(job, now)
                record = _delivered(row.record, worker_id, now)
                tx.put(table, replace(row, record=record))
                delivered.append(_dequeued(record, now))
        return delivered

    async def resume(self, jobs: Sequence[NewJob]) -> list[JobRecord]:
        """Wake SUSPENDED jobs, enqueue missing and ended ones, and leave alone what is claimable or claimed."""
        table = self._database.jobs
        async with self._statement("resume") as tx:
            now = self._clock.now()
            for job in sorted(jobs, key=lambda job: (job.run_id, job.stage_id)):
                key = (job.run_id, job.stage_id)
                if tx.get(table, key) is None:
                    await tx.lock((table.name, key))
                if tx.get(table, key) is None:
                    tx.put(table, self._new_row(job, now))
                    continue
                for row in tx.skip_locked(table, (key,), _is_at_rest):
                    if row.record.status is Status.SUSPENDED:
                        woken = replace(row.record, status=Status.PENDING, due_at=None, updated_at=now)
                        tx.put(table, replace(row, record=woken))
                    else:
                        tx.put(table, self._new_row(job, now))
            standing = [tx.get(table, (job.run_id, job.stage_id)) for job in jobs]
            return [detached(row.record) for row in standing if row is not None]

    async def dequeue(self, *, worker_id: str, serves: Serves = None, limit: int = 1) -> list[DequeuedJob]:
        """Take up to `limit` jobs that are due and served, skipping those that another transaction holds."""
        jobs = self._database.jobs
        taken: list[DequeuedJob] = []
        async with self._statement("dequeue") as tx:
            if limit < 1:
                return taken
            now = self._clock.now()

            def is_wanted(row: JobRow) -> bool:
                job = row.record
                return _is_due(row, now) and is_served(serves, job.workflow_id, job.definition_version)

            waiting = [row for row in tx.where(jobs, "status", Status.PENDING) if is_wanted(row)]
            waiting.sort(key=lambda row: (-row.record.priority, row.position))
            rooms = self._rooms(tx)

            def has_room(row: JobRow) -> bool:
                return rooms is None or rooms.has_room(row.group)

            # Asked as each is come to: one that is taken leaves less room in its group.
            wanted = (jobs.key(row) for row in waiting if has_room(row))
            for row in tx.skip_locked(jobs, wanted, lambda row: is_wanted(row) and has_room(row)):
                record = _delivered(row.record, worker_id, now)
                tx.put(jobs, replace(row, record=record))
                taken.append(_dequeued(record, now))
                if rooms is not None:
                    rooms.take(row.group)
                if len(taken) == limit:
                    break
            if rooms is not None:
                rooms.leave()
            if taken:
                self._wake_groups(tx)
        return taken

    def _rooms(self, tx: Transaction) -> GroupRooms | None:
        fairness = self._fairness
        return (
            None
            if fairness is None
            else GroupRooms(tx, self._database.jobs, fairness.max_concurrent_per_group)
        )

    def _new_row(self, job: NewJob, now: datetime) -> JobRow:
        return JobRow(_enqueued(job, now), self._database.next_position(), group_of(job, self._fairness))

    async def complete(self, job_id: str, fence: Fence | None = None) -> Acknowledgement:
        """The job becomes COMPLETED."""

        def completed(job: JobRecord, now: datetime) -> JobRecord:
            return replace(
                job, status=Status.COMPLETED, completed_at=now, updated_at=now, locked_at=None, due_at=None
            )

        return await self._acknowledge("complete", job_id, fence, completed)

    async def suspend(
        self, job_id: str, next_poll_at: datetime, fence: Fence | None = None
    ) -> Acknowledgement:
        """The job becomes SUSPENDED and leaves its worker."""

        def suspended(job: JobRecord, now: datetime) -> JobRecord:
            return replace(
                job,
                status=Status.SUSPENDED,
                due_at=next_poll_at,
                updated_at=now,
                worker_id=None,
                locked_at=None,
            )

        return await self._acknowledge("suspend", job_id, fence, suspended)

    async def fail(
        self,
        job_id: str,
        error: str,
        *,
        retry: bool,
        delay: timedelta | None = None,
        fence: Fence | None = None,
    ) -> Acknowledgement:
        """One more failure; the job becomes PENDING again with `retry`, else FAILED."""

        def failed(job: JobRecord, now: datetime) -> JobRecord:
            job = replace(job, failures=job.failures + 1, last_error=error, updated_at=now, locked_at=None)
            if not retry:
                return replace(job, status=Status.FAILED, completed_at=now, due_at=None)
            due_at = None if delay is None else add_duration(now, delay, field="delay")
            return replace(job, status=Status.PENDING, due_at=due_at, worker_id=None)

        return await self._acknowledge("fail", job_id, fence, failed)

    async def defer(
        self, job_id: str, until: datetime, reason: str, fence: Fence | None = None
    ) -> Acknowledgement:
        """Hand the job back unexecuted, due at `until`; `reason` is kept as its last error."""

        def deferred(job: JobRecord, now: datetime) -> JobRecord:
            return replace(
                job,
                status=Status.PENDING,
                due_at=until,
                interruptions=job.interruptions + 1,
                last_error=reason,
                updated_at=now,
                worker_id=None,
                locked_at=None,
            )

        return await self._acknowledge("defer", job_id, fence, deferred)

    async def depth(self) -> int:
        """How many jobs are PENDING and due."""
        async with self._statement("depth") as tx:
            now = self._clock.now()
            return sum(_is_due(row, now) for row in tx.where(self._database.jobs, "status", Status.PENDING))


def _is_at_rest(row: JobRow) -> bool:
    return row.record.status not in (Status.PENDING, Status.RUNNING)


def _is_due(row: JobRow, now: datetime) -> bool:
    job = row.record
    return job.status is Status.PENDING and (job.due_at is None or job.due_at <= now)


def _enqueued(job: NewJob, now: datetime) -> JobRecord:
    return JobRecord(
        id=job.id,
        run_id=job.run_id,
        workflow_id=job.workflow_id,
        stage_id=job.stage_id,
        definition_version=job.definition_version,
        payload=detached_value(job.payload),
        priority=job.priority,
        status=Status.PENDING,
        max_attempts=job.max_attempts,
        max_worker_losses=job.max_worker_losses,
        created_at=now,
        updated_at=now,
        due_at=job.due_at,
    )


def _delivered(job: JobRecord, worker_id: str, now: datetime) -> JobRecord:
    return replace(
        job,
        status=Status.RUNNING,
        worker_id=worker_id,
        deliveries=job.deliveries + 1,
        started_at=now,
        locked_at=now,
        updated_at=now,
        due_at=None,
    )


def _dequeued(job: JobRecord, started_at: datetime) -> DequeuedJob:
    return detached(
        DequeuedJob(
            job_id=job.id,
            run_id=job.run_id,
            workflow_id=job.workflow_id,
            stage_id=job.stage_id,
            definition_version=job.definition_version,
            payload=job.payload,
            priority=job.priority,
            fence=Fence(started_at=started_at, deliveries=job.deliveries),
            failures=job.failures,
            worker_losses=job.worker_losses,
            max_attempts=job.max_attempts,
            max_worker_losses=job.max_worker_losses,
        )
    )
