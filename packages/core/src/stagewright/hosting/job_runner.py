"""Executing one delivered job and settling what the kernel leaves to its host."""

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from stagewright.commands import ExecuteJob, ExecuteJobResult, JobRef, TransitionRun
from stagewright.definitions import AbortSignal
from stagewright.duration import add_within_calendar
from stagewright.errors import RunNotFoundError, UnknownStageError, UnknownWorkflowError
from stagewright.kernel import Kernel
from stagewright.ports import WorkNotifier
from stagewright.records import DequeuedJob
from stagewright.runtime.failure import describe_exception

__all__ = ["give_up", "hand_back", "run_job", "tell_others"]

_VERSION_PAUSE: Final = timedelta(seconds=30)
_RACE_PAUSE: Final = timedelta(seconds=1)
_log: Final = logging.getLogger("stagewright.host")


async def run_job(
    kernel: Kernel,
    job: DequeuedJob,
    *,
    abort: AbortSignal | None = None,
    wakes_hosts: bool = True,
    successor: Callable[[], str | None] | None = None,
) -> ExecuteJobResult:
    """Execute a job. Its acknowledgement is the kernel's, unless the job turns out to be one that must not run.

    Args:
        kernel: The kernel.
        job: The job, as `ClaimJobs` gave it.
        abort: Set while the body runs to tell it to stop.
        wakes_hosts: As of `ExecuteJob`.
        successor: As of `ExecuteJob`; whoever gives it has to execute the result's `next_job`, or hand it back.

    Returns:
        How it ended. A job of a run, a workflow or a stage that isn't there is an `orphan`.
    """
    reference = JobRef(job.job_id, job.fence)
    transport = kernel.ports.job_transport
    try:
        result = await kernel.dispatch(
            ExecuteJob(
                run_id=job.run_id,
                workflow_id=job.workflow_id,
                stage_id=job.stage_id,
                job=reference,
                abort=abort,
                loaded=job.loaded,
                wakes_hosts=wakes_hosts,
                successor=successor,
            )
        )
    except (RunNotFoundError, UnknownWorkflowError, UnknownStageError) as error:
        _log.error("job %s can't be executed by anybody: %s", job.job_id, error)
        await give_up(kernel, job, str(error))
        described = describe_exception(error, code="GHOST_ORPHAN")
        return ExecuteJobResult(outcome="failed", error=described, ghost=True, ghost_reason="orphan")
    now = kernel.ports.clock.now()
    match result.ghost_reason:
        case None if not kernel.ports.transport_enlists and not result.will_retry:
            await _advance(kernel, job)
        case None:
            pass
        case "orphan":
            await give_up(kernel, job, str(result.error))
        case "race":
            pause = timedelta(0) if abort is not None and abort.reason == "shutdown" else _RACE_PAUSE
            await transport.defer(job.job_id, add_within_calendar(now, pause), str(result.error), job.fence)
            if not pause:
                await tell_others(kernel)
        case "version":
            await transport.defer(
                job.job_id, add_within_calendar(now, _VERSION_PAUSE), str(result.error), job.fence
            )
    return result


async def give_up(kernel: Kernel, job: DequeuedJob, why: str) -> None:
    """Fail a job whose outcome nobody wants, without a retry; a newer delivery of it is left alone."""
    await kernel.ports.job_transport.fail(job.job_id, why, retry=False, fence=job.fence)


async def hand_back(kernel: Kernel, job: DequeuedJob, *, pause: timedelta = timedelta(0)) -> bool:
    """Give up a job whose execution was cut off: it is claimable again, other hosts are told, no budget is spent.

    Args:
        kernel: The kernel.
        job: The job, as `ClaimJobs` gave it.
        pause: After how long it is claimable.

    Returns:
        Whether that was possible; if not, the end of the job's lease does it.
    """
    now = kernel.ports.clock.now()
    try:
        due_at = add_within_calendar(now, pause)
        await kernel.ports.job_transport.defer(job.job_id, due_at, "handed back by its worker", job.fence)
    except Exception:  # the job's lease does the same, later
        _log.warning(
            "job %s could not be handed back; it waits for its lease to end", job.job_id, exc_info=True
        )
        return False
    await tell_others(kernel)
    return True


async def tell_others(kernel: Kernel) -> None:
    """Wake waiting hosts: there are jobs that this one doesn't take. A failure is no more than a delay."""
    persistence = kernel.ports.persistence
    if isinstance(persistence, WorkNotifier):
        try:
            await persistence.notify("jobs")
        except Exception:  # others find the job by themselves, a little later
            _log.debug("nobody could be told of jobs that are left to others", exc_info=True)


async def _advance(kernel: Kernel, job: DequeuedJob) -> None:
    try:
        await kernel.dispatch(TransitionRun(job.run_id))
    except Exception:  # the outcome is recorded; the next look at runs that stand still does this again
        _log.warning("run %s could not be moved on yet", job.run_id, exc_info=True)
