"""Where all state of runs is kept."""

from contextlib import AbstractAsyncContextManager
from typing import Protocol, Self, runtime_checkable

from stagewright.ports.annotations import AnnotationStore
from stagewright.ports.definitions import DefinitionStore
from stagewright.ports.idempotency import IdempotencyStore
from stagewright.ports.logs import LogStore
from stagewright.ports.outbox import OutboxDelivery, OutboxStore
from stagewright.ports.purges import PurgeStore
from stagewright.ports.runs import RunClaims, RunStore
from stagewright.ports.signals import SignalStore
from stagewright.ports.stages import StageStore
from stagewright.ports.waiting_stages import WaitingStageStore

__all__ = ["Persistence"]


@runtime_checkable
class Persistence(
    RunStore,
    RunClaims,
    StageStore,
    WaitingStageStore,
    DefinitionStore,
    AnnotationStore,
    LogStore,
    OutboxStore,
    OutboxDelivery,
    IdempotencyStore,
    SignalStore,
    PurgeStore,
    Protocol,
):
    """All stores of runs, and transactions over them.

    Every call outside a transaction is a transaction of its own. Records and JSON values that go in or come out are
    the caller's own: changing them later changes nothing in the store. Errors of the database come out as the errors
    named here or as `TransientError`, with the driver's error as their cause.
    """

    def transaction(self) -> AbstractAsyncContextManager[Self]:
        """Open a transaction: the same port, whose calls are kept together or not at all.

        It commits when the block ends and rolls back when it raises. Reads see what others have committed and what
        this transaction wrote, never what others haven't committed. A row that was written or locked is held until
        the end; another writer of it waits. Writes may be held back until the next read or the commit, which then
        raises what they would have raised.

        On a transaction this opens a savepoint: when its block raises, what was written since is undone and the
        transaction goes on.
        """
        ...
