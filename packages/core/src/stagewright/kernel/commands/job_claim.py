"""`job.claim`: take jobs, and start their stages in the same transaction where the transport can."""

from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar

from stagewright.kernel.command import Command, Count, Id, ServedDefinitions
from stagewright.kernel.context import KernelPorts
from stagewright.kernel.procedures.execution import JobRef
from stagewright.kernel.procedures.settle_job import Settlement, acknowledge
from stagewright.kernel.procedures.start_stage import resume_stage, start_stage
from stagewright.kernel.procedures.unpack_jobs import unpack_jobs
from stagewright.kernel.rules.waiting import is_due
from stagewright.kernel.unit_of_work import UnitOfWork, in_transaction
from stagewright.ports import JobTransport
from stagewright.records import DequeuedJob, LoadedRun, RunRecord, Serves, StoredStage
from stagewright.status import ACTIVE_STAGE_STATUSES, TERMINAL_RUN_STATUSES, Status

__all__ = ["ClaimJobs", "ClaimJobsResult", "handle"]


@dataclass(frozen=True, slots=True)
class ClaimJobsResult:
    """The jobs that the worker owns now."""

    jobs: tuple[DequeuedJob, ...]


@dataclass(frozen=True, slots=True)
class ClaimJobs(Command[ClaimJobsResult]):
    """Take up to `limit` jobs for a worker.

    A job whose payload lies in the blob store and can't be had fails as if its body had raised: it isn't among those
    that are returned, and is tried again within its budget.

    Attributes:
        worker_id: Who takes them.
        limit: At most so many.
        serves: Which definitions; None is what this kernel's registry lists, `"all"` is every one.
    """

    type: ClassVar[str] = "job.claim"

    worker_id: Id
    _: KW_ONLY
    limit: Count = 1
    serves: ServedDefinitions = None


async def handle(command: ClaimJobs, ports: KernelPorts) -> ClaimJobsResult:
    """Dequeue; where the transport enlists, start the stages with it, else leave that to the execution."""
    serves = ports.serves_of(command.serves)
    if not ports.transport_enlists:
        jobs = await ports.job_transport.dequeue(
            worker_id=command.worker_id, serves=serves, limit=command.limit
        )
    else:
        jobs = await _claimed(command, ports, serves)
    return ClaimJobsResult(await unpack_jobs(ports, jobs))


class _AnotherStructure(Exception):
    """Among the jobs are some of a version that has another structure here than the one that is stored."""


async def _claimed(command: ClaimJobs, ports: KernelPorts, serves: Serves) -> list[DequeuedJob]:
    try:
        return await in_transaction(ports, lambda unit: _claim(command, unit, serves))
    except _AnotherStructure:
        # What was taken is back in its place, and by now such versions aren't served.
        return await _claimed(command, ports, ports.serves_of(command.serves))


async def _claim(command: ClaimJobs, unit: UnitOfWork, serves: Serves) -> list[DequeuedJob]:
    transport = unit.jobs
    assert transport is not None  # the transport enlists, or this isn't called
    jobs = await transport.dequeue(worker_id=command.worker_id, serves=serves, limit=command.limit)
    if not jobs:
        return []
    loaded = await unit.tx.load_runs({job.run_id for job in jobs}, lock=True)
    runs = {one.run.id: one for one in loaded}
    started = []
    for job in jobs:
        known = runs.get(job.run_id)
        run = None if known is None else known.run
        stage = None if known is None else known.stage(job.stage_id)
        if run is not None and await unit.ports.has_another_structure(run, unit.tx):
            if serves is not None:
                raise _AnotherStructure
            started.append(job)  # who claims everything gets it, and hands it back when it is executed
        elif await _startable(transport, job, run, stage):
            if known is not None and stage is not None:
                runs[job.run_id] = await _started(unit, known, stage)
            started.append(job)
    return [replace(job, loaded=runs.get(job.run_id)) for job in started]


async def _started(unit: UnitOfWork, known: LoadedRun, stage: StoredStage) -> LoadedRun:
    """The run with this stage started, unless it waits for a time that is still to come."""
    if stage.status is not Status.SUSPENDED:
        return known.changed(await start_stage(unit, stage), events=1)
    if is_due(stage, unit.now):
        return known.changed(await resume_stage(unit, stage), events=0)
    return known


async def _startable(
    transport: JobTransport, job: DequeuedJob, run: RunRecord | None, stage: StoredStage | None
) -> bool:
    """Settle a job that nobody has to execute any more; say whether this one is to be executed."""
    if run is None or run.status in TERMINAL_RUN_STATUSES:
        state = "gone" if run is None else run.status
        settlement = Settlement(kind="fail", error=f"run {job.run_id!r} is {state}")
    elif stage is None or stage.status in ACTIVE_STAGE_STATUSES:
        return True
    elif stage.status is Status.COMPLETED:
        settlement = Settlement(kind="complete")
    else:
        settlement = Settlement(kind="fail", error=f"stage {stage.stage_id!r} is {stage.status}")
    await acknowledge(transport, JobRef(job.job_id, job.fence), settlement)
    return False
