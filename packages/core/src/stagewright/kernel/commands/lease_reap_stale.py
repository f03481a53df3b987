"""`lease.reapStale`: end the leases of jobs whose workers are lost, or that run for too long."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from typing import ClassVar

from stagewright.duration import parse_duration
from stagewright.kernel.command import Command, CommandDuration
from stagewright.kernel.context import KernelPorts
from stagewright.kernel.procedures.advance_run import fail_run
from stagewright.kernel.procedures.fail_stage import cancel_open_stages, fail_stage, follow_failure
from stagewright.kernel.procedures.jobs_of_run import jobs_of_run
from stagewright.kernel.rules.lost_jobs import error_of_lost_job
from stagewright.kernel.unit_of_work import UnitOfWork, in_transaction
from stagewright.ports import JobLeases
from stagewright.records import JobRecord, LeaseSweep
from stagewright.status import ACTIVE_STAGE_STATUSES, Status

__all__ = ["ReapStaleLeases", "ReapStaleLeasesResult", "handle"]


@dataclass(frozen=True, slots=True)
class ReapStaleLeasesResult:
    """What became of the jobs whose leases were ended.

    Attributes:
        released: How many are claimable again.
        expired: How many have FAILED, and their stages with them: they lost one worker too many, or ran too long.
    """

    released: int
    expired: int


@dataclass(frozen=True, slots=True)
class ReapStaleLeases(Command[ReapStaleLeasesResult]):
    """End leases: first those of lost workers, then those of bodies that run for too long.

    A job whose lease was not renewed is claimable again, with one more worker loss; at its limit its stage fails with
    the code `LEASE_HEARTBEAT_LOST`, and its run moves on. A job that was delivered longer ago than `absolute_timeout`
    fails its stage and its run at once, with `LEASE_ABSOLUTE_CAP`, whether it was renewed or not.

    Attributes:
        stale_threshold: A lease that was not renewed for longer than this is lost.
        absolute_timeout: No delivery lasts longer than this; None or zero is without end.
    """

    type: ClassVar[str] = "lease.reapStale"

    stale_threshold: CommandDuration
    _: KW_ONLY
    absolute_timeout: CommandDuration | None = None


@dataclass(frozen=True, slots=True)
class _Lost:
    """What a sweep over leases found: jobs to be claimed again, jobs at their limit, jobs beyond the time-out."""

    released: int
    exhausted: Sequence[JobRecord]
    runaway: Sequence[JobRecord]


async def handle(command: ReapStaleLeases, ports: KernelPorts) -> ReapStaleLeasesResult:
    """Sweep and draw the consequences together where the transport enlists, else one after the other."""
    threshold = parse_duration(command.stale_threshold, field="stale_threshold")
    cap = parse_duration(command.absolute_timeout or 0, field="absolute_timeout")
    if ports.transport_enlists:

        async def reap(unit: UnitOfWork) -> _Lost:
            assert unit.jobs is not None  # the transport enlists
            lost = await _sweep(unit.jobs, threshold, cap)
            await _fail_stages(unit, [*lost.exhausted, *lost.runaway])
            if lost.released:
                unit.notify("jobs")
            return lost

        lost = await in_transaction(ports, reap)
    else:
        lost = await _sweep(ports.job_transport, threshold, cap)
        # A crash from here on leaves stages without their jobs, which `run.reapStuck` finds by the jobs' errors.
        for job in (*lost.exhausted, *lost.runaway):
            await _fail_stage_of(ports, job)
        if lost.released:
            await in_transaction(ports, _wake_hosts)
    return ReapStaleLeasesResult(lost.released, len(lost.exhausted) + len(lost.runaway))


async def _sweep(leases: JobLeases, threshold: timedelta, cap: timedelta) -> _Lost:
    """Lost workers come first, so that a job whose worker died is tried again and not counted as a runaway."""
    sweep: LeaseSweep = await leases.release_stale(threshold)
    runaway = await leases.expire_runaway(cap) if cap else []
    return _Lost(len(sweep.released), sweep.exhausted, runaway)


async def _fail_stage_of(ports: KernelPorts, job: JobRecord) -> None:
    await in_transaction(ports, lambda unit: _fail_if_standing(unit, job))


async def _fail_if_standing(unit: UnitOfWork, job: JobRecord) -> None:
    """Fail the stage of a job from elsewhere, unless a redrive has given it another one since the sweep."""
    locked = await unit.tx.lock_runs([job.run_id])
    if not locked:
        return
    standing = {one.id: one.status for one in await jobs_of_run(unit, locked[0])}
    if standing.get(job.id) is Status.FAILED:
        await _fail_stages(unit, [job])


async def _wake_hosts(unit: UnitOfWork) -> None:
    unit.notify("jobs")


async def _fail_stages(unit: UnitOfWork, jobs: Sequence[JobRecord]) -> None:
    """Fail the stages of FAILED jobs; whoever has ended a stage or its run meanwhile was first."""
    loaded = await unit.tx.load_runs({job.run_id for job in jobs}, lock=True) if jobs else []
    for one in loaded:
        run, stages = one.run, list(one.stages)
        if run.status is not Status.RUNNING:
            continue
        promptly = None
        for job in jobs:
            record = next((stage for stage in stages if stage.stage_id == job.stage_id), None)
            if job.run_id != run.id or record is None or record.status not in ACTIVE_STAGE_STATUSES:
                continue
            error = error_of_lost_job(job)
            stages = await fail_stage(unit, stages, record, error)
            if error.code == "LEASE_ABSOLUTE_CAP":
                promptly = promptly or error
        if promptly is not None:
            await fail_run(unit, run, promptly, stages)
            await cancel_open_stages(unit, run.id, stages)
        else:
            await follow_failure(unit, run, stages)
