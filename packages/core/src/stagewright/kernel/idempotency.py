"""Commands that carry a key are carried out once; a repetition gets the first answer."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from stagewright.errors import IdempotencyInProgressError, IdempotencyKeyReusedError
from stagewright.json_values import Json
from stagewright.kernel.command import Command, adapter_of
from stagewright.kernel.context import KernelPorts
from stagewright.kernel.fingerprint import fingerprint_of, is_of
from stagewright.ports import IdempotencyStore
from stagewright.records import KeyAcquired, KeyCompleted, KeyInProgress

__all__ = ["KeyedCommand"]

R = TypeVar("R")


class KeyedCommand:
    """A command with an idempotency key, and the key's life in a store.

    Args:
        ports: The kernel's ports.
        command: The command.
        key: Its key.
        result_type: The class of its result, so that a repetition gets the same type.
    """

    def __init__(self, ports: KernelPorts, command: Command[Any], key: str, result_type: type[Any]) -> None:
        self._ports = ports
        self._key = key
        self._command = command
        self._type = command.type
        self._adapter = adapter_of(cast(Any, result_type))
        self._fingerprint = fingerprint_of(command)
        self._run_id: str | None = getattr(command, "run_id", None)
        self._taken_at = ports.clock.now()

    async def once(self, store: IdempotencyStore, work: Callable[[], Awaitable[R]]) -> R:
        """Do the work and keep its result, both in the store's transaction; or answer what is kept already."""
        kept = await self.acquire(store)
        if kept is not None:
            return cast(R, kept)
        result = await work()
        await self.complete(store, result)
        return result

    async def acquire(self, store: IdempotencyStore) -> object | None:
        """Take the key, or get the result of the command that had it first; None means that the key is taken.

        Raises:
            IdempotencyInProgressError: If somebody else is at it.
            IdempotencyKeyReusedError: If the key belongs to another command body.
        """
        self._taken_at = self._ports.clock.now()
        answer = await store.acquire_idempotency_key(
            self._key,
            self._type,
            fingerprint=self._fingerprint,
            now=self._taken_at,
            stale_after=self._ports.settings.idempotency_stale_after,
            run_id=self._run_id,
        )
        match answer:
            case KeyAcquired():
                return None
            case KeyInProgress(fingerprint):
                if fingerprint is not None and not is_of(fingerprint, self._command, self._fingerprint):
                    raise IdempotencyKeyReusedError(self._key, self._type)
                raise IdempotencyInProgressError(self._key, self._type)
            case KeyCompleted(fingerprint, result):
                if not is_of(fingerprint, self._command, self._fingerprint):
                    raise IdempotencyKeyReusedError(self._key, self._type)
                return cast(object, self._adapter.validate_python(result))

    async def complete(self, store: IdempotencyStore, result: object) -> None:
        """Keep the result, unless somebody has taken the key over."""
        stored: Json = self._adapter.dump_python(result, mode="json")
        # A run that the command has made is named by its result alone.
        run_id: str | None = getattr(result, "run_id", self._run_id)
        await store.complete_idempotency_key(
            self._key, self._type, taken_at=self._taken_at, result=stored, run_id=run_id
        )

    async def release(self, store: IdempotencyStore) -> None:
        """Forget the key, so that the command can be sent again, unless somebody has taken it over."""
        await store.release_idempotency_key(self._key, self._type, taken_at=self._taken_at)
