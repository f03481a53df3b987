"""All state of runs in an SQL database."""

from stagewright.ports import BatchesOfOne
from stagewright_persistence_sqlalchemy.annotations import AnnotationRows
from stagewright_persistence_sqlalchemy.borrowing import BorrowsCallersSessions
from stagewright_persistence_sqlalchemy.idempotency import IdempotencyKeys
from stagewright_persistence_sqlalchemy.outbox import OutboxStores
from stagewright_persistence_sqlalchemy.outlook import ForeseesWorkRows
from stagewright_persistence_sqlalchemy.purges import Purges
from stagewright_persistence_sqlalchemy.run_reader import RunReading
from stagewright_persistence_sqlalchemy.runs import RunStores
from stagewright_persistence_sqlalchemy.step_signals import StepSignals
from stagewright_persistence_sqlalchemy.waiting import WaitsForWork
from stagewright_persistence_sqlalchemy.waiting_stages import WaitingStages

__all__ = ["SqlAlchemyPersistence"]


class SqlAlchemyPersistence(
    RunStores,
    WaitingStages,
    AnnotationRows,
    OutboxStores,
    IdempotencyKeys,
    Purges,
    RunReading,
    ForeseesWorkRows,
    StepSignals,
    WaitsForWork,
    BorrowsCallersSessions,
    BatchesOfOne,
):
    """A `Persistence`, a `RunReader` and a `WorkNotifier` over one database, also on sessions of the caller's.

    Writes of a transaction are held back until its next read or its commit, and sent together then.

    Args:
        database: The database.
    """
