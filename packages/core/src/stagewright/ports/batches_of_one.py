"""Operations on one thing, for stores that have the operation on many."""

from datetime import datetime

from stagewright.ports.logs import LogStore
from stagewright.ports.runs import RunClaims
from stagewright.records import LogRecord, RunRecord, Serves

__all__ = ["BatchesOfOne"]


class BatchesOfOne:
    """What a store need not write twice: it inherits this beside its own operations on many."""

    async def claim_next_pending_run(
        self: RunClaims, *, now: datetime, serves: Serves = None
    ) -> RunRecord | None:
        """Make one PENDING run RUNNING; None if there is none that could be claimed."""
        return next(iter(await self.claim_pending_runs(1, now=now, serves=serves)), None)

    async def create_log(self: LogStore, line: LogRecord) -> None:
        """Insert one log line; one whose id exists already is skipped."""
        await self.append_logs((line,))
