"""When something happens next by itself, so that a clock can be moved there."""

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime

from stagewright.kernel import Kernel
from stagewright.records import StageRecord, StepRecord
from stagewright.status import Status
from stagewright.testing.harness.all_runs import each_run

__all__ = ["next_moment"]


async def next_moment(kernel: Kernel) -> datetime | None:
    """The earliest time after now at which a job is due or a wait is over; None if nothing is waited for."""
    now = kernel.ports.clock.now()
    moments = [moment async for moment in _moments(kernel) if moment > now]
    return min(moments, default=None)


async def _moments(kernel: Kernel) -> AsyncIterator[datetime]:
    async for run in each_run(kernel, statuses=[Status.RUNNING]):
        for job in await kernel.ports.job_transport.get_jobs_by_run(run.id):
            if job.status is Status.PENDING and job.due_at is not None:
                yield job.due_at
        waiting = [stage for stage in await kernel.runs.stages(run.id) if stage.next_poll_at is not None]
        steps = await kernel.runs.steps(run.id) if waiting else []
        for stage in waiting:
            of_stage = [step for step in steps if step.stage_record_id == stage.id]
            for moment in _wakes_at(stage, of_stage):
                yield moment


def _wakes_at(stage: StageRecord, steps: Sequence[StepRecord]) -> Iterable[datetime]:
    """When a suspended stage has something to do.

    One that waits for nothing but signals looks again now and then and finds nothing; these looks are passed over.
    """
    if stage.next_poll_at is None:
        return
    ends = [_ends_at(step) for step in steps if step.status == "pending" or step.retry_at is not None]
    known = [end for end in ends if end is not None]
    if known and len(known) == len(ends):
        yield max(stage.next_poll_at, min(known))
    else:
        yield stage.next_poll_at


def _ends_at(step: StepRecord) -> datetime | None:
    """When a wait ends by itself; None for one that has to ask to find out."""
    if step.status == "failed":
        return step.retry_at
    return step.deadline_at if step.kind in ("signal", "sleep") else None
