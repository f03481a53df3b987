"""Moving a run on once its stages allow it: the next group, COMPLETED, or FAILED."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from stagewright.definitions import Workflow
from stagewright.events import WorkflowCompleted, WorkflowFailed
from stagewright.json_values import Json
from stagewright.kernel.procedures.open_group import open_group
from stagewright.kernel.rules.progress import Complete, Fail, OpenGroup, Wait, what_follows
from stagewright.kernel.rules.totals import Totals, totals_of_metrics
from stagewright.kernel.unit_of_work import UnitOfWork
from stagewright.ports import AICallLogger, AICallTotals
from stagewright.records import UNSET, ErrorRecord, RunPatch, RunRecord, StoredStage, Unset
from stagewright.runtime.claim_check import load_spilled
from stagewright.status import Status

__all__ = ["Advance", "advance_run", "fail_run"]

_log: Final = logging.getLogger("stagewright.kernel")


@dataclass(frozen=True, slots=True)
class Advance:
    """What became of a run.

    Attributes:
        action: Whether a group was opened, the run ended, or nothing followed.
        next_group: The group that was opened, from 1.
    """

    action: Literal["advanced", "completed", "failed", "noop"]
    next_group: int | None = None


async def advance_run(
    unit: UnitOfWork,
    run: RunRecord,
    workflow: Workflow,
    stages: Sequence[StoredStage],
    *,
    last_sequence: int | None = None,
) -> Advance:
    """Do what follows from the states of a run's stages.

    Args:
        unit: The transaction, which holds the run's row.
        run: The run, RUNNING.
        workflow: Its workflow, in the version that the run is pinned to.
        stages: The run's stage records, as this transaction leaves them.
        last_sequence: As of `open_group`.
    """
    match what_follows(stages, [[stage.id for stage in group] for group in workflow.groups]):
        case Wait():
            return Advance("noop")
        case OpenGroup(group):
            await open_group(unit, run, workflow, group, stages, last_sequence=last_sequence)
            return Advance("advanced", group)
        case Complete():
            await _complete_run(unit, run, workflow, stages)
            return Advance("completed")
        case Fail(stage):
            error = stage.error or ErrorRecord(
                code="STAGE_FAILED",
                message=f"stage {stage.stage_id!r} is {stage.status}",
                stage_id=stage.stage_id,
            )
            await fail_run(unit, run, error, stages)
            return Advance("failed")


async def fail_run(
    unit: UnitOfWork, run: RunRecord, error: ErrorRecord, stages: Sequence[StoredStage]
) -> None:
    """Make a run FAILED for this reason."""
    await unit.tx.update_run(
        run.id, _ending(unit, run, Status.FAILED, _totals(unit, run, stages), error=error)
    )
    unit.emit(WorkflowFailed(timestamp=unit.now, run_id=run.id, error=str(error)))
    unit.notify("runs")


async def _complete_run(
    unit: UnitOfWork, run: RunRecord, workflow: Workflow, stages: Sequence[StoredStage]
) -> None:
    last = [stage for stage in stages if stage.execution_group == len(workflow.groups)]
    output = workflow.plan.workflow_output(_outputs(unit, last))
    totals = _totals(unit, run, stages)
    patch = _ending(unit, run, Status.COMPLETED, totals, output=output)
    await unit.tx.update_run(run.id, patch)
    unit.emit(
        WorkflowCompleted(
            timestamp=unit.now,
            run_id=run.id,
            duration=None if run.started_at is None else unit.now - run.started_at,
            output=output,
            total_cost=totals.cost,
            total_tokens=totals.tokens,
        )
    )
    unit.notify("runs")


def _outputs(unit: UnitOfWork, stages: Sequence[StoredStage]) -> dict[str, Json]:
    """The outputs of COMPLETED stages by stage id; spilled ones are fetched with no transaction open."""
    claims = {stage.stage_id: stage.output_claim for stage in stages if stage.output_claim is not None}
    spilled = unit.all_fetched(
        {claim.key: partial(load_spilled, unit.ports.blob_store, claim) for claim in claims.values()}
    )
    inline = {stage.stage_id: stage.output for stage in stages if stage.output_claim is None}
    return inline | {stage_id: spilled[claim.key] for stage_id, claim in claims.items()}


def _ending(
    unit: UnitOfWork,
    run: RunRecord,
    status: Status,
    totals: Totals,
    *,
    output: Json | Unset = UNSET,
    error: ErrorRecord | Unset = UNSET,
) -> RunPatch:
    return RunPatch(
        updated_at=unit.now,
        status=status,
        output=output,
        error=error,
        completed_at=unit.now,
        duration=None if run.started_at is None else unit.now - run.started_at,
        total_cost=totals.cost,
        total_tokens=totals.tokens,
    )


def _totals(unit: UnitOfWork, run: RunRecord, stages: Sequence[StoredStage]) -> Totals:
    logger = unit.ports.services.ai_logger
    if logger is not None:
        logged = unit.fetched(f"totals:{run.id}", lambda: _logged_totals(logger, run.id))
        if logged is not None:
            return Totals(logged.cost, logged.input_tokens + logged.output_tokens)
    return totals_of_metrics([stage.metrics for stage in stages])


async def _logged_totals(logger: AICallLogger, run_id: str) -> AICallTotals | None:
    try:
        return await logger.get_stats(f"workflow.{run_id}")
    except Exception:  # a run must not stay open because its accounting can't be read
        _log.warning(
            "the model calls of run %s could not be added up; its stages' metrics are used",
            run_id,
            exc_info=True,
        )
        return None
