"""What a store answers to somebody who asks for an idempotency key."""

from dataclasses import dataclass
from typing import TypeAlias

from stagewright.json_values import Json

__all__ = ["IdempotencyAnswer", "KeyAcquired", "KeyCompleted", "KeyInProgress"]


@dataclass(frozen=True, slots=True)
class KeyAcquired:
    """The key is the caller's now."""


@dataclass(frozen=True, slots=True)
class KeyInProgress:
    """Somebody else holds the key and has no result yet.

    Attributes:
        fingerprint: Of the command that holds the key, or None where the store couldn't read it.
    """

    fingerprint: str | None


@dataclass(frozen=True, slots=True)
class KeyCompleted:
    """A command with this key has ended.

    Attributes:
        fingerprint: Of that command.
        result: What it answered, as JSON.
    """

    fingerprint: str
    result: Json


IdempotencyAnswer: TypeAlias = KeyAcquired | KeyInProgress | KeyCompleted
