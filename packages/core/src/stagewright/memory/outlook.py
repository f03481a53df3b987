from datetime import datetime

from stagewright.memory.connection import Connection
from stagewright.records import WorkOutlook
from stagewright.status import Status

__all__ = ["InMemoryOutlook"]


class InMemoryOutlook(Connection):
    """What there is to do, see `ForeseesWork`."""

    async def outlook(self, now: datetime) -> WorkOutlook:
        """Look at runs, stages, jobs and the outbox at once."""
        tables = self._database
        async with self._statement("outlook") as tx:
            jobs = [row.record.due_at or now for row in tx.where(tables.jobs, "status", Status.PENDING)]
            polls = [
                stage.next_poll_at
                for stage in tx.all(tables.stages)
                if stage.status is Status.SUSPENDED and stage.next_poll_at is not None
            ]
            events = tx.where(tables.outbox, "pending", True)
            return WorkOutlook(
                pending_runs=bool(tx.where(tables.runs, "status", Status.PENDING)),
                running_runs=bool(tx.where(tables.runs, "status", Status.RUNNING)),
                held_jobs=bool(tx.where(tables.jobs, "status", Status.RUNNING)),
                undelivered_events=any(row.retry_at is None or row.retry_at <= now for row in events),
                next_job_at=max(now, min(jobs)) if jobs else None,
                next_poll_at=min(polls, default=None),
            )
