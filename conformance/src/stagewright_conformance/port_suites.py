"""Which suites together make up a port: an adapter that offers the port runs all of them."""

import inspect
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from stagewright_conformance.ai_calls import AICallSuite
from stagewright_conformance.annotations import AnnotationSuite
from stagewright_conformance.blob_store import (
    BlobDateSuite,
    BlobListingSuite,
    BlobStreamSuite,
    BlobSuite,
)
from stagewright_conformance.borrowed_sessions import BorrowedSessionSuite
from stagewright_conformance.definitions import DefinitionSuite
from stagewright_conformance.delivered_job_enlistment import DeliveredJobEnlistmentSuite
from stagewright_conformance.delivered_jobs import DeliveredJobSuite
from stagewright_conformance.engine import EngineSuite
from stagewright_conformance.engine_crashes import EngineCrashSuite
from stagewright_conformance.engine_crowds import EngineCrowdSuite
from stagewright_conformance.enlistment import TransportEnlistmentSuite
from stagewright_conformance.event_sink import EventSinkSuite
from stagewright_conformance.expected_runs import ExpectedRunSuite
from stagewright_conformance.fair_claims import FairClaimSuite
from stagewright_conformance.heartbeats import HeartbeatSuite
from stagewright_conformance.idempotency import IdempotencySuite
from stagewright_conformance.isolation import IsolationSuite, RowLockSuite
from stagewright_conformance.job_fairness import FairDeliverySuite
from stagewright_conformance.job_fences import JobAcknowledgementSuite, JobFenceSuite
from stagewright_conformance.job_groups import JobGroupSuite
from stagewright_conformance.job_leases import JobAdminSuite, JobLeaseSuite
from stagewright_conformance.job_listing import JobListingSuite
from stagewright_conformance.job_resumption import JobResumptionSuite
from stagewright_conformance.job_transport import JobQueueSuite
from stagewright_conformance.loaded_runs import LoadedRunSuite
from stagewright_conformance.logs import LogSuite
from stagewright_conformance.outbox import OutboxSuite
from stagewright_conformance.outbox_delivery import OutboxDeliverySuite
from stagewright_conformance.outlook import JobOutlookSuite, OutlookSuite
from stagewright_conformance.paging import PagingSuite, StepPagingSuite
from stagewright_conformance.presigning import PresignerSuite
from stagewright_conformance.purges import PurgeSuite
from stagewright_conformance.run_claims import RunClaimSuite
from stagewright_conformance.run_reader import RunReaderSuite, StepListingSuite
from stagewright_conformance.runs import RunSuite
from stagewright_conformance.savepoints import SavepointSuite
from stagewright_conformance.signals import SignalSuite
from stagewright_conformance.stages import StageSuite
from stagewright_conformance.step_ledger import StepEnlistmentSuite, StepLedgerSuite
from stagewright_conformance.suite import Suite
from stagewright_conformance.transactions import TransactionSuite
from stagewright_conformance.waiting_stages import StuckRunSuite, WaitingStageSuite
from stagewright_conformance.wake_ups import WakeUpSuite

__all__ = [
    "AI_CALL_SUITES",
    "BLOB_DATE_SUITES",
    "BLOB_STORE_SUITES",
    "ENGINE_SUITES",
    "EVENT_SINK_SUITES",
    "JOB_TRANSPORT_SUITES",
    "PERSISTENCE_SUITES",
    "PRESIGNER_SUITES",
    "RUN_READER_SUITES",
    "STEP_LEDGER_SUITES",
    "suites_left_out",
]

Suites: TypeAlias = tuple[type[Suite], ...]

PERSISTENCE_SUITES: Final[Suites] = (
    TransactionSuite,
    SavepointSuite,
    IsolationSuite,
    RowLockSuite,
    RunSuite,
    ExpectedRunSuite,
    LoadedRunSuite,
    RunClaimSuite,
    StuckRunSuite,
    StageSuite,
    WaitingStageSuite,
    DefinitionSuite,
    AnnotationSuite,
    LogSuite,
    OutboxSuite,
    OutboxDeliverySuite,
    IdempotencySuite,
    SignalSuite,
    PurgeSuite,
    BorrowedSessionSuite,
    WakeUpSuite,
    OutlookSuite,
    JobOutlookSuite,
)
"""The last two are for a persistence that is a `ForeseesWork`; the very last for one that keeps jobs too."""

JOB_TRANSPORT_SUITES: Final[Suites] = (
    JobQueueSuite,
    JobResumptionSuite,
    JobAcknowledgementSuite,
    JobFenceSuite,
    JobLeaseSuite,
    HeartbeatSuite,
    JobAdminSuite,
    JobListingSuite,
    FairDeliverySuite,
    JobGroupSuite,
    TransportEnlistmentSuite,
    FairClaimSuite,
    DeliveredJobSuite,
    DeliveredJobEnlistmentSuite,
)
"""The last four are for a transport in the persistence's database alone; another leaves them out."""

BLOB_STORE_SUITES: Final[Suites] = (BlobSuite, BlobListingSuite, BlobStreamSuite)

BLOB_DATE_SUITES: Final[Suites] = (BlobDateSuite,)
"""For a blob store that is a `DatesBlobs`."""

PRESIGNER_SUITES: Final[Suites] = (PresignerSuite,)
"""For a blob store that is a `Presigner`."""

STEP_LEDGER_SUITES: Final[Suites] = (StepLedgerSuite, StepEnlistmentSuite)
"""The last is for a ledger in the persistence's database alone; another leaves it out."""

AI_CALL_SUITES: Final[Suites] = (AICallSuite,)

RUN_READER_SUITES: Final[Suites] = (RunReaderSuite, PagingSuite, StepListingSuite, StepPagingSuite)

EVENT_SINK_SUITES: Final[Suites] = (EventSinkSuite,)

ENGINE_SUITES: Final[Suites] = (EngineSuite, EngineCrashSuite, EngineCrowdSuite)
"""For any adapters: whole kernels over those that are given, and over adapters in memory for the rest."""


def suites_left_out(namespace: Mapping[str, object], suites: Iterable[type[Suite]]) -> list[str]:
    """The names of the suites that no test class runs.

    Args:
        namespace: Of the adapter's test module: `globals()`.
        suites: What has to run, such as `BLOB_STORE_SUITES`.
    """
    tests = [value for name, value in namespace.items() if name.startswith("Test") and inspect.isclass(value)]
    return [suite.__name__ for suite in suites if not any(issubclass(test, suite) for test in tests)]
