"""All state of runs in an SQL database."""

from stagewright_persistence_sqlalchemy.annotations import AnnotationRows
from stagewright_persistence_sqlalchemy.idempotency import IdempotencyKeys
from stagewright_persistence_sqlalchemy.outbox import OutboxStores
from stagewright_persistence_sqlalchemy.run_reader import RunReading
from stagewright_persistence_sqlalchemy.runs import RunStores
from stagewright_persistence_sqlalchemy.waiting import WaitsForWork

__all__ = ["SqlAlchemyPersistence"]


class SqlAlchemyPersistence(
    RunStores, AnnotationRows, OutboxStores, IdempotencyKeys, RunReading, WaitsForWork
):
    """A `Persistence`, a `RunReader` and a `WorkNotifier` over one database.

    Writes of a transaction are held back until its next read or its commit, and sent together then.

    Args:
        database: The database.
    """
