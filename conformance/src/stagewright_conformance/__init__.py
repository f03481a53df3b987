"""The conformance suite that every Stagewright adapter passes: one class per behaviour, fixtures to override."""

from stagewright_conformance.annotations import AnnotationSuite
from stagewright_conformance.blob_store import BlobListingSuite, BlobStreamSuite, BlobSuite
from stagewright_conformance.capabilities import Capabilities
from stagewright_conformance.definitions import DefinitionSuite
from stagewright_conformance.enlistment import TransportEnlistmentSuite, WakeUpSuite
from stagewright_conformance.idempotency import IdempotencySuite
from stagewright_conformance.isolation import IsolationSuite, RowLockSuite
from stagewright_conformance.job_fences import JobAcknowledgementSuite, JobFenceSuite
from stagewright_conformance.job_leases import JobAdminSuite, JobLeaseSuite
from stagewright_conformance.job_transport import JobQueueSuite, PassTime
from stagewright_conformance.loaded_runs import LoadedRunSuite
from stagewright_conformance.logs import LogSuite
from stagewright_conformance.outbox import OutboxSuite
from stagewright_conformance.outbox_delivery import OutboxDeliverySuite
from stagewright_conformance.port_suites import (
    BLOB_STORE_SUITES,
    JOB_TRANSPORT_SUITES,
    PERSISTENCE_SUITES,
    RUN_READER_SUITES,
    STEP_LEDGER_SUITES,
    suites_left_out,
)
from stagewright_conformance.run_claims import RunClaimSuite
from stagewright_conformance.run_reader import RunReaderSuite, StepListingSuite
from stagewright_conformance.runs import RunSuite
from stagewright_conformance.savepoints import SavepointSuite
from stagewright_conformance.stages import StageSuite
from stagewright_conformance.step_ledger import StepEnlistmentSuite, StepLedgerSuite
from stagewright_conformance.suite import PersistenceSuite, Scale, Suite
from stagewright_conformance.transactions import TransactionSuite

__all__ = [
    "BLOB_STORE_SUITES",
    "JOB_TRANSPORT_SUITES",
    "PERSISTENCE_SUITES",
    "RUN_READER_SUITES",
    "STEP_LEDGER_SUITES",
    "AnnotationSuite",
    "BlobListingSuite",
    "BlobStreamSuite",
    "BlobSuite",
    "Capabilities",
    "DefinitionSuite",
    "IdempotencySuite",
    "IsolationSuite",
    "JobAcknowledgementSuite",
    "JobAdminSuite",
    "JobFenceSuite",
    "JobLeaseSuite",
    "JobQueueSuite",
    "LoadedRunSuite",
    "LogSuite",
    "OutboxDeliverySuite",
    "OutboxSuite",
    "PassTime",
    "PersistenceSuite",
    "RowLockSuite",
    "RunClaimSuite",
    "RunReaderSuite",
    "RunSuite",
    "SavepointSuite",
    "Scale",
    "StageSuite",
    "StepEnlistmentSuite",
    "StepLedgerSuite",
    "StepListingSuite",
    "Suite",
    "TransactionSuite",
    "TransportEnlistmentSuite",
    "WakeUpSuite",
    "suites_left_out",
]
