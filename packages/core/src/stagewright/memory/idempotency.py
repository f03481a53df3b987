from dataclasses import replace
from datetime import datetime, timedelta

from stagewright.errors import RecordNotFoundError
from stagewright.json_values import Json
from stagewright.memory.connection import Connection
from stagewright.memory.copies import detached_value
from stagewright.memory.rows import IdempotencyRow
from stagewright.records import IdempotencyAnswer, KeyAcquired, KeyCompleted, KeyInProgress

__all__ = ["InMemoryIdempotencyStore"]


class InMemoryIdempotencyStore(Connection):
    """Idempotency keys by key and command type; see `IdempotencyStore`."""

    async def acquire_idempotency_key(
        self, key: str, command_type: str, *, fingerprint: str, now: datetime, stale_after: timedelta | None
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
                    IdempotencyRow(key=key, command_type=command_type, fingerprint=fingerprint, taken_at=now),
                )
                return KeyAcquired()
            if locked_here:
                tx.unlock(lock)
            if row.completed:
                return KeyCompleted(row.fingerprint, detached_value(row.result))
            return KeyInProgress(row.fingerprint)

    async def complete_idempotency_key(self, key: str, command_type: str, *, result: Json) -> None:
        """Store what the command answered.

        Raises:
            RecordNotFoundError: If nobody has taken the key.
        """
        keys = self._database.idempotency_keys
        async with self._statement("complete_idempotency_key") as tx:
            row = await tx.lock_row(keys, (key, command_type))
            if row is None:
                raise RecordNotFoundError("idempotency key", key)
            tx.put(keys, replace(row, completed=True, result=detached_value(result)))

    async def release_idempotency_key(self, key: str, command_type: str) -> None:
        """Forget a key that has no result."""
        keys = self._database.idempotency_keys
        async with self._statement("release_idempotency_key") as tx:
            row = await tx.lock_row(keys, (key, command_type), lambda row: not row.completed)
            if row is not None:
                tx.delete(keys, (key, command_type))


def _is_stale(row: IdempotencyRow, now: datetime, stale_after: timedelta | None) -> bool:
    return not row.completed and stale_after is not None and now - row.taken_at >= stale_after
