"""Giving stages a job again whose job the transport has lost."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final, cast

from stagewright.errors import SpilledPayloadUnavailableError
from stagewright.kernel.context import KernelPorts
from stagewright.kernel.procedures.advance_run import advance_run
from stagewright.kernel.procedures.open_group import job_for
from stagewright.kernel.rules.standstill import stages_without_a_job
from stagewright.kernel.unit_of_work import UnitOfWork, in_transaction
from stagewright.ports import MayLoseJobs
from stagewright.records import RunQuery, RunRecord, StagePatch, StoredStage
from stagewright.status import ACTIVE_STAGE_STATUSES, Status

__all__ = ["OWNERS_LEARN_WITHIN", "replace_lost_jobs"]

OWNERS_LEARN_WITHIN: Final = timedelta(seconds=20)
"""A worker whose job is lost learns it by its next heartbeat; only then the stage is begun anew."""

_PAGE: Final = 100
_log: Final = logging.getLogger("stagewright.kernel")


async def replace_lost_jobs(ports: KernelPorts) -> int:
    """Look through all RUNNING runs if jobs may have been lost, and say how many were given a job again.

    A stage of a definition that this process doesn't have is owed its job, until somebody comes who does.
    """
    if not ports.may_lose_jobs:
        return 0
    transport = cast(MayLoseJobs, ports.job_transport)
    losses = await transport.possible_losses()
    if losses is None:
        return 0
    replaced = 0
    async for run_ids in _running_runs(ports):
        jobless, left_behind = list[StoredStage](), set[str]()
        for run_id in run_ids:
            stages = await ports.persistence.get_stages_by_run(run_id)
            jobs = {job.stage_id: job for job in await ports.job_transport.get_jobs_by_run(run_id)}
            found = stages_without_a_job(stages, jobs)
            jobless += found
            left_behind |= {stage.id for stage in found if stage.stage_id in jobs}
            if stages and not any(stage.status in ACTIVE_STAGE_STATUSES for stage in stages):
                await _move_on(ports, run_id)
        if jobless:
            replaced += await in_transaction(ports, _replacing(jobless, left_behind))
    await transport.losses_replaced(losses)
    return replaced


async def _running_runs(ports: KernelPorts) -> AsyncIterator[list[str]]:
    query, cursor = RunQuery(statuses=(Status.RUNNING,)), None
    while True:
        page = await ports.run_reader.list_runs(query, limit=_PAGE, cursor=cursor)
        if page.items:
            yield [run.id for run in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return


async def _move_on(ports: KernelPorts, run_id: str) -> None:
    """Whoever ended a run's last open stage may be lost, and the job that would have led another one there."""

    async def work(unit: UnitOfWork) -> None:
        (loaded,) = await unit.tx.load_runs([run_id], lock=True) or (None,)
        if loaded is None or loaded.run.status is not Status.RUNNING:
            return
        workflow = await unit.ports.served_workflow(loaded.run, unit.tx)
        if workflow is not None:
            await advance_run(unit, loaded.run, workflow, loaded.stages)

    try:
        await in_transaction(ports, work)
    except SpilledPayloadUnavailableError as error:
        _log.warning("run %s can't be moved on yet: %s", run_id, error)


def _replacing(
    jobless: Sequence[StoredStage], left_behind: Collection[str]
) -> Callable[[UnitOfWork], Awaitable[int]]:
    """Enqueue the jobs of stages in which nothing has changed since they were found.

    Args:
        jobless: The stages.
        left_behind: The ids of those that have a job as it was before.
    """
    found = {(stage.id, stage.version) for stage in jobless}

    async def work(unit: UnitOfWork) -> int:
        replaced = 0
        for loaded in await unit.tx.load_runs({stage.run_id for stage in jobless}, lock=True):
            if loaded.run.status is Status.RUNNING:
                unchanged = [stage for stage in loaded.stages if (stage.id, stage.version) in found]
                replaced += await _replace(unit, loaded.run, unchanged, left_behind)
        if replaced:
            unit.notify("jobs")
        return replaced

    return work


async def _replace(
    unit: UnitOfWork, run: RunRecord, jobless: Sequence[StoredStage], left_behind: Collection[str]
) -> int:
    workflow = await unit.ports.served_workflow(run, unit.tx)
    replaced = 0
    for stage in jobless:
        if workflow is None:
            if stage.status is not Status.RUNNING:
                await unit.tx.update_stage(stage.id, StagePatch(updated_at=unit.now, job_enqueued_at=None))
        elif stage.stage_id in workflow.stage_ids:
            job = job_for(unit, run, workflow.stage(stage.stage_id))
            if stage.status is Status.RUNNING:
                job = replace(job, due_at=unit.now + OWNERS_LEARN_WITHIN)
            # A job that sleeps would be woken at once, and is replaced by one that waits for the owner.
            is_replaced = stage.status is Status.RUNNING and stage.id in left_behind
            make = unit.enqueue if is_replaced else unit.resume
            make(job, stage_record_id=stage.id, version=stage.version)
            replaced += 1
    return replaced
