"""Stagewright: durable workflows inside your own application and database."""

from stagewright.definitions import (
    BlockingStageContext,
    NotReady,
    Ready,
    RetryPolicy,
    Stage,
    StageContext,
    StageIds,
    StageResult,
    StepRun,
    Suspend,
    Workflow,
    WorkflowBuilder,
    WorkflowRegistry,
    define_stage,
    define_workflow,
    stage,
)
from stagewright.errors import NonRetryableError
from stagewright.hosting.assembly import open_kernel
from stagewright.hosting.sync_kernel import SyncKernel
from stagewright.kernel import Kernel
from stagewright.ports import KernelServices
from stagewright.runtime.steps.control_flow import is_step_control_flow
from stagewright.runtime.steps.external_key import derive_external_key
from stagewright.status import Status

__all__ = [
    "BlockingStageContext",
    "Kernel",
    "KernelServices",
    "NonRetryableError",
    "NotReady",
    "Ready",
    "RetryPolicy",
    "Stage",
    "StageContext",
    "StageIds",
    "StageResult",
    "Status",
    "StepRun",
    "Suspend",
    "SyncKernel",
    "Workflow",
    "WorkflowBuilder",
    "WorkflowRegistry",
    "define_stage",
    "define_workflow",
    "derive_external_key",
    "is_step_control_flow",
    "open_kernel",
    "stage",
]
