"""Every port in this process's memory, with transactions, locks and notifications as a server database has them."""

from stagewright.memory.ai_calls import InMemoryAICallLogger
from stagewright.memory.blob_store import InMemoryBlobStore
from stagewright.memory.database import InMemoryDatabase
from stagewright.memory.job_transport import InMemoryJobTransport
from stagewright.memory.persistence import InMemoryPersistence
from stagewright.memory.step_ledger import InMemoryStepLedger

__all__ = [
    "InMemoryAICallLogger",
    "InMemoryBlobStore",
    "InMemoryDatabase",
    "InMemoryJobTransport",
    "InMemoryPersistence",
    "InMemoryStepLedger",
]
