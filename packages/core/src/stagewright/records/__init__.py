"""Frozen records: what stores keep and what people read."""

from stagewright.records.annotation import AnnotationQuery, AnnotationRecord
from stagewright.records.claim_check import ClaimCheck
from stagewright.records.definition import DefinitionRecord, ServedDefinition, Serves
from stagewright.records.error import ErrorRecord
from stagewright.records.event import EventRecord, NewEvent
from stagewright.records.idempotency import IdempotencyAnswer, KeyAcquired, KeyCompleted, KeyInProgress
from stagewright.records.job import Acknowledgement, DequeuedJob, Fence, JobRecord, LeaseSweep, NewJob
from stagewright.records.loaded_run import LoadedRun
from stagewright.records.log import LogLevel, LogRecord
from stagewright.records.page import Page, RunQuery
from stagewright.records.run import RunPatch, RunRecord
from stagewright.records.stage import StagePatch, StageRecord, StoredStage
from stagewright.records.step import StepExpectation, StepKind, StepPatch, StepRecord, StepStatus
from stagewright.records.unset import UNSET, Unset, set_fields
from stagewright.records.version import VersionSummary

__all__ = [
    "UNSET",
    "Acknowledgement",
    "AnnotationQuery",
    "AnnotationRecord",
    "ClaimCheck",
    "DefinitionRecord",
    "DequeuedJob",
    "ErrorRecord",
    "EventRecord",
    "Fence",
    "IdempotencyAnswer",
    "JobRecord",
    "KeyAcquired",
    "KeyCompleted",
    "KeyInProgress",
    "LeaseSweep",
    "LoadedRun",
    "LogLevel",
    "LogRecord",
    "NewEvent",
    "NewJob",
    "Page",
    "RunPatch",
    "RunQuery",
    "RunRecord",
    "ServedDefinition",
    "Serves",
    "StagePatch",
    "StageRecord",
    "StepExpectation",
    "StepKind",
    "StepPatch",
    "StepRecord",
    "StepStatus",
    "StoredStage",
    "Unset",
    "VersionSummary",
    "set_fields",
]
