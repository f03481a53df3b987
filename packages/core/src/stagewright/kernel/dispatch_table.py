"""Which command is handled where, in which kind of transaction, and whether a key makes it happen once."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from stagewright.kernel.command import Command
from stagewright.kernel.commands import (
    job_claim,
    job_enqueue_owed,
    job_execute,
    job_heartbeat,
    lease_reap_stale,
    outbox_flush,
    plugin_replay_dlq,
    run_cancel,
    run_claim_pending,
    run_create,
    run_list_versions,
    run_purge,
    run_reap_stuck,
    run_redrive,
    run_rerun_from,
    run_transition,
    stage_poll_suspended,
    step_signal,
)

__all__ = ["ROUTES", "Route", "TransactionMode"]


class TransactionMode(Enum):
    """Where a command's transactions begin and end."""

    ONE = "the dispatcher opens one, and the handler is given it"
    OWN = "the handler opens its own short ones, so that bodies and sinks run with none open"


@dataclass(frozen=True, slots=True)
class Route:
    """One row of the table; the first parameter of `handle` is the command, the second what its mode gives it."""

    command: type[Command[Any]]
    result: type[Any]
    handle: Callable[[Any, Any], Awaitable[Any]]
    mode: TransactionMode
    keyed: bool = False


_ONE, _OWN = TransactionMode.ONE, TransactionMode.OWN

ROUTES: Final[dict[str, Route]] = {
    route.command.type: route
    for route in (
        Route(run_create.CreateRun, run_create.CreateRunResult, run_create.handle, _ONE, keyed=True),
        Route(
            run_claim_pending.ClaimPendingRuns,
            run_claim_pending.ClaimPendingRunsResult,
            run_claim_pending.handle,
            _ONE,
        ),
        Route(run_transition.TransitionRun, run_transition.TransitionRunResult, run_transition.handle, _ONE),
        Route(run_cancel.CancelRun, run_cancel.CancelRunResult, run_cancel.handle, _ONE),
        Route(run_redrive.RedriveRun, run_redrive.RedriveRunResult, run_redrive.handle, _ONE, keyed=True),
        Route(
            run_rerun_from.RerunFrom,
            run_rerun_from.RerunFromResult,
            run_rerun_from.handle,
            _ONE,
            keyed=True,
        ),
        Route(run_purge.PurgeRuns, run_purge.PurgeRunsResult, run_purge.handle, _OWN),
        Route(job_claim.ClaimJobs, job_claim.ClaimJobsResult, job_claim.handle, _OWN),
        Route(job_execute.ExecuteJob, job_execute.ExecuteJobResult, job_execute.handle, _OWN, keyed=True),
        Route(job_heartbeat.HeartbeatJob, job_heartbeat.HeartbeatJobResult, job_heartbeat.handle, _OWN),
        Route(
            job_enqueue_owed.EnqueueOwedJobs,
            job_enqueue_owed.EnqueueOwedJobsResult,
            job_enqueue_owed.handle,
            _OWN,
        ),
        Route(
            stage_poll_suspended.PollSuspendedStages,
            stage_poll_suspended.PollSuspendedStagesResult,
            stage_poll_suspended.handle,
            _OWN,
        ),
        Route(step_signal.SignalStep, step_signal.SignalStepResult, step_signal.handle, _ONE),
        Route(
            lease_reap_stale.ReapStaleLeases,
            lease_reap_stale.ReapStaleLeasesResult,
            lease_reap_stale.handle,
            _OWN,
        ),
        Route(run_reap_stuck.ReapStuckRuns, run_reap_stuck.ReapStuckRunsResult, run_reap_stuck.handle, _OWN),
        Route(outbox_flush.FlushOutbox, outbox_flush.FlushOutboxResult, outbox_flush.handle, _OWN),
        Route(
            plugin_replay_dlq.ReplayDeadLetters,
            plugin_replay_dlq.ReplayDeadLettersResult,
            plugin_replay_dlq.handle,
            _ONE,
        ),
        Route(
            run_list_versions.ListVersions,
            run_list_versions.ListVersionsResult,
            run_list_versions.handle,
            _ONE,
        ),
    )
}
"""Every command that the kernel knows, by its type."""
