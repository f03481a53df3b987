"""Renewing a job's lease from the event loop, and learning by it that the body has to stop."""

import asyncio
import logging
from typing import Final

from stagewright.commands import ExecuteJobResult, HeartbeatJob
from stagewright.definitions.abort import AbortReason
from stagewright.hosting.job_execution import JobExecution
from stagewright.hosting.settings import HOST_DEFAULTS, HostSettings
from stagewright.kernel import Kernel
from stagewright.records import DequeuedJob
from stagewright.status import Status

__all__ = ["beat", "execute_job_with_heartbeat", "reason_of_ended_run", "run_with_heartbeat"]

_log: Final = logging.getLogger("stagewright.host")


async def execute_job_with_heartbeat(
    kernel: Kernel, job: DequeuedJob, options: HostSettings = HOST_DEFAULTS
) -> ExecuteJobResult:
    """Execute a job, and renew its lease while it goes on.

    The body is told by `ctx.abort` when its run is cancelled or its lease is lost, and cut off after `abort_grace`.
    When the calling task is cancelled, the job is handed back.

    Args:
        kernel: The kernel.
        job: The job, as `ClaimJobs` gave it.
        options: Whose `job_heartbeat_interval` and `abort_grace` count.

    Returns:
        How it ended; the job is acknowledged.

    Raises:
        StagewrightError: If the outcome could not be recorded; the job's lease brings it to somebody else.
    """
    execution = JobExecution(kernel, job, abort_grace=options.abort_grace)
    return await run_with_heartbeat(kernel, execution, options.job_heartbeat_interval.total_seconds())


async def run_with_heartbeat(kernel: Kernel, execution: JobExecution, interval: float) -> ExecuteJobResult:
    """Run an execution, and beat every so many seconds until it has ended."""
    beating = asyncio.create_task(_beat_on(kernel, execution, interval))
    try:
        return await execution.run()
    finally:
        beating.cancel()


async def beat(kernel: Kernel, execution: JobExecution) -> None:
    """Renew the lease once, and tell the body to stop if nobody wants its outcome any more.

    A beat that fails is logged; the next one may come through before the lease ends.
    """
    job = execution.job
    try:
        answer = await kernel.dispatch(HeartbeatJob(job.job_id, job.run_id, fence=job.fence))
    except Exception as error:
        _log.warning("the lease of %s could not be renewed this time: %s", execution, error)
        return
    reason = reason_of_ended_run(answer.run_status)
    if reason is None and not answer.lease_held:
        reason = "lease-lost"
    if reason is not None:
        execution.tell(reason)


def reason_of_ended_run(status: Status | None) -> AbortReason | None:
    """Why a body of a run with this status has to stop, or None while the run goes on or isn't known."""
    match status:
        case Status.CANCELLED | Status.FAILED:
            # Failed by another stage: nobody wants this stage's outcome either way.
            return "cancelled"
        case Status.COMPLETED:
            # No run completes without this stage: somebody else took its job and ended it.
            return "lease-lost"
        case _:
            return None


async def _beat_on(kernel: Kernel, execution: JobExecution, interval: float) -> None:
    while True:
        await asyncio.sleep(interval)
        await beat(kernel, execution)
