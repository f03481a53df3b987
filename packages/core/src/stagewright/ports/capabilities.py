"""What an adapter may offer beyond its port. Each is checked once, when a kernel or a host is made."""

from datetime import timedelta
from typing import Protocol, Self, runtime_checkable

from stagewright.ports.persistence import Persistence

__all__ = ["Enlistable", "WorkNotifier"]


@runtime_checkable
class Enlistable(Protocol):
    """An adapter that can take part in a transaction of the persistence."""

    def enlist(self, tx: Persistence) -> Self | None:
        """The same port, whose writes are kept or undone with `tx`; None if it lives in another database.

        What is answered depends on the two databases alone, not on the transaction.
        """
        ...


@runtime_checkable
class WorkNotifier(Protocol):
    """An adapter that can wake waiting hosts, in this process and in others."""

    async def notify(self, topic: str) -> None:
        """Tell whoever waits that there is something to do; inside a transaction, once it has committed.

        A notification may be lost or come twice: it saves waiting and is never the only way to learn something.
        """
        ...

    async def wait_for_work(self, timeout: timedelta) -> bool:
        """Wait for a notification that comes after this call or came since the last call returned.

        An adapter may begin to listen with the first call, so what came before that may not be seen.

        Returns:
            True when there was one, False when the time was over.
        """
        ...
