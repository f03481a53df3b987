"""What there is to do."""

from datetime import datetime

from stagewright.records import WorkOutlook
from stagewright_persistence_sqlalchemy.connection import Connection
from stagewright_persistence_sqlalchemy.statements.outlook import current_outlook

__all__ = ["ForeseesWorkRows"]


class ForeseesWorkRows(Connection):
    """`ForeseesWork`, in one statement."""

    async def outlook(self, now: datetime) -> WorkOutlook:
        """What waits now and when the next job or stage is due."""
        [row] = await self._fetch(current_outlook(self._tables), {"now": now})
        return WorkOutlook(
            pending_runs=bool(row["pending_runs"]),
            running_runs=bool(row["running_runs"]),
            held_jobs=bool(row["held_jobs"]),
            undelivered_events=bool(row["undelivered_events"]),
            next_job_at=row["next_job_at"] and max(now, row["next_job_at"]),
            next_poll_at=row["next_poll_at"],
        )
