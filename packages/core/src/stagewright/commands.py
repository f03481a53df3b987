"""Every command and its result."""

from stagewright.annotations import AnnotationInput
from stagewright.kernel.command import Command
from stagewright.kernel.commands.job_claim import ClaimJobs, ClaimJobsResult
from stagewright.kernel.commands.job_execute import ExecuteJob, ExecuteJobResult, JobRef
from stagewright.kernel.commands.outbox_flush import FlushOutbox, FlushOutboxResult
from stagewright.kernel.commands.run_cancel import CancelRun, CancelRunResult
from stagewright.kernel.commands.run_claim_pending import ClaimedRun, ClaimPendingRuns, ClaimPendingRunsResult
from stagewright.kernel.commands.run_create import CreateRun, CreateRunResult
from stagewright.kernel.commands.run_transition import TransitionRun, TransitionRunResult

__all__ = [
    "AnnotationInput",
    "CancelRun",
    "CancelRunResult",
    "ClaimJobs",
    "ClaimJobsResult",
    "ClaimPendingRuns",
    "ClaimPendingRunsResult",
    "ClaimedRun",
    "Command",
    "CreateRun",
    "CreateRunResult",
    "ExecuteJob",
    "ExecuteJobResult",
    "FlushOutbox",
    "FlushOutboxResult",
    "JobRef",
    "TransitionRun",
    "TransitionRunResult",
]
