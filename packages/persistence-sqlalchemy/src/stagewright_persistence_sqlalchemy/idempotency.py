"""Idempotency keys."""

from datetime import datetime, timedelta

from stagewright.errors import RecordNotFoundError
from stagewright.json_values import Json
from stagewright.records import IdempotencyAnswer, KeyAcquired, KeyCompleted, KeyInProgress
from stagewright_persistence_sqlalchemy.connection import Connection
from stagewright_persistence_sqlalchemy.rows import Row
from stagewright_persistence_sqlalchemy.statements import reads, writes_at_once
from stagewright_persistence_sqlalchemy.transaction import Transaction

__all__ = ["IdempotencyKeys"]


class IdempotencyKeys(Connection):
    """`IdempotencyStore`."""

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
        """Take a key, or learn what became of it; a competitor's transaction is waited for."""
        named = {"of_key": key, "of_type": command_type}
        taken = {"fingerprint": fingerprint, "acquired_at": now}
        row = {"key": key, "command_type": command_type, "completed": False, "result": None}
        row |= taken | {"run_id": run_id}
        async with self._writing() as tx:
            if await tx.execute(writes_at_once.insert_key(self._tables, self._database.kind), row):
                return KeyAcquired()
            held = await self._held(tx, key, command_type)
            if held is None:
                # Its holder has given it up between the two statements.
                return KeyInProgress(None)
            if not held["completed"] and stale_after is not None and now - held["acquired_at"] >= stale_after:
                seen = {"seen": held["acquired_at"]}
                if await tx.execute(writes_at_once.take_over_key(self._tables), named | taken | seen):
                    return KeyAcquired()
                held = await self._held(tx, key, command_type)
            if held is None:
                return KeyInProgress(None)
            if held["completed"]:
                return KeyCompleted(held["fingerprint"], held["result"])
            return KeyInProgress(held["fingerprint"])

    async def _held(self, tx: Transaction, key: str, command_type: str) -> Row | None:
        found = await tx.fetch(
            reads.idempotency_key(self._tables), {"key": key, "command_type": command_type}
        )
        return found[0] if found else None

    async def complete_idempotency_key(
        self, key: str, command_type: str, *, taken_at: datetime, result: Json, run_id: str | None = None
    ) -> None:
        """Store what the command answered, unless the key was taken over."""
        held = {"of_key": key, "of_type": command_type, "taken_at": taken_at}
        async with self._writing() as tx:
            if await tx.execute(
                writes_at_once.complete_key(self._tables), held | {"result": result, "of_run": run_id}
            ):
                return
            if await self._held(tx, key, command_type) is None:
                raise RecordNotFoundError("idempotency key", key)

    async def release_idempotency_key(self, key: str, command_type: str, *, taken_at: datetime) -> None:
        """Forget a key that has no result, unless it was taken over."""
        held = {"of_key": key, "of_type": command_type, "taken_at": taken_at}
        async with self._writing() as tx:
            await tx.execute(writes_at_once.release_key(self._tables), held)
