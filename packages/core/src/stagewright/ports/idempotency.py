"""Where the keys of commands are kept."""

from datetime import datetime, timedelta
from typing import Protocol

from stagewright.json_values import Json
from stagewright.records import IdempotencyAnswer

__all__ = ["IdempotencyStore"]


class IdempotencyStore(Protocol):
    """Idempotency keys; (key, command type) is unique."""

    async def acquire_idempotency_key(
        self, key: str, command_type: str, *, fingerprint: str, now: datetime, stale_after: timedelta | None
    ) -> IdempotencyAnswer:
        """Take a key, or learn what became of it.

        Inside a transaction the key is part of it: another transaction that asks for the same key waits until this
        one ends, and is never answered with an error that would spoil the caller's transaction.
        A key without a result that was taken `stale_after` ago or earlier is taken over, by exactly one of several
        callers, and its time starts anew; with None it never is. A completed key is never taken over.
        """
        ...

    async def complete_idempotency_key(self, key: str, command_type: str, *, result: Json) -> None:
        """Store what the command answered; JSON null is a result.

        Raises:
            RecordNotFoundError: If nobody holds the key, at the latest at commit.
        """
        ...

    async def release_idempotency_key(self, key: str, command_type: str) -> None:
        """Forget a key that has no result; a completed one stays."""
        ...
