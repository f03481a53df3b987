"""The conformance suite that every Stagewright adapter passes: one class per behaviour, fixtures to override.

A name is imported, and pytest with it, when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stagewright_conformance.ai_calls import AICallSuite
    from stagewright_conformance.annotations import AnnotationSuite
    from stagewright_conformance.blob_store import (
        BlobDateSuite,
        BlobListingSuite,
        BlobStreamSuite,
        BlobSuite,
    )
    from stagewright_conformance.borrowed_sessions import BorrowedSessionSuite, CallersSession, OpenSession
    from stagewright_conformance.capabilities import Capabilities
    from stagewright_conformance.definitions import DefinitionSuite
    from stagewright_conformance.delivered_job_enlistment import DeliveredJobEnlistmentSuite
    from stagewright_conformance.delivered_jobs import DeliveredJobSuite
    from stagewright_conformance.deployments import Deployment, DeploymentSuite
    from stagewright_conformance.engine import EngineSuite
    from stagewright_conformance.engine_crashes import EngineCrashSuite
    from stagewright_conformance.engine_crowds import EngineCrowdSuite
    from stagewright_conformance.enlistment import TransportEnlistmentSuite
    from stagewright_conformance.event_sink import EventDestination, EventSinkSuite
    from stagewright_conformance.expected_runs import ExpectedRunSuite
    from stagewright_conformance.fair_claims import FairClaimSuite
    from stagewright_conformance.heartbeats import HeartbeatSuite
    from stagewright_conformance.idempotency import IdempotencySuite
    from stagewright_conformance.isolation import IsolationSuite, RowLockSuite
    from stagewright_conformance.job_fairness import FairDeliverySuite, OpenFair
    from stagewright_conformance.job_fences import JobAcknowledgementSuite, JobFenceSuite
    from stagewright_conformance.job_groups import JobGroupSuite
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
        BLOB_DATE_SUITES,
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
else:
    _HOMES = {
        "AICallSuite": "ai_calls",
        "AI_CALL_SUITES": "port_suites",
        "AnnotationSuite": "annotations",
        "BLOB_DATE_SUITES": "port_suites",
        "BLOB_STORE_SUITES": "port_suites",
        "BlobDateSuite": "blob_store",
        "BlobListingSuite": "blob_store",
        "BlobStreamSuite": "blob_store",
        "BlobSuite": "blob_store",
        "BorrowedSessionSuite": "borrowed_sessions",
        "CallersSession": "borrowed_sessions",
        "Capabilities": "capabilities",
        "DefinitionSuite": "definitions",
        "DeliveredJobEnlistmentSuite": "delivered_job_enlistment",
        "DeliveredJobSuite": "delivered_jobs",
        "Deployment": "deployments",
        "DeploymentSuite": "deployments",
        "ENGINE_SUITES": "port_suites",
        "EVENT_SINK_SUITES": "port_suites",
        "EngineCrashSuite": "engine_crashes",
        "EngineCrowdSuite": "engine_crowds",
        "EngineSuite": "engine",
        "EventDestination": "event_sink",
        "EventSinkSuite": "event_sink",
        "FairClaimSuite": "fair_claims",
        "FairDeliverySuite": "job_fairness",
        "HeartbeatSuite": "heartbeats",
        "IdempotencySuite": "idempotency",
        "IsolationSuite": "isolation",
        "JOB_TRANSPORT_SUITES": "port_suites",
        "JobAcknowledgementSuite": "job_fences",
        "JobAdminSuite": "job_leases",
        "JobFenceSuite": "job_fences",
        "JobGroupSuite": "job_groups",
        "JobLeaseSuite": "job_leases",
        "JobListingSuite": "job_listing",
        "JobOutlookSuite": "outlook",
        "JobQueueSuite": "job_transport",
        "JobResumptionSuite": "job_resumption",
        "ExpectedRunSuite": "expected_runs",
        "LoadedRunSuite": "loaded_runs",
        "LogSuite": "logs",
        "OpenFair": "job_fairness",
        "OpenSession": "borrowed_sessions",
        "OutboxDeliverySuite": "outbox_delivery",
        "OutboxSuite": "outbox",
        "OutlookSuite": "outlook",
        "PERSISTENCE_SUITES": "port_suites",
        "PRESIGNER_SUITES": "port_suites",
        "PagingSuite": "paging",
        "PassTime": "job_transport",
        "PersistenceSuite": "suite",
        "PresignerSuite": "presigning",
        "PurgeSuite": "purges",
        "RUN_READER_SUITES": "port_suites",
        "RowLockSuite": "isolation",
        "RunClaimSuite": "run_claims",
        "RunReaderSuite": "run_reader",
        "RunSuite": "runs",
        "STEP_LEDGER_SUITES": "port_suites",
        "SavepointSuite": "savepoints",
        "Scale": "suite",
        "SignalSuite": "signals",
        "StageSuite": "stages",
        "StepEnlistmentSuite": "step_ledger",
        "StepLedgerSuite": "step_ledger",
        "StepListingSuite": "run_reader",
        "StepPagingSuite": "paging",
        "StuckRunSuite": "waiting_stages",
        "Suite": "suite",
        "TransactionSuite": "transactions",
        "TransportEnlistmentSuite": "enlistment",
        "WaitingStageSuite": "waiting_stages",
        "WakeUpSuite": "wake_ups",
        "installed_targets": "targets",
        "suites_left_out": "port_suites",
    }

    def __getattr__(name):
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *_HOMES})


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
    "AICallSuite",
    "AnnotationSuite",
    "BlobDateSuite",
    "BlobListingSuite",
    "BlobStreamSuite",
    "BlobSuite",
    "BorrowedSessionSuite",
    "CallersSession",
    "Capabilities",
    "DefinitionSuite",
    "DeliveredJobEnlistmentSuite",
    "DeliveredJobSuite",
    "Deployment",
    "DeploymentSuite",
    "EngineCrashSuite",
    "EngineCrowdSuite",
    "EngineSuite",
    "EventDestination",
    "EventSinkSuite",
    "ExpectedRunSuite",
    "FairClaimSuite",
    "FairDeliverySuite",
    "HeartbeatSuite",
    "IdempotencySuite",
    "IsolationSuite",
    "JobAcknowledgementSuite",
    "JobAdminSuite",
    "JobFenceSuite",
    "JobGroupSuite",
    "JobLeaseSuite",
    "JobListingSuite",
    "JobOutlookSuite",
    "JobQueueSuite",
    "JobResumptionSuite",
    "LoadedRunSuite",
    "LogSuite",
    "OpenFair",
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
