"""`run.claimPending`: set PENDING runs going."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar

from stagewright.errors import StaleVersionError, TransientError
from stagewright.events import WorkflowStarted
from stagewright.kernel.command import Command, Count, Id, ServedDefinitions
from stagewright.kernel.procedures.advance_run import fail_run
from stagewright.kernel.procedures.open_group import open_group
from stagewright.kernel.unit_of_work import UnitOfWork
from stagewright.records import (
    DequeuedJob,
    ErrorRecord,
    LoadedRun,
    LogRecord,
    RunPatch,
    RunRecord,
    Serves,
)
from stagewright.runtime.failure import describe_exception
from stagewright.status import Status

__all__ = ["ClaimPendingRuns", "ClaimPendingRunsResult", "ClaimedRun", "handle"]


@dataclass(frozen=True, slots=True)
class ClaimedRun:
    """A run that is RUNNING now.

    Attributes:
        run_id: The run.
        workflow_id: Its workflow.
        job_ids: The jobs of its first group.
    """

    run_id: str
    workflow_id: str
    job_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClaimPendingRunsResult:
    """The runs that were set going, in claiming order.

    Attributes:
        claimed: The runs.
        jobs: Jobs of their first groups that the worker owns now, with `max_jobs`.
    """

    claimed: tuple[ClaimedRun, ...]
    jobs: tuple[DequeuedJob, ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimPendingRuns(Command[ClaimPendingRunsResult]):
    """Claim PENDING runs, create their first group, and enqueue its jobs.

    Attributes:
        worker_id: Who claims.
        max_claims: At most so many.
        serves: Which definitions; None is what this kernel's registry lists, `"all"` is every one.
        wakes_hosts: Whether waiting hosts are told of the jobs. A caller that claims jobs right afterwards, and itself
            tells others of those that it leaves (`WorkNotifier.notify("jobs")`), may spare them that.
        max_jobs: How many of the jobs the worker takes at once, ahead of jobs that wait; the others are enqueued, and
            all of them where the transport can't do otherwise.
    """

    type: ClassVar[str] = "run.claimPending"

    worker_id: Id
    _: KW_ONLY
    max_claims: Count = 10
    serves: ServedDefinitions = None
    wakes_hosts: bool = True
    max_jobs: Count = 0


async def handle(command: ClaimPendingRuns, unit: UnitOfWork) -> ClaimPendingRunsResult:
    """Claim a batch at once; only if one run of it can't be started, one by one."""
    if not command.wakes_hosts:
        unit.leave_waking_to_caller()
    if command.max_jobs:
        unit.hand_over_to(command.worker_id, at_most=command.max_jobs)
        unit.amend(_with_jobs)
    serves = unit.ports.serves_of(command.serves)
    try:
        async with unit.savepoint():
            runs = await unit.tx.claim_pending_runs(command.max_claims, now=unit.now, serves=serves)
            claimed = [await _start(unit, run, command.worker_id) for run in await _with_stages(unit, runs)]
    except (StaleVersionError, TransientError):
        raise
    except Exception:
        claimed = await _claim_one_by_one(unit, command, serves)
    return ClaimPendingRunsResult(tuple(run for run in claimed if run is not None))


def _with_jobs(result: ClaimPendingRunsResult, jobs: tuple[DequeuedJob, ...]) -> ClaimPendingRunsResult:
    return replace(result, jobs=jobs)


async def _claim_one_by_one(
    unit: UnitOfWork, command: ClaimPendingRuns, serves: Serves
) -> list[ClaimedRun | None]:
    claimed: list[ClaimedRun | None] = []
    for _ in range(command.max_claims):
        runs = await unit.tx.claim_pending_runs(1, now=unit.now, serves=serves)
        if not runs:
            break
        try:
            async with unit.savepoint():
                (loaded,) = await _with_stages(unit, runs)
                claimed.append(await _start(unit, loaded, command.worker_id))
        except (StaleVersionError, TransientError):
            raise
        except Exception as error:
            # The claim stands outside the savepoint, so it is this very run that fails, still locked.
            await _fail(unit, runs[0], "CLAIM_FAILED", describe_exception(error).message, command.worker_id)
    return claimed


async def _with_stages(unit: UnitOfWork, runs: Sequence[RunRecord]) -> list[LoadedRun]:
    """The runs in claiming order, with the stages that an interrupted claim may have left."""
    loaded = {one.run.id: one for one in await unit.tx.load_runs([run.id for run in runs])}
    return [loaded[run.id] for run in runs]


async def _start(unit: UnitOfWork, loaded: LoadedRun, worker_id: str) -> ClaimedRun | None:
    """Open the first group, unless the run can't be started, or has to wait for a build that has its structure."""
    run = loaded.run
    workflow = unit.ports.registry.get(run.workflow_id)
    if workflow is None:
        await _fail(
            unit, run, "WORKFLOW_NOT_FOUND", f"workflow {run.workflow_id!r} is not registered", worker_id
        )
        return None
    if await unit.ports.has_another_structure(run, unit.tx):
        patch = RunPatch(updated_at=unit.now, status=Status.PENDING, started_at=None)
        await unit.tx.update_run(run.id, patch)
        return None
    if not workflow.groups or not workflow.groups[0]:
        await _fail(unit, run, "EMPTY_STAGE_GRAPH", f"workflow {run.workflow_id!r} has no stages", worker_id)
        return None
    unit.emit(WorkflowStarted(timestamp=unit.now, run_id=run.id))
    job_ids = await open_group(unit, run, workflow, 1, loaded.stages, last_sequence=loaded.last_sequence)
    return ClaimedRun(run.id, run.workflow_id, job_ids)


async def _fail(unit: UnitOfWork, run: RunRecord, code: str, message: str, worker_id: str) -> None:
    error = ErrorRecord(code=code, message=f"{message} (claimed by worker {worker_id!r})")
    await fail_run(unit, run, error, ())
    line = LogRecord(
        id=unit.ports.ids.new_id(), run_id=run.id, level="ERROR", message=error.message, created_at=unit.now
    )
    await unit.tx.append_logs([line])
