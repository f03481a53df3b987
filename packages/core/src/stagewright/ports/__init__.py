"""The Protocols that adapters implement; their docstrings are what the conformance suite checks.

An adapter need not inherit from them. One that is opened by URL gives what it has as a
`stagewright.plugins.AdapterSet`: `Persistence`, `JobTransport`, `StepLedger`, `BlobStore`, `RunReader`, `EventSink`,
`AICallLogger` and `Clock`. `Enlistable`, `WorkNotifier`, `OpensHeartbeats`, `GroupsJobs`, `ForeseesWork`,
`BorrowsSessions`, `Presigner`, `RetryBudget` and `DeliveryLimit` are what one may offer besides. `python -m pydoc
stagewright.ports.StepLedger` shows the obligations of one.

All of them are called by several tasks at once, and by other processes on the same store meanwhile. A call that is
cancelled has taken effect as a whole or not at all. What an adapter can't do this time it raises as `TransientError` if
nothing was kept, and as `OutcomeUnknownError` if something may have been, with the vendor's error as the cause.
"""

from stagewright.ports.ai_calls import AICallLogger, AICallTotals, KernelServices
from stagewright.ports.annotations import AnnotationStore
from stagewright.ports.batches_of_one import BatchesOfOne
from stagewright.ports.blob_store import BlobReader, BlobStore, BlobWriter, DatesBlobs, Presigner
from stagewright.ports.capabilities import (
    BorrowsSessions,
    CallersThread,
    DeliversAtOnce,
    Enlistable,
    GroupsJobs,
    HeartbeatChannel,
    MayLoseJobs,
    OpensHeartbeats,
    WorkNotifier,
)
from stagewright.ports.clock import Clock
from stagewright.ports.definitions import DefinitionStore
from stagewright.ports.event_sink import DeliveryLimit, EventSink, RetryBudget
from stagewright.ports.executor import (
    ActivityEnding,
    ActivityExecutor,
    ActivityOutcome,
    ActivityRun,
    BodyFailed,
    BodyReturned,
    BodySuspended,
    BodyWaits,
    StageResources,
)
from stagewright.ports.idempotency import IdempotencyStore
from stagewright.ports.ids import IdSource, RandomSource
from stagewright.ports.job_transport import JobAdmin, JobLeases, JobQueue, JobTransport
from stagewright.ports.logs import LogStore
from stagewright.ports.outbox import OutboxDelivery, OutboxStore
from stagewright.ports.outlook import ForeseesWork
from stagewright.ports.persistence import Persistence
from stagewright.ports.purges import PurgeStore
from stagewright.ports.registry import EnumerableRegistry, WorkflowRegistry
from stagewright.ports.run_reader import RunReader
from stagewright.ports.runs import RunClaims, RunStore
from stagewright.ports.signals import SignalInbox, SignalStore
from stagewright.ports.stages import StageStore
from stagewright.ports.step_ledger import StepLedger
from stagewright.ports.waiting_stages import WaitingStageStore

__all__ = [
    "AICallLogger",
    "AICallTotals",
    "ActivityEnding",
    "ActivityExecutor",
    "ActivityOutcome",
    "ActivityRun",
    "AnnotationStore",
    "BatchesOfOne",
    "BlobReader",
    "BlobStore",
    "BlobWriter",
    "BodyFailed",
    "BodyReturned",
    "BodySuspended",
    "BodyWaits",
    "BorrowsSessions",
    "CallersThread",
    "Clock",
    "DatesBlobs",
    "DefinitionStore",
    "DeliversAtOnce",
    "DeliveryLimit",
    "Enlistable",
    "EnumerableRegistry",
    "EventSink",
    "ForeseesWork",
    "GroupsJobs",
    "HeartbeatChannel",
    "IdSource",
    "IdempotencyStore",
    "JobAdmin",
    "JobLeases",
    "JobQueue",
    "JobTransport",
    "KernelServices",
    "LogStore",
    "MayLoseJobs",
    "OpensHeartbeats",
    "OutboxDelivery",
    "OutboxStore",
    "Persistence",
    "Presigner",
    "PurgeStore",
    "RandomSource",
    "RetryBudget",
    "RunClaims",
    "RunReader",
    "RunStore",
    "SignalInbox",
    "SignalStore",
    "StageResources",
    "StageStore",
    "StepLedger",
    "WaitingStageStore",
    "WorkNotifier",
    "WorkflowRegistry",
]
