"""How runs are deleted for good."""

from collections.abc import Collection
from datetime import datetime
from typing import Protocol

from stagewright.records import RunRecord, Tombstone
from stagewright.status import Status

__all__ = ["PurgeStore"]


class PurgeStore(Protocol):
    """Deleting runs, and remembering what of them is still to be deleted elsewhere."""

    async def list_runs_for_purge(
        self, older_than: datetime, *, statuses: Collection[Status], limit: int
    ) -> list[RunRecord]:
        """Up to `limit` runs of these statuses that ended at `older_than` or earlier, the first to end first.

        A run without a `completed_at` counts as ended at its `updated_at`; of the same time the smaller id goes first.
        A run with pending events, see `OutboxDelivery`, is left out. Nothing is locked.
        """
        ...

    async def has_pending_events(self, run_id: str) -> bool:
        """Whether an event of the run is neither published nor dead-lettered."""
        ...

    async def delete_run(self, run_id: str) -> None:
        """Delete a run with its stages, signals, log lines, annotations and events, and the keys that name it.

        Nothing happens if there is none. Its jobs and steps are their own ports'.
        """
        ...

    async def put_tombstone(self, tombstone: Tombstone) -> None:
        """Keep a tombstone, in the place of the one that its run had."""
        ...

    async def list_tombstones(self, limit: int) -> list[Tombstone]:
        """Up to `limit` tombstones, the oldest first, of the same time the smaller run id."""
        ...

    async def remove_tombstone(self, run_id: str) -> bool:
        """Forget a tombstone; False if there is none. Of several callers one is told True."""
        ...
