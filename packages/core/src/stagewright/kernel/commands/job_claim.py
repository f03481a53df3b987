"""`job.claim`: take jobs, and start their stages in the same transaction where the transport can."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from stagewright.kernel.command import Command, Id
from stagewright.kernel.context import KernelPorts
from stagewright.kernel.procedures.execution import JobRef
from stagewright.kernel.procedures.settle_job import Settlement, acknowledge
from stagewright.kernel.procedures.start_stage import start_stage
from stagewright.kernel.unit_of_work import UnitOfWork, in_transaction
from stagewright.ports import JobTransport
from stagewright.records import DequeuedJob, RunRecord, ServedDefinition, Serves, StoredStage
from stagewright.status import ACTIVE_STAGE_STATUSES, TERMINAL_RUN_STATUSES, Status

__all__ = ["ClaimJobs", "ClaimJobsResult", "handle"]


@dataclass(frozen=True, slots=True)
class ClaimJobsResult:
    """The jobs that the worker owns now."""

    jobs: tuple[DequeuedJob, ...]


@dataclass(frozen=True, slots=True)
class ClaimJobs(Command[ClaimJobsResult]):
    """Take up to `limit` jobs for a worker.

    Attributes:
        worker_id: Who takes them.
        limit: At most so many.
        serves: Which definitions; None is what this kernel's registry lists, `"all"` is every one.
    """

    type: ClassVar[str] = "job.claim"

    worker_id: Id
    _: KW_ONLY
    limit: Annotated[int, Field(strict=True, ge=0)] = 1
    serves: Sequence[ServedDefinition] | Literal["all"] | None = None


async def handle(command: ClaimJobs, ports: KernelPorts) -> ClaimJobsResult:
    """Dequeue; where the transport enlists, start the stages with it, else leave that to the execution."""
    serves = ports.serves_of(command.serves)
    if not ports.transport_enlists:
        jobs = await ports.job_transport.dequeue(
            worker_id=command.worker_id, serves=serves, limit=command.limit
        )
        return ClaimJobsResult(tuple(jobs))
    return await in_transaction(ports, lambda unit: _claim(command, unit, serves))


async def _claim(command: ClaimJobs, unit: UnitOfWork, serves: Serves) -> ClaimJobsResult:
    transport = unit.jobs
    assert transport is not None  # the transport enlists, or this isn't called
    jobs = await transport.dequeue(worker_id=command.worker_id, serves=serves, limit=command.limit)
    if not jobs:
        return ClaimJobsResult(())
    loaded = await unit.tx.load_runs({job.run_id for job in jobs}, lock=True)
    runs = {one.run.id: one.run for one in loaded}
    stages = {(stage.run_id, stage.stage_id): stage for one in loaded for stage in one.stages}
    started = []
    for job in jobs:
        stage = stages.get((job.run_id, job.stage_id))
        if await _startable(transport, job, runs.get(job.run_id), stage):
            if stage is not None and stage.status is not Status.SUSPENDED:
                await start_stage(unit, stage)
            started.append(job)
    return ClaimJobsResult(tuple(started))


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
