"""Setting an ended run going again, from a stage of it."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from typing import Final

from stagewright.definitions import Workflow
from stagewright.errors import RunStateError
from stagewright.events import WorkflowStarted
from stagewright.json_values import Json
from stagewright.kernel.context import KernelPorts
from stagewright.kernel.procedures.archive_attempts import archive_attempt
from stagewright.kernel.procedures.open_group import open_group
from stagewright.kernel.procedures.owe_jobs import owe_jobs
from stagewright.kernel.procedures.reset_steps import reset_steps
from stagewright.kernel.rules.redrive import RedriveOrigin, RedrivePlan, Refused, plan_redrive
from stagewright.kernel.rules.step_reset import abandoned_steps, plan_step_reset
from stagewright.kernel.unit_of_work import UnitOfWork, in_transaction
from stagewright.ports import BlobStore, StepLedger
from stagewright.records import LoadedRun, LogRecord, RunPatch, RunRecord, StagePatch, StoredStage, set_fields
from stagewright.runtime.keys import stage_prefix
from stagewright.status import Status

__all__ = ["Redriven", "redrive_run"]

_log: Final = logging.getLogger("stagewright.kernel")


@dataclass(frozen=True, slots=True)
class Redriven:
    """What a redrive has done.

    Attributes:
        run: The run as it is now.
        from_stage_id: The stage that it goes on with.
        superseded: The stages whose attempts are superseded, in the order of the workflow.
    """

    run: RunRecord
    from_stage_id: str
    superseded: tuple[str, ...]


async def redrive_run(
    unit: UnitOfWork, loaded: LoadedRun, workflow: Workflow, version: str | None, origin: RedriveOrigin
) -> Redriven:
    """Make an ended run RUNNING again; its row is held.

    Args:
        unit: The transaction.
        loaded: The run, ended, and its stages.
        workflow: What it goes on with.
        version: The version that it is pinned to from now on.
        origin: From where.

    Raises:
        RunStateError: If it can't be redriven from there.
    """
    run = loaded.run
    plan = plan_redrive(loaded.stages, [[stage.id for stage in group] for group in workflow.groups], origin)
    if isinstance(plan, Refused):
        raise RunStateError(run.id, run.status, plan.needed)
    blobs = _blobs_of_removed(unit, run, plan)
    abandoned = await _abandoned(unit, run, plan)
    for stage in plan.superseded:
        reopened = stage in plan.reopened
        await archive_attempt(
            unit, run, stage, reopened=reopened, abandoned_steps=abandoned.get(stage.id, ())
        )
    await _say_abandoned(unit, run, plan, abandoned)
    run = await _run_again(unit, run, version)
    await _reset_ledger(unit, plan)
    await _delete_jobs(unit, run, plan)
    standing = await _settle_stages(unit, workflow, plan)
    unit.emit(WorkflowStarted(timestamp=unit.now, run_id=run.id))
    await open_group(unit, run, workflow, plan.group, standing)
    await _sweep(unit, run, blobs)
    return Redriven(run, plan.from_stage_id, tuple(stage.stage_id for stage in plan.superseded))


async def _run_again(unit: UnitOfWork, run: RunRecord, version: str | None) -> RunRecord:
    patch = RunPatch(
        updated_at=unit.now,
        status=Status.RUNNING,
        started_at=unit.now,
        completed_at=None,
        duration=None,
        output=None,
        error=None,
        total_cost=Decimal(0),
        total_tokens=0,
        definition_version=version,
        redrive_count=run.redrive_count + 1,
    )
    await unit.tx.update_run(run.id, patch)
    return replace(run, **set_fields(patch))


async def _settle_stages(unit: UnitOfWork, workflow: Workflow, plan: RedrivePlan) -> list[StoredStage]:
    """Remove, open again and put in their places; what is there then."""
    for stage in plan.removed:
        await unit.tx.delete_stage(stage.id)
    standing = []
    for stage in plan.kept:
        patch = _placed(unit, workflow, stage)
        if patch is None:
            standing.append(stage)
            continue
        await unit.tx.update_stage(stage.id, patch)
        standing.append(_changed(stage, patch))
    for stage in plan.reopened:
        fresh = _fresh(unit, stage, _placed(unit, workflow, stage))
        await unit.tx.update_stage(stage.id, fresh, expected_version=stage.version)
        standing.append(_changed(stage, fresh))
    return standing


def _changed(stage: StoredStage, patch: StagePatch) -> StoredStage:
    return replace(stage, **set_fields(patch), version=stage.version + 1)


def _placed(unit: UnitOfWork, workflow: Workflow, stage: StoredStage) -> StagePatch | None:
    """The place that a stage has in the version the run goes on with, if it is another one."""
    if stage.stage_id not in workflow.stage_ids:
        return None
    plan, name = workflow.plan, workflow.stage(stage.stage_id).name
    number, group = plan.stage_number(stage.stage_id), plan.group_of(stage.stage_id)
    if (number, group, name) == (stage.stage_number, stage.execution_group, stage.stage_name):
        return None
    return StagePatch(updated_at=unit.now, stage_name=name, stage_number=number, execution_group=group)


def _fresh(unit: UnitOfWork, stage: StoredStage, placed: StagePatch | None) -> StagePatch:
    waits_for_reset = unit.ports.step_ledger is not None and not unit.ports.ledger_enlists
    return replace(
        placed or StagePatch(updated_at=unit.now),
        status=Status.PENDING,
        attempt=stage.attempt + 1,
        started_at=None,
        completed_at=None,
        duration=None,
        error=None,
        metrics={},
        suspended_state=None,
        next_poll_at=None,
        poll_interval=None,
        max_wait_until=None,
        output=None,
        output_claim=None,
        artifacts={},
        job_enqueued_at=unit.now if unit.jobs is not None else None,
        waiting_step_id=None,
        nudged_at=None,
        steps_reset_owed_at=unit.now if waits_for_reset else None,
    )


# Steps


async def _abandoned(unit: UnitOfWork, run: RunRecord, plan: RedrivePlan) -> Mapping[str, list[Json]]:
    """By stage record, the steps that are forgotten although other systems may know them."""
    ledger, outside = unit.ledger, unit.ports.step_ledger
    if ledger is not None:
        steps = {stage.id: await ledger.list(stage.id) for stage in plan.superseded}
    elif outside is not None:
        asked = {_at(run, stage.id): partial(outside.list, stage.id) for stage in plan.superseded}
        read = unit.all_fetched(asked)
        steps = {stage.id: read[_at(run, stage.id)] for stage in plan.superseded}
    else:
        return {}
    removed = {stage.id for stage in plan.removed}
    return {
        record_id: abandoned_steps(of_stage if record_id in removed else plan_step_reset(of_stage).dropped)
        for record_id, of_stage in steps.items()
    }


async def _say_abandoned(
    unit: UnitOfWork, run: RunRecord, plan: RedrivePlan, abandoned: Mapping[str, list[Json]]
) -> None:
    lines = [
        LogRecord(
            id=unit.ports.ids.new_id(),
            run_id=run.id,
            level="WARN",
            message=f"the redrive forgets {len(abandoned[stage.id])} steps of stage {stage.stage_id!r} that other "
            "systems may know by their keys",
            created_at=unit.now,
            stage_record_id=stage.id,
            stage_id=stage.stage_id,
            fields={"abandoned_steps": abandoned[stage.id]},
        )
        for stage in plan.superseded
        if abandoned.get(stage.id)
    ]
    if lines:
        await unit.tx.append_logs(lines)


async def _reset_ledger(unit: UnitOfWork, plan: RedrivePlan) -> None:
    ledger, outside = unit.ledger, unit.ports.step_ledger
    if ledger is not None:
        for stage in plan.removed:
            await ledger.clear(stage.id)
        for stage in plan.reopened:
            await reset_steps(ledger, stage.id, unit.now)
    elif outside is not None:
        # What is opened again is marked, and reset before its body runs.
        removed = tuple(stage.id for stage in plan.removed)
        unit.after_commit(lambda: _clear_ledger(outside, removed))


async def _clear_ledger(ledger: StepLedger, stage_record_ids: Sequence[str]) -> None:
    for record_id in stage_record_ids:
        try:
            await ledger.clear(record_id)
        except Exception:  # nothing asks for them any more, and a purge removes them with their run
            _log.warning("the steps of removed stage record %s are left over", record_id, exc_info=True)


# Jobs and blobs


async def _delete_jobs(unit: UnitOfWork, run: RunRecord, plan: RedrivePlan) -> None:
    """Take the jobs of superseded stages away, so that whoever executes one of them is superseded."""
    stage_ids = {stage.stage_id for stage in plan.superseded}
    if not stage_ids:
        return
    if unit.jobs is not None:
        await unit.jobs.delete_by_run_and_stages(run.id, stage_ids)
    else:
        unit.after_commit(partial(_delete_jobs_elsewhere, unit.ports, run, stage_ids))


async def _delete_jobs_elsewhere(ports: KernelPorts, run: RunRecord, stage_ids: Collection[str]) -> None:
    await ports.job_transport.delete_by_run_and_stages(run.id, stage_ids)
    now = await ports.persistence.get_run(run.id)
    if now is not None and now.redrive_count != run.redrive_count:
        # The next redrive has come in between, and the jobs that it enqueued may be among those that were deleted.
        await in_transaction(ports, lambda unit: owe_jobs(unit, run.id))


def _blobs_of_removed(unit: UnitOfWork, run: RunRecord, plan: RedrivePlan) -> list[str]:
    """The keys under the prefixes of removed stages as of now; what comes later is the next attempt's."""
    fetches: dict[str, Callable[[], Awaitable[list[str]]]] = {}
    for stage in plan.removed:
        prefix = stage_prefix(run.workflow_id, run.id, stage.stage_id)
        fetches[_at(run, prefix)] = partial(_keys, unit.ports, prefix)
    return [key for keys in unit.all_fetched(fetches).values() for key in keys]


async def _keys(ports: KernelPorts, prefix: str) -> list[str]:
    try:
        return [key async for key in ports.blob_store.list(prefix)]
    except (
        Exception
    ):  # blobs that stay waste space until the run is purged, and are no reason not to redrive it
        _log.warning("the blobs under %r can't be listed and are left over", prefix, exc_info=True)
        return []


async def _sweep(unit: UnitOfWork, run: RunRecord, keys: Sequence[str]) -> None:
    """Delete blobs once this has committed, but for those of signals that no step has taken: they wait for the run."""
    if not keys:
        return
    signals = await unit.tx.list_signals(run.id)
    kept = {signal.payload_claim.key for signal in signals if signal.payload_claim is not None}
    left = [key for key in keys if key not in kept]
    unit.sweep(lambda: _delete_blobs(unit.ports.blob_store, run.id, left))


async def _delete_blobs(blob_store: BlobStore, run_id: str, keys: Sequence[str]) -> None:
    try:
        await blob_store.delete_many(keys)
    except Exception:  # as above
        _log.warning("%d blobs of run %s are left over", len(keys), run_id, exc_info=True)


def _at(run: RunRecord, what: str) -> str:
    """Names what is read for this very redrive: another one may come first while it is read."""
    return f"redrive {run.redrive_count + 1}: {what}"
