"""Giving claimed jobs their payloads; one whose payload can't be had fails, and keeps no other waiting."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from stagewright.duration import add_within_calendar
from stagewright.errors import RunNotRunningError, SpilledPayloadUnavailableError, SupersededError
from stagewright.kernel.context import KernelPorts
from stagewright.kernel.procedures.begin_execution import begin_execution
from stagewright.kernel.procedures.execution import Execution, JobRef
from stagewright.kernel.procedures.record_outcome import record_outcome
from stagewright.kernel.unit_of_work import UnitOfWork, in_transaction
from stagewright.ports import ActivityOutcome, BodyFailed
from stagewright.records import DequeuedJob
from stagewright.runtime.failure import describe_exception
from stagewright.runtime.job_payloads import claim_in, load_payload

__all__ = ["unpack_jobs"]

_ELSEWHERE: Final = timedelta(seconds=30)
_log: Final = logging.getLogger("stagewright.kernel")


async def unpack_jobs(ports: KernelPorts, jobs: Sequence[DequeuedJob]) -> tuple[DequeuedJob, ...]:
    """The jobs with their payloads, without those that failed because theirs can't be had.

    Args:
        ports: The kernel's ports.
        jobs: Jobs that were claimed, and whose claim has committed.
    """
    if all(claim_in(job.payload) is None for job in jobs):
        return tuple(jobs)
    unpacked = await asyncio.gather(*(_unpacked(ports, job) for job in jobs))
    return tuple(job for job in unpacked if job is not None)


async def _unpacked(ports: KernelPorts, job: DequeuedJob) -> DequeuedJob | None:
    try:
        return replace(job, payload=await load_payload(ports.blob_store, job.payload))
    except SpilledPayloadUnavailableError as error:
        try:
            await _fail(ports, job, error)
        except Exception:  # the job's lease brings it to the next one who tries
            _log.warning("the failure of job %s could not be recorded", job.job_id, exc_info=True)
        return None


async def _fail(ports: KernelPorts, job: DequeuedJob, error: SpilledPayloadUnavailableError) -> None:
    """Record a failure of the stage, as if its body had raised the error; it has the same budget."""
    reference = JobRef(job.job_id, job.fence)
    run = await ports.persistence.get_run(job.run_id)
    workflow = None if run is None else await ports.served_workflow(run, ports.persistence)
    if run is None or workflow is None or job.stage_id not in workflow.stage_ids:
        # Whoever has this version can say how often it is tried.
        until = add_within_calendar(ports.clock.now(), _ELSEWHERE)
        await ports.job_transport.defer(job.job_id, until, str(error), job.fence)
        return
    stage = workflow.stage(job.stage_id)
    described = describe_exception(error, code="PAYLOAD_UNAVAILABLE", stage_id=stage.id)
    outcome = ActivityOutcome(ending=BodyFailed(error=described, retryable=True))

    async def work(unit: UnitOfWork) -> None:
        record = await unit.tx.get_stage(run.id, stage.id)
        if record is None or not ports.transport_enlists:
            record = await begin_execution(unit, run.id, workflow, stage, reference)
        execution = Execution(
            run_id=run.id, workflow=workflow, stage=stage, record=record, job=reference, advances=True
        )
        await record_outcome(unit, execution, outcome, None, advances=True)

    try:
        await in_transaction(ports, work)
    except (RunNotRunningError, SupersededError) as overtaken:
        _log.info("job %s isn't wanted any more: %s", job.job_id, overtaken)
