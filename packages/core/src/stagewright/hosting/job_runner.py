"""Executing one delivered job and settling what the kernel leaves to its host."""

import logging
from datetime import timedelta
from typing import Final

from stagewright.commands import ExecuteJob, JobRef, TransitionRun
from stagewright.definitions import AbortSignal
from stagewright.errors import RunNotFoundError, UnknownStageError, UnknownWorkflowError
from stagewright.kernel import Kernel
from stagewright.records import DequeuedJob

__all__ = ["hand_back", "run_job"]

_VERSION_PAUSE: Final = timedelta(seconds=30)
_RACE_PAUSE: Final = timedelta(seconds=1)
_log: Final = logging.getLogger("stagewright.host")


async def run_job(kernel: Kernel, job: DequeuedJob, *, abort: AbortSignal | None = None) -> None:
    """Execute a job. Its acknowledgement is the kernel's, unless the job turns out to be one that must not run.

    Args:
        kernel: The kernel.
        job: The job, as `ClaimJobs` gave it.
        abort: Set while the body runs to tell it to stop.
    """
    reference = JobRef(job.job_id, job.fence)
    try:
        result = await kernel.dispatch(
            ExecuteJob(
                run_id=job.run_id,
                workflow_id=job.workflow_id,
                stage_id=job.stage_id,
                job=reference,
                abort=abort,
            )
        )
    except (RunNotFoundError, UnknownWorkflowError, UnknownStageError) as error:
        _log.error("job %s can't be executed by anybody: %s", job.job_id, error)
        await kernel.ports.job_transport.fail(job.job_id, str(error), retry=False, fence=job.fence)
        return
    transport, now = kernel.ports.job_transport, kernel.ports.clock.now()
    match result.ghost_reason:
        case None if not kernel.ports.transport_enlists and not result.will_retry:
            await kernel.dispatch(TransitionRun(job.run_id))
        case None:
            return
        case "orphan":
            await transport.fail(job.job_id, str(result.error), retry=False, fence=job.fence)
        case "race":
            await transport.defer(job.job_id, now + _RACE_PAUSE, str(result.error), job.fence)
        case "version":
            await transport.defer(job.job_id, now + _VERSION_PAUSE, str(result.error), job.fence)


async def hand_back(kernel: Kernel, job: DequeuedJob) -> None:
    """Give up a job whose execution was cut off: it is claimable at once, and no budget is spent."""
    now = kernel.ports.clock.now()
    try:
        await kernel.ports.job_transport.defer(job.job_id, now, "handed back by its worker", job.fence)
    except Exception:  # the job's lease does the same, later
        _log.warning(
            "job %s could not be handed back; it waits for its lease to end", job.job_id, exc_info=True
        )
