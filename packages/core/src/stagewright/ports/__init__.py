"""The Protocols that adapters implement; their docstrings are what the conformance suite checks."""

from stagewright.ports.ai_calls import AICallLogger, AICallTotals, KernelServices
from stagewright.ports.annotations import AnnotationStore
from stagewright.ports.blob_store import BlobReader, BlobStore, BlobWriter, Presigner
from stagewright.ports.capabilities import Enlistable, WorkNotifier
from stagewright.ports.clock import Clock
from stagewright.ports.definitions import DefinitionStore
from stagewright.ports.event_sink import EventSink, RetryBudget
from stagewright.ports.executor import (
    ActivityEnding,
    ActivityExecutor,
    ActivityOutcome,
    ActivityRun,
    BodyFailed,
    BodyReturned,
    BodySuspended,
    StageResources,
)
from stagewright.ports.idempotency import IdempotencyStore
from stagewright.ports.ids import IdSource, RandomSource
from stagewright.ports.job_transport import JobAdmin, JobLeases, JobQueue, JobTransport
from stagewright.ports.logs import LogStore
from stagewright.ports.outbox import OutboxDelivery, OutboxStore
from stagewright.ports.persistence import Persistence
from stagewright.ports.registry import EnumerableRegistry, WorkflowRegistry
from stagewright.ports.run_reader import RunReader
from stagewright.ports.runs import RunStore
from stagewright.ports.stages import StageStore
from stagewright.ports.step_ledger import StepLedger

__all__ = [
    "AICallLogger",
    "AICallTotals",
    "ActivityEnding",
    "ActivityExecutor",
    "ActivityOutcome",
    "ActivityRun",
    "AnnotationStore",
    "BlobReader",
    "BlobStore",
    "BlobWriter",
    "BodyFailed",
    "BodyReturned",
    "BodySuspended",
    "Clock",
    "DefinitionStore",
    "Enlistable",
    "EnumerableRegistry",
    "EventSink",
    "IdSource",
    "IdempotencyStore",
    "JobAdmin",
    "JobLeases",
    "JobQueue",
    "JobTransport",
    "KernelServices",
    "LogStore",
    "OutboxDelivery",
    "OutboxStore",
    "Persistence",
    "Presigner",
    "RandomSource",
    "RetryBudget",
    "RunReader",
    "RunStore",
    "StageResources",
    "StageStore",
    "StepLedger",
    "WorkNotifier",
    "WorkflowRegistry",
]
