from stagewright.memory.annotations import InMemoryAnnotationStore
from stagewright.memory.definitions import InMemoryDefinitionStore
from stagewright.memory.idempotency import InMemoryIdempotencyStore
from stagewright.memory.logs import InMemoryLogStore
from stagewright.memory.outbox import InMemoryOutboxStore
from stagewright.memory.outlook import InMemoryOutlook
from stagewright.memory.purges import InMemoryPurgeStore
from stagewright.memory.run_reader import InMemoryRunReader
from stagewright.memory.signals import InMemorySignalStore
from stagewright.memory.stages import InMemoryStageStore
from stagewright.ports.batches_of_one import BatchesOfOne

__all__ = ["InMemoryPersistence"]


class InMemoryPersistence(
    InMemoryRunReader,
    InMemoryStageStore,
    InMemoryDefinitionStore,
    InMemoryAnnotationStore,
    InMemoryLogStore,
    InMemoryOutboxStore,
    InMemoryIdempotencyStore,
    InMemoryOutlook,
    InMemorySignalStore,
    InMemoryPurgeStore,
    BatchesOfOne,
):
    """All state of runs in this process's memory: a `Persistence`, a `RunReader` and a `WorkNotifier`.

    Args:
        database: The database; one of its own unless given.
    """
