"""Gathering what a body is invoked with."""

from collections.abc import Sequence

from stagewright.definitions import AbortSignal
from stagewright.errors import StageOutputMissingError
from stagewright.json_values import Json
from stagewright.kernel.context import KernelPorts
from stagewright.kernel.procedures.execution import Execution
from stagewright.kernel.procedures.signal_inbox import StageSignals
from stagewright.ports import ActivityRun, BodyFailed, StageResources
from stagewright.records import ErrorRecord, RunRecord, StepOwner, StoredStage
from stagewright.records.copies import detached_value
from stagewright.runtime.claim_check import load_spilled
from stagewright.runtime.keys import steps_prefix, storage_prefix
from stagewright.status import Status

__all__ = ["load_activity"]


async def load_activity(
    ports: KernelPorts,
    execution: Execution,
    run: RunRecord,
    stages: Sequence[StoredStage],
    abort: AbortSignal,
) -> ActivityRun | BodyFailed:
    """Read the outputs that a body may ask for, and form its input.

    What it is given is its own: others, and what follows, begin with what was recorded, whatever it does to that.

    Returns:
        The invocation; or the stage's failure when a stage of the previous group has no output.

    Raises:
        SpilledPayloadUnavailableError: If a spilled output can't be read.
    """
    workflow, stage, record = execution.workflow, execution.stage, execution.record
    done = [stage for stage in stages if stage.status is Status.COMPLETED]
    earlier = [stage for stage in done if stage.execution_group < record.execution_group]
    outputs = {stage.stage_id: await _output(ports, stage) for stage in earlier}
    workflow_input = detached_value(run.input)
    try:
        given = workflow.plan.stage_input(stage.id, run_input=workflow_input, outputs=outputs)
    except StageOutputMissingError as error:
        message = f"the input of stage {stage.id!r} can't be formed: {error}"
        return BodyFailed(
            error=ErrorRecord(code="INPUT_MISSING", message=message, stage_id=stage.id), retryable=False
        )
    job = execution.job
    return ActivityRun(
        workflow=workflow,
        stage=stage,
        run_id=run.id,
        stage_record_id=record.id,
        stage_number=record.stage_number,
        attempt=record.attempt,
        definition_version=run.definition_version,
        input=given,
        config=detached_value(run.config.get(stage.id, {})),
        workflow_input=workflow_input,
        outputs=outputs,
        resume_state=detached_value(record.suspended_state),
        abort=abort,
        owner=None if job is None else StepOwner(job_id=job.job_id, deliveries=job.fence.deliveries),
        resources=StageResources(
            blob_store=ports.blob_store,
            storage_prefix=storage_prefix(workflow.id, run.id, stage.id),
            clock=ports.clock,
            ids=ports.ids,
            random=ports.random,
            step_ledger=ports.step_ledger,
            signals=StageSignals(ports, run.id, stage.id),
            steps_prefix=steps_prefix(workflow.id, run.id, stage.id),
            spill_threshold_bytes=ports.settings.spill_threshold_bytes,
            services=ports.services,
            write_logs=ports.persistence.append_logs,
        ),
    )


async def _output(ports: KernelPorts, stage: StoredStage) -> Json:
    claim = stage.output_claim
    return detached_value(stage.output) if claim is None else await load_spilled(ports.blob_store, claim)
