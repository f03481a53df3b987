from dataclasses import replace
from datetime import datetime, timedelta

from stagewright.memory.heartbeats import InMemoryHeartbeats
from stagewright.memory.jobs import InMemoryJobAdmin
from stagewright.memory.rows import JobRow
from stagewright.memory.transaction import Transaction
from stagewright.records import Fence, JobRecord, LeaseSweep
from stagewright.records.copies import detached
from stagewright.status import Status

__all__ = ["InMemoryJobLeases"]


class InMemoryJobLeases(InMemoryJobAdmin):
    """Leases of delivered jobs, see `JobLeases`. A sweep passes over jobs that somebody is settling right now."""

    async def touch(self, job_id: str, fence: Fence) -> bool:
        """Renew the lease; False if this delivery doesn't own the job any more."""
        return await self._renew(job_id, fence)

    def open_heartbeats(self) -> InMemoryHeartbeats | None:
        """A channel that renews leases from threads; None inside a transaction."""
        return InMemoryHeartbeats(self._database, self._clock) if self._transaction is None else None

    async def release_stale(self, threshold: timedelta) -> LeaseSweep:
        """End the leases of RUNNING jobs that were not renewed for longer than `threshold`."""
        released: list[JobRecord] = []
        exhausted: list[JobRecord] = []
        async with self._statement("release_stale") as tx:
            now = self._clock.now()

            def is_stale(row: JobRow) -> bool:
                return row.record.status is Status.RUNNING and _is_older(row.record.locked_at, threshold, now)

            for row in tx.skip_locked(self._database.jobs, self._running(tx), is_stale):
                record = _after_a_lost_worker(row.record, now)
                tx.put(self._database.jobs, replace(row, record=record))
                self._wake_groups(tx)
                (exhausted if record.status is Status.FAILED else released).append(detached(record))
        return LeaseSweep(released=tuple(released), exhausted=tuple(exhausted))

    async def expire_runaway(self, absolute_timeout: timedelta) -> list[JobRecord]:
        """Fail RUNNING jobs that were delivered longer ago than `absolute_timeout`, renewed or not."""
        expired: list[JobRecord] = []
        async with self._statement("expire_runaway") as tx:
            now = self._clock.now()

            def is_runaway(row: JobRow) -> bool:
                return row.record.status is Status.RUNNING and _is_older(
                    row.record.started_at, absolute_timeout, now
                )

            for row in tx.skip_locked(self._database.jobs, self._running(tx), is_runaway):
                record = replace(
                    row.record,
                    status=Status.FAILED,
                    last_error=f"LEASE_ABSOLUTE_CAP: still running {absolute_timeout.total_seconds():g} s "
                    "after it was delivered",
                    completed_at=now,
                    updated_at=now,
                    locked_at=None,
                )
                tx.put(self._database.jobs, replace(row, record=record))
                self._wake_groups(tx)
                expired.append(detached(record))
        return expired

    def _running(self, tx: Transaction) -> list[object]:
        rows = tx.where(self._database.jobs, "status", Status.RUNNING)
        return [self._database.jobs.key(row) for row in sorted(rows, key=lambda row: row.position)]


def _is_older(moment: datetime | None, age: timedelta, now: datetime) -> bool:
    return moment is not None and now - moment > age


def _after_a_lost_worker(job: JobRecord, now: datetime) -> JobRecord:
    losses = job.worker_losses + 1
    job = replace(
        job,
        worker_losses=losses,
        last_error=f"LEASE_HEARTBEAT_LOST: not renewed by worker {job.worker_id}",
        updated_at=now,
        locked_at=None,
    )
    if losses >= job.max_worker_losses:
        return replace(job, status=Status.FAILED, completed_at=now)
    return replace(job, status=Status.PENDING, worker_id=None, due_at=None)
