"""What authors write: stages, workflows, and the types of what flows between them."""

from stagewright.definitions.abort import AbortReason, AbortSignal
from stagewright.definitions.builder import WorkflowBuilder, define_workflow
from stagewright.definitions.context import (
    BlockingStageContext,
    BlockingStageStorage,
    EmptyConfig,
    StageContext,
    StageReference,
    StageStorage,
)
from stagewright.definitions.drift import StructureDrift, drift_between
from stagewright.definitions.plan import ExecutionPlan
from stagewright.definitions.registry import WorkflowRegistry
from stagewright.definitions.results import NotReady, Ready, StageResult, Suspend
from stagewright.definitions.retry_policy import RetryPolicy
from stagewright.definitions.schema import Schema
from stagewright.definitions.snapshot import structure_hash
from stagewright.definitions.stage import Stage, StageMode
from stagewright.definitions.stage_definition import define_stage, stage
from stagewright.definitions.stage_ids import StageIds
from stagewright.definitions.steps import Backoff, BlockingStageSteps, OnReclaim, StageSteps, StepRun
from stagewright.definitions.workflow import Workflow

__all__ = [
    "AbortReason",
    "AbortSignal",
    "Backoff",
    "BlockingStageContext",
    "BlockingStageSteps",
    "BlockingStageStorage",
    "EmptyConfig",
    "ExecutionPlan",
    "NotReady",
    "OnReclaim",
    "Ready",
    "RetryPolicy",
    "Schema",
    "Stage",
    "StageContext",
    "StageIds",
    "StageMode",
    "StageReference",
    "StageResult",
    "StageSteps",
    "StageStorage",
    "StepRun",
    "StructureDrift",
    "Suspend",
    "Workflow",
    "WorkflowBuilder",
    "WorkflowRegistry",
    "define_stage",
    "define_workflow",
    "drift_between",
    "stage",
    "structure_hash",
]
