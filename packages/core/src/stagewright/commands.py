"""Every command and its result."""

from stagewright.annotations import Actor, AnnotationInput
from stagewright.kernel.command import Command
from stagewright.kernel.commands.job_claim import ClaimJobs, ClaimJobsResult
from stagewright.kernel.commands.job_execute import ExecuteJob, ExecuteJobResult, JobRef
from stagewright.kernel.commands.job_heartbeat import HeartbeatJob, HeartbeatJobResult
from stagewright.kernel.commands.lease_reap_stale import ReapStaleLeases, ReapStaleLeasesResult
from stagewright.kernel.commands.outbox_flush import FlushOutbox, FlushOutboxResult
from stagewright.kernel.commands.plugin_replay_dlq import ReplayDeadLetters, ReplayDeadLettersResult
from stagewright.kernel.commands.run_cancel import CancelRun, CancelRunResult
from stagewright.kernel.commands.run_claim_pending import ClaimedRun, ClaimPendingRuns, ClaimPendingRunsResult
from stagewright.kernel.commands.run_create import CreateRun, CreateRunResult
from stagewright.kernel.commands.run_list_versions import ListVersions, ListVersionsResult
from stagewright.kernel.commands.run_purge import PurgeRuns, PurgeRunsResult
from stagewright.kernel.commands.run_reap_stuck import ReapStuckRuns, ReapStuckRunsResult
from stagewright.kernel.commands.run_redrive import (
    FromStage,
    LastFailure,
    RedriveRun,
    RedriveRunResult,
    Start,
)
from stagewright.kernel.commands.run_rerun_from import RerunFrom, RerunFromResult
from stagewright.kernel.commands.run_transition import TransitionRun, TransitionRunResult
from stagewright.kernel.commands.stage_poll_suspended import PollSuspendedStages, PollSuspendedStagesResult
from stagewright.kernel.commands.step_signal import SignalStep, SignalStepResult

__all__ = [
    "Actor",
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
    "FromStage",
    "HeartbeatJob",
    "HeartbeatJobResult",
    "JobRef",
    "LastFailure",
    "ListVersions",
    "ListVersionsResult",
    "PollSuspendedStages",
    "PollSuspendedStagesResult",
    "PurgeRuns",
    "PurgeRunsResult",
    "ReapStaleLeases",
    "ReapStaleLeasesResult",
    "ReapStuckRuns",
    "ReapStuckRunsResult",
    "RedriveRun",
    "RedriveRunResult",
    "ReplayDeadLetters",
    "ReplayDeadLettersResult",
    "RerunFrom",
    "RerunFromResult",
    "SignalStep",
    "SignalStepResult",
    "Start",
    "TransitionRun",
    "TransitionRunResult",
]
