from collections.abc import Collection
from datetime import datetime
from typing import TypeVar

from stagewright.memory.connection import Connection
from stagewright.memory.tables import Table
from stagewright.memory.transaction import Transaction
from stagewright.records import RunRecord, Tombstone
from stagewright.records.copies import detached
from stagewright.status import Status

__all__ = ["InMemoryPurgeStore"]

R = TypeVar("R")


class InMemoryPurgeStore(Connection):
    """Deleting runs; see `PurgeStore`."""

    async def list_runs_for_purge(
        self, older_than: datetime, *, statuses: Collection[Status], limit: int
    ) -> list[RunRecord]:
        """Runs that have ended and told everything, the first to end first."""
        async with self._statement("list_runs_for_purge") as tx:
            found = [
                run
                for status in set(statuses)
                for run in tx.where(self._database.runs, "status", status)
                if _ended_at(run) <= older_than and not self._has_pending(tx, run.id)
            ]
            found.sort(key=lambda run: (_ended_at(run), run.id))
            return [detached(run) for run in found[: max(limit, 0)]]

    async def has_pending_events(self, run_id: str) -> bool:
        """Whether an event of the run waits for the sink."""
        async with self._statement("has_pending_events") as tx:
            return self._has_pending(tx, run_id)

    async def delete_run(self, run_id: str) -> None:
        """Delete a run with everything that belongs to it alone."""
        database = self._database
        async with self._statement("delete_run") as tx:
            if await tx.lock_row(database.runs, run_id) is not None:
                tx.delete(database.runs, run_id)
                tx.delete(database.event_sequences, run_id)
            await _delete_of_run(tx, database.stages, run_id)
            await _delete_of_run(tx, database.annotations, run_id)
            await _delete_of_run(tx, database.logs, run_id)
            await _delete_of_run(tx, database.outbox, run_id)
            await _delete_of_run(tx, database.signals, run_id)
            await _delete_of_run(tx, database.idempotency_keys, run_id)

    async def put_tombstone(self, tombstone: Tombstone) -> None:
        """Keep a tombstone."""
        tombstones = self._database.tombstones
        async with self._statement("put_tombstone") as tx:
            await tx.lock((tombstones.name, tombstone.run_id))
            tx.put(tombstones, tombstone)

    async def list_tombstones(self, limit: int) -> list[Tombstone]:
        """Tombstones, the oldest first."""
        async with self._statement("list_tombstones") as tx:
            found = sorted(tx.all(self._database.tombstones), key=lambda one: (one.created_at, one.run_id))
            return found[: max(limit, 0)]

    async def remove_tombstone(self, run_id: str) -> bool:
        """Forget a tombstone."""
        tombstones = self._database.tombstones
        async with self._statement("remove_tombstone") as tx:
            if await tx.lock_row(tombstones, run_id) is None:
                return False
            tx.delete(tombstones, run_id)
            return True

    def _has_pending(self, tx: Transaction, run_id: str) -> bool:
        return any(row.is_pending for row in tx.where(self._database.outbox, "run", run_id))


async def _delete_of_run(tx: Transaction, table: Table[R], run_id: str) -> None:
    for key in sorted(map(table.key, tx.where(table, "run", run_id)), key=repr):
        if await tx.lock_row(table, key) is not None:
            tx.delete(table, key)


def _ended_at(run: RunRecord) -> datetime:
    return run.completed_at or run.updated_at
