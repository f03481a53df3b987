"""`run.reapStuck`: find runs that stand still, make up for what was lost on the way, and end those beyond help."""

import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar, Final, Literal, TypeAlias

from stagewright.duration import parse_duration, subtract_within_calendar
from stagewright.errors import SpilledPayloadUnavailableError
from stagewright.kernel.command import Command, CommandDuration
from stagewright.kernel.context import KernelPorts
from stagewright.kernel.procedures.advance_run import advance_run, fail_run
from stagewright.kernel.procedures.enqueue_owed import enqueue_owed_jobs
from stagewright.kernel.procedures.fail_stage import cancel_open_stages, fail_stage, follow_failure
from stagewright.kernel.procedures.jobs_of_run import jobs_of_run
from stagewright.kernel.procedures.open_group import job_for
from stagewright.kernel.procedures.replace_lost import replace_lost_jobs
from stagewright.kernel.rules.lost_jobs import error_of_lost_job
from stagewright.kernel.rules.standstill import (
    Enqueue,
    FailLost,
    GiveUp,
    Keep,
    MoveOn,
    Standstill,
    judge_standstill,
)
from stagewright.kernel.unit_of_work import UnitOfWork, in_transaction
from stagewright.records import ErrorRecord, JobRecord, LoadedRun, RunRecord, StagePatch, StoredStage
from stagewright.status import ACTIVE_STAGE_STATUSES, Status

__all__ = ["ReapStuckRuns", "ReapStuckRunsResult", "handle"]

_PAGE: Final = 100
_log: Final = logging.getLogger("stagewright.kernel")


@dataclass(frozen=True, slots=True)
class ReapStuckRunsResult:
    """What was done about runs that stood still.

    Attributes:
        transitioned: How many were ended; the same as `failed`.
        failed: How many are FAILED because nothing could move them any more.
        healed: How many go on, or have ended, by a step that was due and never done.
        requeued: How many jobs were enqueued that were owed or lost.
    """

    transitioned: int
    failed: int
    healed: int
    requeued: int


@dataclass(frozen=True, slots=True)
class ReapStuckRuns(Command[ReapStuckRunsResult]):
    """Look after the RUNNING runs of served definitions in which nothing has changed for a long time.

    A run that can still move is left alone: one with a job to be claimed, a worker that renews its lease, or a stage
    that waits for its time.

    Attributes:
        stuck_threshold: How long nothing has changed.
    """

    type: ClassVar[str] = "run.reapStuck"

    stuck_threshold: CommandDuration


_Deed: TypeAlias = Literal["nothing", "failed", "healed"] | int
"""What was done about a run; a number is so many jobs enqueued."""


async def handle(command: ReapStuckRuns, ports: KernelPorts) -> ReapStuckRunsResult:
    """Each run in a transaction of its own, and only if it looks stuck without one."""
    threshold = parse_duration(command.stuck_threshold, field="stuck_threshold")
    requeued = await replace_lost_jobs(ports)
    requeued += await enqueue_owed_jobs(ports, serves=ports.served_definitions())
    failed = healed = 0
    async for run in _candidates(ports, threshold):
        match await _look_after(ports, run, threshold):
            case "failed":
                failed += 1
            case "healed":
                healed += 1
            case "nothing":
                continue
            case count:
                requeued += count
    return ReapStuckRunsResult(failed, failed, healed, requeued)


async def _candidates(ports: KernelPorts, threshold: timedelta) -> AsyncIterator[RunRecord]:
    before, last = subtract_within_calendar(ports.clock.now(), threshold), None
    while True:
        page = await ports.persistence.get_stuck_runs(
            before, limit=_PAGE, after=last, serves=ports.served_definitions()
        )
        for run in page:
            yield run
        if len(page) < _PAGE:
            return
        last = page[-1].id


async def _look_after(ports: KernelPorts, run: RunRecord, threshold: timedelta) -> _Deed:
    loaded = await ports.persistence.load_runs([run.id])
    jobs = await ports.job_transport.get_jobs_by_run(run.id)
    before = subtract_within_calendar(ports.clock.now(), threshold)
    if not loaded or isinstance(_verdict(ports, loaded[0], jobs, before), Keep):
        return "nothing"
    try:
        return await in_transaction(ports, lambda unit: _reap(unit, run.id, threshold))
    except SpilledPayloadUnavailableError as error:
        _log.warning("run %s can't be moved on yet: %s", run.id, error)
        return "nothing"


def _verdict(
    ports: KernelPorts, loaded: LoadedRun, jobs: Sequence[JobRecord], before: datetime
) -> Standstill:
    """What is to be done; nothing, if anything has changed since."""
    moments = [loaded.run.updated_at, *(stage.updated_at for stage in loaded.stages)]
    if loaded.run.status is not Status.RUNNING or max(moments) > before:
        return Keep()
    by_stage = {job.stage_id: job for job in jobs}
    return judge_standstill(loaded.stages, by_stage, alive_since=before, may_lose_jobs=ports.may_lose_jobs)


async def _reap(unit: UnitOfWork, run_id: str, threshold: timedelta) -> _Deed:
    loaded = await unit.tx.load_runs([run_id], lock=True)
    if not loaded:
        return "nothing"
    run, stages = loaded[0].run, loaded[0].stages
    jobs = await jobs_of_run(unit, run)
    workflow = await unit.ports.served_workflow(run, unit.tx)
    if workflow is None:
        return "nothing"
    match _verdict(unit.ports, loaded[0], jobs, subtract_within_calendar(unit.now, threshold)):
        case Keep():
            return "nothing"
        case MoveOn():
            advance = await advance_run(unit, run, workflow, stages)
            return "nothing" if advance.action == "noop" else "healed"
        case FailLost(stage, job):
            now = await fail_stage(unit, stages, stage, error_of_lost_job(job))
            await follow_failure(unit, run, now)
            return "healed"
        case Enqueue(jobless):
            for stage in jobless:
                wanted = job_for(unit, run, workflow.stage(stage.stage_id))
                if stage.status is Status.RUNNING:
                    # Its job was lost; who still executes it is refused once it begins anew.
                    unit.resume(wanted, stage_record_id=stage.id, version=stage.version)
                    continue
                # Owed until the transport has it, so that a crash after this commit costs seconds only.
                await unit.tx.update_stage(stage.id, StagePatch(updated_at=unit.now, job_enqueued_at=None))
                unit.resume(wanted, stage_record_id=stage.id, version=stage.version + 1)
            unit.notify("jobs")
            return len(jobless)
        case GiveUp():
            if not await _are_workers_lost(unit, stages, jobs, threshold):
                return "nothing"
            await fail_run(unit, run, _why(loaded[0], threshold), stages)
            await cancel_open_stages(unit, run.id, stages)
            return "failed"


async def _are_workers_lost(
    unit: UnitOfWork, stages: Sequence[StoredStage], jobs: Sequence[JobRecord], threshold: timedelta
) -> bool:
    """Whether those who have jobs of a run have let their leases go; the transport's own clock decides that."""
    active = {stage.stage_id for stage in stages if stage.status in ACTIVE_STAGE_STATUSES}
    held = {job.id for job in jobs if job.status is Status.RUNNING and job.stage_id in active}
    if not held:
        return True
    if unit.jobs is not None:
        sweep = await unit.jobs.release_stale(threshold)
    else:
        transport = unit.ports.job_transport
        sweep = unit.fetched("sweep", lambda: transport.release_stale(threshold))
    unit.notify("jobs")
    return held <= {job.id for job in (*sweep.released, *sweep.exhausted)}


def _why(loaded: LoadedRun, threshold: timedelta) -> ErrorRecord:
    statuses = ", ".join(f"{stage.stage_id} {stage.status}" for stage in loaded.stages)
    return ErrorRecord(
        code="STUCK_RUN_REAPED",
        message=f"nothing has changed for longer than {threshold.total_seconds():g} s, and nothing is left that could "
        f"move it; its stages: {statuses}",
    )
