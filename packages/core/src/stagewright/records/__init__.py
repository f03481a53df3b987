"""Frozen records: what stores keep and what people read."""

from stagewright.records.ai_call import AICall, LoggedAICall
from stagewright.records.annotation import AnnotationQuery, AnnotationRecord
from stagewright.records.claim_check import ClaimCheck
from stagewright.records.definition import DefinitionRecord, ServedDefinition, Serves
from stagewright.records.error import ErrorRecord
from stagewright.records.event import EventRecord, NewEvent
from stagewright.records.fairness import Fairness, group_of
from stagewright.records.idempotency import IdempotencyAnswer, KeyAcquired, KeyCompleted, KeyInProgress
from stagewright.records.job import (
    Acknowledgement,
    DequeuedJob,
    Fence,
    HeldLease,
    JobQuery,
    JobRecord,
    LeaseSweep,
    NewJob,
)
from stagewright.records.loaded_run import LoadedRun
from stagewright.records.log import LogLevel, LogRecord
from stagewright.records.outlook import WorkOutlook
from stagewright.records.page import Page, RunQuery
from stagewright.records.run import RunPatch, RunRecord
from stagewright.records.signal import SignalRecord
from stagewright.records.stage import StagePatch, StageRecord, StoredStage
from stagewright.records.step import (
    StepExpectation,
    StepKind,
    StepOwner,
    StepPatch,
    StepRecord,
    StepStatus,
)
from stagewright.records.tombstone import Tombstone
from stagewright.records.unset import UNSET, Unset, set_fields
from stagewright.records.version import VersionCounts, VersionSummary

__all__ = [
    "UNSET",
    "AICall",
    "Acknowledgement",
    "AnnotationQuery",
    "AnnotationRecord",
    "ClaimCheck",
    "DefinitionRecord",
    "DequeuedJob",
    "ErrorRecord",
    "EventRecord",
    "Fairness",
    "Fence",
    "HeldLease",
    "IdempotencyAnswer",
    "JobQuery",
    "JobRecord",
    "KeyAcquired",
    "KeyCompleted",
    "KeyInProgress",
    "LeaseSweep",
    "LoadedRun",
    "LogLevel",
    "LogRecord",
    "LoggedAICall",
    "NewEvent",
    "NewJob",
    "Page",
    "RunPatch",
    "RunQuery",
    "RunRecord",
    "ServedDefinition",
    "Serves",
    "SignalRecord",
    "StagePatch",
    "StageRecord",
    "StepExpectation",
    "StepKind",
    "StepOwner",
    "StepPatch",
    "StepRecord",
    "StepStatus",
    "StoredStage",
    "Tombstone",
    "Unset",
    "VersionCounts",
    "VersionSummary",
    "WorkOutlook",
    "group_of",
    "set_fields",
]
