"""Where the keys of commands are kept."""

from datetime import datetime, timedelta
from typing import Protocol

from stagewright.json_values import Json
from stagewright.records import IdempotencyAnswer

__all__ = ["IdempotencyStore"]


class IdempotencyStore(Protocol):
    """Idempotency keys; (key, command type) is unique."""

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
        """Take a key, or learn what became of it; `run_id` is the run that its command is about, if that is known.

        Inside a transaction the key is part of it: another transaction that asks for the same key waits until this
        one ends, and is never answered with an error that would spoil the caller's transaction.
        A key without a result that was taken `stale_after` ago or earlier is taken over, by exactly one of several
        callers, and its time starts anew; with None it never is. A completed key is never taken over.
        """
        ...

    async def complete_idempotency_key(
        self, key: str, command_type: str, *, taken_at: datetime, result: Json, run_id: str | None = None
    ) -> None:
        """Store what the command of whoever took the key at `taken_at` answered; JSON null is a result.

        Nothing is written if somebody else has taken the key over since. With `run_id` the key names that run, as one
        that is taken with it does: it goes when the run is deleted.

        Raises:
            RecordNotFoundError: If there is no such key, at the latest at commit.
        """
        ...

    async def release_idempotency_key(self, key: str, command_type: str, *, taken_at: datetime) -> None:
        """Forget a key without a result that was taken at `taken_at`; a completed one, and another's, stays."""
        ...
