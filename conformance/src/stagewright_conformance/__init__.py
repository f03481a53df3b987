"""The conformance suite that every Stagewright adapter passes: one class per behaviour, fixtures to override."""

from stagewright_conformance.ai_calls import AICallSuite
from stagewright_conformance.annotations import AnnotationSuite
from stagewright_conformance.blob_store import BlobListingSuite, BlobStreamSuite, BlobSuite
from stagewright_conformance.borrowed_sessions import BorrowedSessionSuite, CallersSession, OpenSession
from stagewright_conformance.capabilities import Capabilities
from stagewright_conformance.definitions import DefinitionSuite
from stagewright_conformance.deployments import Deployment, DeploymentSuite
from stagewright_conformance.engine import EngineSuite
from stagewright_conformance.engine_crashes import EngineCrashSuite
from stagewright_conformance.engine_crowds import EngineCrowdSuite
from stagewright_conformance.enlistment import TransportEnlistmentSuite
from stagewright_conformance.event_sink import EventDestination, EventSinkSuite
from stagewright_conformance.heartbeats import HeartbeatSuite
from stagewright_conformance.idempotency import IdempotencySuite
from stagewright_conformance.isolation import IsolationSuite, RowLockSuite
from stagewright_conformance.job_fences import JobAcknowledgementSuite, JobFenceSuite
from stagewright_conformance.job_leases import JobAdminSuite, JobLeaseSuite
from stagewright_conformance.job_listing import JobListingSuite
from stagewright_conformance.job_resumption import JobResumptionSuite
from stagewright_conformance.job_transport import JobQueueSuite, PassTime
from stagewright_conformance.loaded_runs import LoadedRunSuite
from stagewright_conformance.logs import LogSuite
from stagewright_conformance.outbox import OutboxSuite
from stagewright_conformance.outbox_delivery import OutboxDeliverySuite
from stagewright_conformance.outlook import JobOutlookSuite, OutlookSuite
from stagewright_conformance.paging import PagingSuite, StepPagingSuite
from stagewright_conformance.port_suites import (
    AI_CALL_SUITES,
    BLOB_STORE_SUITES,
    ENGINE_SUITES,
    EVENT_SINK_SUITES,
    JOB_TRANSPORT_SUITES,
    PERSISTENCE_SUITES,
    PRESIGNER_SUITES,
    RUN_READER_SUITES,
    STEP_LEDGER_SUITES,
    suites_left_out,
)
from stagewright_conformance.presigning import PresignerSuite
from stagewright_conformance.purges import PurgeSuite
from stagewright_conformance.run_claims import RunClaimSuite
from stagewright_conformance.run_reader import RunReaderSuite, StepListingSuite
from stagewright_conformance.runs import RunSuite
from stagewright_conformance.savepoints import SavepointSuite
from stagewright_conformance.signals import SignalSuite
from stagewright_conformance.stages import StageSuite
from stagewright_conformance.step_ledger import StepEnlistmentSuite, StepLedgerSuite
from stagewright_conformance.suite import PersistenceSuite, Scale, Suite
from stagewright_conformance.targets import installed_targets
from stagewright_conformance.transactions import TransactionSuite
from stagewright_conformance.waiting_stages import StuckRunSuite, WaitingStageSuite
from stagewright_conformance.wake_ups import WakeUpSuite

__all__ = [
    "AI_CALL_SUITES",
    "BLOB_STORE_SUITES",
    "ENGINE_SUITES",
    "EVENT_SINK_SUITES",
    "JOB_TRANSPORT_SUITES",
    "PERSISTENCE_SUITES",
    "PRESIGNER_SUITES",
    "RUN_READER_SUITES",
    "STEP_LEDGER_SUITES",
    "AICallSuite",
    "AnnotationSuite",
    "BlobListingSuite",
    "BlobStreamSuite",
    "BlobSuite",
    "BorrowedSessionSuite",
    "CallersSession",
    "Capabilities",
    "DefinitionSuite",
    "Deployment",
    "DeploymentSuite",
    "EngineCrashSuite",
    "EngineCrowdSuite",
    "EngineSuite",
    "EventDestination",
    "EventSinkSuite",
    "HeartbeatSuite",
    "IdempotencySuite",
    "IsolationSuite",
    "JobAcknowledgementSuite",
    "JobAdminSuite",
    "JobFenceSuite",
    "JobLeaseSuite",
    "JobListingSuite",
    "JobOutlookSuite",
    "JobQueueSuite",
    "JobResumptionSuite",
    "LoadedRunSuite",
    "LogSuite",
    "OpenSession",
    "OutboxDeliverySuite",
    "OutboxSuite",
    "OutlookSuite",
    "PagingSuite",
    "PassTime",
    "PersistenceSuite",
    "PresignerSuite",
    "PurgeSuite",
    "RowLockSuite",
    "RunClaimSuite",
    "RunReaderSuite",
    "RunSuite",
    "SavepointSuite",
    "Scale",
    "SignalSuite",
    "StageSuite",
    "StepEnlistmentSuite",
    "StepLedgerSuite",
    "StepListingSuite",
    "StepPagingSuite",
    "StuckRunSuite",
    "Suite",
    "TransactionSuite",
    "TransportEnlistmentSuite",
    "WaitingStageSuite",
    "WakeUpSuite",
    "installed_targets",
    "suites_left_out",
]
