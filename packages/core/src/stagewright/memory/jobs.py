import copy
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime
from typing import Self

from stagewright.cursors import cursor_after_place, place_after
from stagewright.errors import RecordNotFoundError
from stagewright.memory.connection import Connection
from stagewright.memory.database import InMemoryDatabase
from stagewright.memory.heartbeats import owns
from stagewright.memory.rows import JobRow
from stagewright.memory.transaction import Transaction
from stagewright.ports.clock import Clock
from stagewright.records import Acknowledgement, Fairness, Fence, JobQuery, JobRecord, Page
from stagewright.records.copies import detached
from stagewright.status import Status

__all__ = ["InMemoryJobAdmin"]


class InMemoryJobAdmin(Connection):
    """Jobs by run and for people, see `JobAdmin`; and how a job is looked up by its id.

    Args:
        database: The database; one of its own unless given.
        clock: By which leases are stamped; the database's unless given.
        fairness: A cap on the RUNNING jobs of one group; none unless given.
    """

    def __init__(
        self,
        database: InMemoryDatabase | None = None,
        clock: Clock | None = None,
        *,
        fairness: Fairness | None = None,
    ) -> None:
        super().__init__(database)
        self._clock = clock or self._database.clock
        self._fairness = fairness

    @property
    def fairness(self) -> Fairness | None:
        """What it was given; None where groups don't matter."""
        return self._fairness

    def with_fairness(self, fairness: Fairness | None) -> Self:
        """Another handle on the same jobs, with that fairness or with none."""
        other = copy.copy(self)
        other._fairness = fairness
        return other

    async def cancel_by_run(self, run_id: str) -> int:
        """Make a run's PENDING and SUSPENDED jobs CANCELLED, skipping those that another transaction holds."""
        jobs = self._database.jobs
        async with self._statement("cancel_by_run") as tx:
            now = self._clock.now()
            keys = [jobs.key(row) for row in self._of_run(tx, run_id)]
            cancelled = 0
            for row in tx.skip_locked(jobs, keys, _is_idle):
                record = replace(row.record, status=Status.CANCELLED, completed_at=now, updated_at=now)
                tx.put(jobs, replace(row, record=record))
                cancelled += 1
            return cancelled

    async def delete_by_run_and_stages(self, run_id: str, stage_ids: Collection[str]) -> int:
        """Delete the jobs of these stages, whatever their state, and return how many there were."""
        jobs = self._database.jobs
        deleted = 0
        async with self._statement("delete_by_run_and_stages") as tx:
            for stage_id in sorted(set(stage_ids)):
                if await tx.lock_row(jobs, (run_id, stage_id)) is not None:
                    tx.delete(jobs, (run_id, stage_id))
                    deleted += 1
            if deleted:
                self._wake_groups(tx)
        return deleted

    async def get_jobs_by_run(self, run_id: str) -> list[JobRecord]:
        """All jobs of a run, by the time they were enqueued."""
        async with self._statement("get_jobs_by_run") as tx:
            return [detached(row.record) for row in self._of_run(tx, run_id)]

    async def list_jobs(self, query: JobQuery, *, limit: int, cursor: str | None = None) -> Page[JobRecord]:
        """Jobs by the time they were enqueued, the newest first."""
        before = None if cursor is None else place_after("jobs", cursor)
        async with self._statement("list_jobs") as tx:
            rows = [
                row
                for row in tx.all(self._database.jobs)
                if _fits(row.record, query) and (before is None or row.position < before)
            ]
        rows.sort(key=lambda row: row.position, reverse=True)
        shown = rows[: max(limit, 0)]
        has_more = 0 < len(shown) < len(rows)
        return Page(
            items=tuple(detached(row.record) for row in shown),
            next_cursor=cursor_after_place("jobs", shown[-1].position) if has_more else None,
        )

    async def _acknowledge(
        self, name: str, job_id: str, fence: Fence | None, change: Callable[[JobRecord, datetime], JobRecord]
    ) -> Acknowledgement:
        async with self._statement(name) as tx:
            row = await self._lock_job(tx, job_id, fence)
            if row is None and fence is None:
                raise RecordNotFoundError("job", job_id)
            if row is None:
                return "superseded"
            tx.put(self._database.jobs, replace(row, record=change(row.record, self._clock.now())))
            self._wake_groups(tx)
            return "acknowledged"

    async def _renew(self, job_id: str, fence: Fence) -> bool:
        async with self._statement("touch") as tx:
            row = await self._lock_job(tx, job_id, fence)
            if row is None:
                return False
            tx.put(self._database.jobs, replace(row, record=replace(row.record, locked_at=self._clock.now())))
            return True

    async def _lock_job(self, tx: Transaction, job_id: str, fence: Fence | None) -> JobRow | None:
        jobs = self._database.jobs

        def is_owned(row: JobRow) -> bool:
            return row.record.id == job_id and (fence is None or owns(row.record, fence))

        found = tx.first(jobs, "id", job_id)
        if found is None:
            return None
        return await tx.lock_row(jobs, jobs.key(found), is_owned)

    def _wake_groups(self, tx: Transaction) -> None:
        """Wake those who wait, once this has committed: a group may have room again, or be claimed from no longer."""
        if self._fairness is not None:
            tx.notify()

    def _of_run(self, tx: Transaction, run_id: str) -> list[JobRow]:
        return sorted(tx.where(self._database.jobs, "run", run_id), key=lambda row: row.position)


def _fits(job: JobRecord, query: JobQuery) -> bool:
    return (
        query.run_id in (None, job.run_id)
        and query.workflow_id in (None, job.workflow_id)
        and (query.statuses is None or job.status in query.statuses)
    )


def _is_idle(row: JobRow) -> bool:
    return row.record.status in (Status.PENDING, Status.SUSPENDED)
