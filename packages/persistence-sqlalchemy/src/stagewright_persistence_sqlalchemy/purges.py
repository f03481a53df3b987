"""Runs that are deleted for good."""

from collections.abc import Collection
from datetime import datetime

from stagewright.records import RunRecord, Tombstone
from stagewright.status import Status
from stagewright_persistence_sqlalchemy.connection import Connection
from stagewright_persistence_sqlalchemy.rows import run_of
from stagewright_persistence_sqlalchemy.statements import deletions

__all__ = ["Purges"]


class Purges(Connection):
    """`PurgeStore`."""

    async def list_runs_for_purge(
        self, older_than: datetime, *, statuses: Collection[Status], limit: int
    ) -> list[RunRecord]:
        """Runs that have ended and told everything, the first to end first."""
        named = {f"item_{number}": status.value for number, status in enumerate(sorted(set(statuses)))}
        if limit < 1 or not named:
            return []
        parameters = named | {"before": older_than, "limit": limit}
        return [
            run_of(row)
            for row in await self._fetch(deletions.runs_for_purge(self._tables, len(named)), parameters)
        ]

    async def has_pending_events(self, run_id: str) -> bool:
        """Whether an event of the run waits for the sink."""
        return bool(await self._fetch(deletions.pending_event_of_run(self._tables), {"run_id": run_id}))

    async def delete_run(self, run_id: str) -> None:
        """Delete a run with everything that belongs to it alone."""
        async with self._writing() as tx:
            await tx.execute(deletions.delete_keys_of_run(self._tables), {"of_id": run_id})
            await tx.execute(deletions.delete_run(self._tables), {"of_id": run_id})

    async def put_tombstone(self, tombstone: Tombstone) -> None:
        """Keep a tombstone."""
        row = {
            "run_id": tombstone.run_id,
            "blob_prefixes": list(tombstone.blob_prefixes),
            "stage_ids": list(tombstone.stage_ids),
            "stage_record_ids": list(tombstone.stage_record_ids),
            "created_at": tombstone.created_at,
        }
        async with self._writing() as tx:
            await tx.execute(deletions.put_tombstone(self._tables, self._database.kind), row)

    async def list_tombstones(self, limit: int) -> list[Tombstone]:
        """Tombstones, the oldest first."""
        if limit < 1:
            return []
        return [
            Tombstone(
                run_id=row["run_id"],
                blob_prefixes=tuple(row["blob_prefixes"]),
                stage_ids=tuple(row["stage_ids"]),
                stage_record_ids=tuple(row["stage_record_ids"]),
                created_at=row["created_at"],
            )
            for row in await self._fetch(deletions.all_tombstones(self._tables), {"limit": limit})
        ]

    async def remove_tombstone(self, run_id: str) -> bool:
        """Forget a tombstone."""
        async with self._writing() as tx:
            return await tx.execute(deletions.delete_tombstone(self._tables), {"of_id": run_id}) > 0
