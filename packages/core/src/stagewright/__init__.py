"""Stagewright: durable workflows inside your own application and database.

A name is imported when it is first used, so that code which only defines workflows doesn't wait for what runs them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
else:
    _HOMES = {
        "Kernel": "kernel",
        "KernelServices": "ports",
        "NonRetryableError": "errors",
        "Status": "status",
        "SyncKernel": "hosting.sync_kernel",
        "derive_external_key": "runtime.steps.external_key",
        "is_step_control_flow": "runtime.steps.control_flow",
        "open_kernel": "hosting.assembly",
    }
    """Where names are that aren't among the definitions."""

    _ROOMS = (
        *("blob_keys", "commands", "definitions", "errors", "events", "filesystem", "hosting", "kernel"),
        *("memory", "plugins", "ports", "records", "runtime", "status", "system"),
    )
    """Modules for which `import stagewright` is enough."""

    def __getattr__(name):
        if name in __all__:
            value = getattr(import_module(f"{__name__}.{_HOMES.get(name, 'definitions')}"), name)
            globals()[name] = value
            return value
        if name in _ROOMS:
            return import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), *__all__, *_ROOMS})


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
