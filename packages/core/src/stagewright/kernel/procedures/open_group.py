"""Opening an execution group: its stage records, and a job for each that waits."""

from collections.abc import Sequence
from typing import Any

from stagewright.definitions import Stage, Workflow
from stagewright.json_values import Json
from stagewright.kernel.procedures.archive_attempts import archived_attempts
from stagewright.kernel.procedures.start_stage import start_stage
from stagewright.kernel.rules.failures import DEFAULT_RETRY_POLICY
from stagewright.kernel.unit_of_work import UnitOfWork
from stagewright.records import LoadedRun, NewJob, RunRecord, StoredStage
from stagewright.status import Status

__all__ = ["job_for", "new_stage", "open_group"]


async def open_group(
    unit: UnitOfWork,
    run: RunRecord,
    workflow: Workflow,
    group: int,
    existing: Sequence[StoredStage],
    *,
    last_sequence: int | None = None,
) -> tuple[str, ...]:
    """Create what is missing of a group, and enqueue a job for each of its stages that is PENDING.

    Jobs that the transaction hands over are those of stages which are started here.

    Args:
        unit: The transaction, which holds the run's row.
        run: The run.
        workflow: Its workflow.
        group: The group, from 1.
        existing: The run's stage records so far, as this transaction leaves them.
        last_sequence: The sequence of the run's last event before this transaction, if that is known, and with it that
            run and stages are as whoever executes the stages would find them.

    Returns:
        The ids of the jobs, in the order of the group's stages.
    """
    records = {record.stage_id: record for record in existing}
    job_ids: list[str] = []
    taken: list[NewJob] = []
    earlier = await archived_attempts(unit, run)
    for stage in workflow.groups[group - 1]:
        record = records.get(stage.id)
        if record is None:
            record = new_stage(unit, run, workflow, stage, attempt=earlier.get(stage.id, 0) + 1)
            await unit.tx.create_stage(record)
        if record.status is Status.PENDING:
            job = job_for(unit, run, stage)
            if unit.has_room_for(len(taken)):
                record = await start_stage(unit, record)
                taken.append(job)
            else:
                unit.enqueue(job, stage_record_id=record.id, version=record.version)
            job_ids.append(job.id)
        records[stage.id] = record
    loaded = None if last_sequence is None else LoadedRun(run, tuple(records.values()), last_sequence)
    for job in taken:
        unit.hand_over(job, loaded)
    if not taken or len(taken) < len(job_ids):
        unit.notify("jobs")
    return tuple(job_ids)


def new_stage(
    unit: UnitOfWork, run: RunRecord, workflow: Workflow, stage: Stage[Any, Any, Any], *, attempt: int
) -> StoredStage:
    """The record of a stage that is about to be wanted, for the first time or again after a redrive."""
    return StoredStage(
        id=unit.ports.ids.new_id(),
        run_id=run.id,
        stage_id=stage.id,
        stage_name=stage.name,
        stage_number=workflow.plan.stage_number(stage.id),
        execution_group=workflow.plan.group_of(stage.id),
        attempt=attempt,
        created_at=unit.now,
        updated_at=unit.now,
        job_enqueued_at=unit.now if unit.jobs is not None else None,
    )


def job_for(unit: UnitOfWork, run: RunRecord, stage: Stage[Any, Any, Any]) -> NewJob:
    """The job that a stage of a run wants."""
    policy = stage.retry or DEFAULT_RETRY_POLICY
    config: Json = run.config.get(stage.id)
    return NewJob(
        id=unit.ports.ids.new_id(),
        run_id=run.id,
        workflow_id=run.workflow_id,
        stage_id=stage.id,
        definition_version=run.definition_version,
        payload={"config": config},
        priority=run.priority,
        max_attempts=policy.max_attempts,
        max_worker_losses=policy.max_worker_losses,
    )
