from dataclasses import replace
from datetime import datetime, timedelta

from stagewright.errors import RecordNotFoundError
from stagewright.json_values import Json
from stagewright.memory.connection import Connection
from stagewright.memory.rows import IdempotencyRow
from stagewright.records import IdempotencyAnswer, KeyAcquired, KeyCompleted, KeyInProgress
from stagewright.records.copies import detached_value

__all__ = ["InMemoryIdempotencyStore"]


class InMemoryIdempotencyStore(Connection):
    """Idempotency keys by key and command type; see `IdempotencyStore`."""

    async def acquire_idempotency_key(
        self,
        key: str,
        command_type: str,
        *,
        fingerprint: str,
        now: datetime,
        stale_after: timedelta | None,
        run_id: str | None = None,
    ) -> IdempotencyAnswer:
        """Take a key, or learn what became of it; waits while another transaction has it in its hands."""
        keys = self._database.idempotency_keys
        async with self._statement("acquire_idempotency_key") as tx:
            lock = (keys.name, (key, command_type))
            locked_here = await tx.lock(lock)
            row = tx.get(keys, (key, command_type))
            if row is None or _is_stale(row, now, stale_after):
                tx.put(
                    keys,
                    IdempotencyRow(
                        key=key,
                        command_type=command_type,
                        fingerprint=fingerprint,
                        taken_at=now,
                        run_id=run_id,
                    ),
                )
                return KeyAcquired()
            if locked_here:
                tx.unlock(lock)
            if row.completed:
                return KeyCompleted(row.fingerprint, detached_value(row.result))
            return KeyInProgress(row.fingerprint)

    async def complete_idempotency_key(
        self, key: str, command_type: str, *, taken_at: datetime, result: Json, run_id: str | None = None
    ) -> None:
        """Store what the command answered, unless the key was taken over.

        Raises:
            RecordNotFoundError: If nobody has taken the key.
        """
        keys = self._database.idempotency_keys
        async with self._statement("complete_idempotency_key") as tx:
            row = await tx.lock_row(keys, (key, command_type))
            if row is None:
                raise RecordNotFoundError("idempotency key", key)
            if row.taken_at == taken_at:
                about = row.run_id if run_id is None else run_id
                tx.put(keys, replace(row, completed=True, result=detached_value(result), run_id=about))

    async def release_idempotency_key(self, key: str, command_type: str, *, taken_at: datetime) -> None:
        """Forget a key that has no result, unless it was taken over."""
        keys = self._database.idempotency_keys
        async with self._statement("release_idempotency_key") as tx:

            def is_held(row: IdempotencyRow) -> bool:
                return not row.completed and row.taken_at == taken_at

            if await tx.lock_row(keys, (key, command_type), is_held) is not None:
                tx.delete(keys, (key, command_type))


def _is_stale(row: IdempotencyRow, now: datetime, stale_after: timedelta | None) -> bool:
    return not row.completed and stale_after is not None and now - row.taken_at >= stale_after
