"""`job.execute`: run the body of one stage and record how it ended, in three phases."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar, Final, Literal, cast

from pydantic import AfterValidator

from stagewright.definitions import AbortSignal, Stage, Workflow
from stagewright.errors import (
    InvalidCommandError,
    OutputNotStoredError,
    Problem,
    RunNotFoundError,
    RunNotRunningError,
    SpilledPayloadUnavailableError,
    SupersededError,
)
from stagewright.json_values import Json
from stagewright.kernel.command import Command, Id
from stagewright.kernel.context import KernelPorts
from stagewright.kernel.idempotency import KeyedCommand
from stagewright.kernel.procedures.begin_execution import begin_execution
from stagewright.kernel.procedures.execution import Execution, JobRef
from stagewright.kernel.procedures.load_activity import load_activity
from stagewright.kernel.procedures.record_outcome import Recorded, is_alone, record_outcome
from stagewright.kernel.procedures.reset_steps import reset_owed_steps
from stagewright.kernel.procedures.settle_job import Settlement, acknowledge, require_owned, settle_job
from stagewright.kernel.procedures.store_output import StoredOutput, discard_output, store_output
from stagewright.kernel.rules.ghosts import GhostReason, ghost_of
from stagewright.kernel.rules.waiting import is_due
from stagewright.kernel.unit_of_work import UnitOfWork, in_transaction
from stagewright.ports import ActivityOutcome, BodyFailed, BodyReturned
from stagewright.records import DequeuedJob, ErrorRecord, LoadedRun, RunRecord, StoredStage
from stagewright.runtime.abort import NeverAborted
from stagewright.runtime.claim_check import load_spilled
from stagewright.runtime.failure import describe_exception
from stagewright.status import TERMINAL_RUN_STATUSES, Status

__all__ = ["ExecuteJob", "ExecuteJobResult", "JobRef", "handle"]

_FRESH: Final = timedelta(seconds=1)
_log: Final = logging.getLogger("stagewright.kernel")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecuteJobResult:
    """How the execution ended.

    Attributes:
        outcome: `completed`, `suspended` or `failed`.
        output: The stage's output once completed.
        error: Why it failed, or why it must not run.
        next_poll_at: When a suspended stage is looked at next, in UTC.
        will_retry: Whether a failed stage gets another attempt.
        retryable: Whether another attempt could have helped.
        ghost: Whether nothing was recorded, because the job must not run, or not here, or not any more.
        ghost_reason: `orphan` (discard the job), `race` (deliver it again) or `version` (hand it back).
        next_job: What the worker named by `successor` executes next: it owns this job now. Of what follows besides,
            `ClaimJobs` gives the jobs.
        leaves_jobs: Whether jobs were enqueued for whoever claims them.
    """

    outcome: Literal["completed", "suspended", "failed"]
    output: Json = None
    error: ErrorRecord | None = None
    next_poll_at: datetime | None = None
    will_retry: bool = False
    retryable: bool = False
    ghost: bool = False
    ghost_reason: GhostReason | None = None
    next_job: DequeuedJob | None = None
    leaves_jobs: bool = field(default=False, compare=False)


def _signal(value: object) -> object:
    if value is not None and not isinstance(getattr(value, "is_set", None), bool):
        raise ValueError("is no AbortSignal; leave it out of a dict")
    return value


def _successor(value: object) -> object:
    if value is not None and not callable(value):
        raise ValueError("is no function that names a worker; leave it out of a dict")
    return value


def _loaded_run(value: object) -> object:
    if value is not None and not isinstance(value, LoadedRun):
        raise ValueError("is no LoadedRun; leave it out of a dict")
    return value


@dataclass(frozen=True, slots=True)
class ExecuteJob(Command[ExecuteJobResult]):
    """Execute a stage.

    Attributes:
        run_id: The run.
        workflow_id: The run's workflow.
        stage_id: The stage.
        job: The delivery that this execution answers. The outcome and the run's next step are one transaction, and the
            acknowledgement too where the transport takes part in it. Without it the first failure is final, and
            `TransitionRun` moves the run on.
        idempotency_key: A repetition gets the first outcome. Hosts don't need it: each executes a delivery once, and
            the job's fence lets only one outcome of a delivery through.
        abort: Set while the body runs to tell it to stop; its outcome is discarded then.
        loaded: What `ClaimJobs` gave as `DequeuedJob.loaded`, so that the run needn't be read again. It is used in the
            first second after the claim; leave it out of a dict.
        wakes_hosts: Whether waiting hosts are told of the jobs that follow. A caller that claims right afterwards, and
            itself tells others of what it leaves (`WorkNotifier.notify("jobs")`), may spare them that.
        successor: Asked when the outcome of a completed stage is recorded: the id of the worker that takes the first
            job of what follows at once, as `next_job` of the result, ahead of jobs that wait; or None. It may not wait
            for anything, and is asked again where the transaction is tried again. Nobody is asked with an
            `idempotency_key` or without a `job`, and nothing is handed over where the transport can't do it or where
            nothing follows. Leave it out of a dict.

    Raises:
        RunNotFoundError: If there is no such run.
        UnknownWorkflowError: If the workflow isn't registered here.
        UnknownStageError: If the workflow has no such stage.
    """

    type: ClassVar[str] = "job.execute"

    run_id: Id
    workflow_id: Id
    stage_id: Id
    _: KW_ONLY
    job: JobRef | None = None
    idempotency_key: Id | None = None
    # Any: pydantic can't check a Protocol; it is an AbortSignal
    abort: Annotated[Any, AfterValidator(_signal)] = field(default=None, compare=False)
    # Any: as above; it is a LoadedRun
    loaded: Annotated[Any, AfterValidator(_loaded_run)] = field(default=None, compare=False)
    wakes_hosts: bool = True
    # Any: as above; it is a function without arguments
    successor: Annotated[Any, AfterValidator(_successor)] = field(default=None, compare=False)


async def handle(command: ExecuteJob, ports: KernelPorts) -> ExecuteJobResult:
    """Execute, under the command's key if it has one. A ghost is no result to keep: the job may come again."""
    if command.idempotency_key is None:
        return await _execute(command, ports, None)
    keyed = KeyedCommand(ports, command, command.idempotency_key, ExecuteJobResult)
    kept = await keyed.acquire(ports.persistence)
    if kept is not None:
        return cast(ExecuteJobResult, kept)
    try:
        result = await _execute(command, ports, keyed)
    except BaseException:
        await _release(keyed, ports)
        raise
    if result.ghost:
        await _release(keyed, ports)
    return result


async def _execute(command: ExecuteJob, ports: KernelPorts, keyed: KeyedCommand | None) -> ExecuteJobResult:
    workflow = ports.workflow(command.workflow_id)
    claimed = _just_claimed(command, ports)
    loaded = claimed or await _loaded(command, ports)
    run = loaded.run
    if run.workflow_id != workflow.id:
        problem = Problem(
            path="$.workflow_id", message=f"run {run.id!r} is a run of workflow {run.workflow_id!r}"
        )
        raise InvalidCommandError(command.type, (problem,))
    is_another = await ports.has_another_structure(run, ports.persistence)
    reason = ghost_of(run, workflow.definition_version, same_structure=not is_another)
    if reason is not None:
        return _ghost(reason, _why_ghost(ports, run, workflow))
    stage = workflow.stage(command.stage_id)
    record = loaded.stage(stage.id)
    # All events of one dispatch share their cause.
    cause = command.idempotency_key or ports.ids.new_id()
    standing = None if record is None else await _standing_result(command, ports, record, keyed)
    if standing is not None:
        return standing
    try:
        record = await _started(command, ports, run, workflow, stage, record, cause)
        record = await reset_owed_steps(ports, record)
    except (RunNotRunningError, SupersededError) as overtaken:
        return await _overtaken(ports, command.run_id, command.job, overtaken)
    execution = Execution(
        run_id=run.id,
        workflow=workflow,
        stage=stage,
        record=record,
        job=command.job,
        advances=command.job is not None,
        loaded=claimed,
    )
    outcome = await _run_body(command, ports, execution, run, loaded.stages)
    await _write_model_calls(ports)
    if command.abort is not None and command.abort.is_set:
        await _keep_logs(ports, outcome)
        return _aborted(command.abort)
    return await _record(command, ports, execution, outcome, keyed, cause)


def _just_claimed(command: ExecuteJob, ports: KernelPorts) -> LoadedRun | None:
    """The run as its claim left it, if that was a moment ago and the transport took part in it."""
    loaded: LoadedRun | None = command.loaded
    if loaded is None or not _starts_with_its_claim(command, ports) or loaded.run.id != command.run_id:
        return None
    stage = loaded.stage(command.stage_id)
    if stage is None or stage.status is not Status.RUNNING:
        return None
    age = ports.clock.now() - stage.updated_at
    return loaded if timedelta(0) <= age <= _FRESH else None


async def _loaded(command: ExecuteJob, ports: KernelPorts) -> LoadedRun:
    loaded = await ports.persistence.load_runs([command.run_id])
    if not loaded:
        raise RunNotFoundError(command.run_id)
    return loaded[0]


async def _standing_result(
    command: ExecuteJob, ports: KernelPorts, record: StoredStage, keyed: KeyedCommand | None
) -> ExecuteJobResult | None:
    """The answer for a stage whose body must not run now: it ended, or it waits."""
    ended = True
    if record.status is Status.COMPLETED:
        output = record.output
        if record.output_claim is not None:
            output = await load_spilled(ports.blob_store, record.output_claim)
        result, settlement = ExecuteJobResult(outcome="completed", output=output), Settlement(kind="complete")
    elif record.status is Status.FAILED:
        result = ExecuteJobResult(outcome="failed", error=record.error)
        settlement = Settlement(kind="fail", error=str(record.error))
    elif record.status is Status.CANCELLED:
        return _ghost("orphan", f"stage {record.stage_id!r} is CANCELLED")
    elif record.status is Status.SUSPENDED and not is_due(record, ports.clock.now()):
        ended = False
        result = ExecuteJobResult(outcome="suspended", next_poll_at=record.next_poll_at)
        settlement = Settlement(kind="suspend", next_poll_at=record.next_poll_at)
    else:
        return None
    if command.job is not None:
        if ended or not ports.transport_enlists:
            await acknowledge(ports.job_transport, command.job, settlement)
        else:
            await _put_back(ports, record.run_id, command.job, settlement)
    if keyed is not None and ended:
        await keyed.complete(ports.persistence, result)
    return result


async def _put_back(ports: KernelPorts, run_id: str, job: JobRef, settlement: Settlement) -> None:
    """Let a job wait, unless its run has ended meanwhile, and with it all its jobs but this one."""

    async def work(unit: UnitOfWork) -> None:
        runs = await unit.tx.lock_runs([run_id])
        if not runs or runs[0].status in TERMINAL_RUN_STATUSES:
            state = runs[0].status if runs else "gone"
            await settle_job(unit, job, Settlement(kind="fail", error=f"run {run_id!r} is {state}"))
        else:
            await settle_job(unit, job, settlement)

    with suppress(SupersededError):  # somebody else has the job
        await in_transaction(ports, work)


async def _started(
    command: ExecuteJob,
    ports: KernelPorts,
    run: RunRecord,
    workflow: Workflow,
    stage: Stage[Any, Any, Any],
    record: StoredStage | None,
    cause: str,
) -> StoredStage:
    """Phase 1, unless the claim did it: the stage is RUNNING for everybody to see before its body starts."""
    if record is not None and record.status is Status.RUNNING and _starts_with_its_claim(command, ports):
        return record
    if command.job is not None and not ports.transport_enlists:
        await require_owned(ports.job_transport, command.job)
    return await in_transaction(
        ports, lambda unit: begin_execution(unit, run.id, workflow, stage, command.job), causation_id=cause
    )


async def _run_body(
    command: ExecuteJob,
    ports: KernelPorts,
    execution: Execution,
    run: RunRecord,
    stages: Sequence[StoredStage],
) -> ActivityOutcome:
    """Phase 2, with no transaction open."""
    abort: AbortSignal = NeverAborted() if command.abort is None else command.abort
    try:
        activity = await load_activity(ports, execution, run, stages, abort)
    except SpilledPayloadUnavailableError as error:
        described = describe_exception(error, code="INPUT_UNAVAILABLE", stage_id=execution.stage.id)
        return ActivityOutcome(ending=BodyFailed(error=described, retryable=True))
    if isinstance(activity, BodyFailed):
        return ActivityOutcome(ending=activity)
    return await ports.executor.run(activity)


async def _write_model_calls(ports: KernelPorts) -> None:
    """Let whoever adds up the run after this stage, perhaps in another process, see all its calls."""
    if ports.services.ai_logger is None:
        return
    try:
        await ports.services.ai_logger.drain()
    except Exception:  # an outcome must not be lost because its accounting fails
        _log.warning("the log of model calls could not be drained", exc_info=True)


async def _record(
    command: ExecuteJob,
    ports: KernelPorts,
    execution: Execution,
    outcome: ActivityOutcome,
    keyed: KeyedCommand | None,
    cause: str,
) -> ExecuteJobResult:
    """Phase 3: the outcome and all that follows from it, or nothing."""
    stored: StoredOutput | None = None
    if isinstance(outcome.ending, BodyReturned):
        try:
            stored = await store_output(ports, execution, outcome.ending)
        except OutputNotStoredError as error:
            # It spends an attempt, so that a store that takes nothing doesn't have a body repeated without an end.
            described = describe_exception(error, code="OUTPUT_NOT_STORED", stage_id=execution.stage.id)
            ending = BodyFailed(error=described, retryable=error.retryable)
            outcome = replace(outcome, ending=ending)

    # What hasn't changed since the claim needs no look under a lock; only the first try takes that chance.
    known = [execution.loaded] if is_alone(execution, outcome) else []

    async def work(unit: UnitOfWork, *, advances: bool) -> ExecuteJobResult:
        if not command.wakes_hosts:
            unit.leave_waking_to_caller()
        _hand_over(command, outcome, keyed, unit)
        expected = known.pop() if known else None
        recorded = await record_outcome(
            unit, execution, outcome, stored, advances=advances, expected=expected
        )
        result = replace(_flat(recorded, outcome), leaves_jobs=unit.leaves_jobs)
        if keyed is not None:
            await keyed.complete(unit.tx, result)
        return result

    try:
        try:
            return await in_transaction(
                ports, lambda unit: work(unit, advances=execution.advances), causation_id=cause
            )
        except SpilledPayloadUnavailableError:
            # A sibling's output can't be read now. This outcome is recorded all the same; the run moves on later.
            return await in_transaction(ports, lambda unit: work(unit, advances=False), causation_id=cause)
    except (RunNotRunningError, SupersededError) as overtaken:
        await discard_output(ports, stored)
        await _keep_logs(ports, outcome)
        return await _overtaken(ports, execution.run_id, execution.job, overtaken)


def _hand_over(
    command: ExecuteJob, outcome: ActivityOutcome, keyed: KeyedCommand | None, unit: UnitOfWork
) -> None:
    """Give what follows to the worker that wants it; a result that is kept would give a job twice."""
    if command.successor is None or command.job is None or keyed is not None:
        return
    if not isinstance(outcome.ending, BodyReturned):
        return
    worker_id = command.successor()
    if worker_id is not None:
        unit.hand_over_to(worker_id, at_most=1)
        unit.amend(_with_next_job)


def _with_next_job(result: ExecuteJobResult, jobs: tuple[DequeuedJob, ...]) -> ExecuteJobResult:
    return replace(result, next_job=jobs[0])


def _starts_with_its_claim(command: ExecuteJob, ports: KernelPorts) -> bool:
    return command.job is not None and ports.transport_enlists


def _flat(recorded: Recorded, outcome: ActivityOutcome) -> ExecuteJobResult:
    retryable = isinstance(outcome.ending, BodyFailed) and outcome.ending.retryable
    output = outcome.ending.output if isinstance(outcome.ending, BodyReturned) else None
    return ExecuteJobResult(
        outcome=recorded.outcome,
        output=output,
        error=recorded.error,
        next_poll_at=recorded.next_poll_at,
        will_retry=recorded.will_retry,
        retryable=retryable,
    )


def _ghost(reason: GhostReason, why: str) -> ExecuteJobResult:
    error = ErrorRecord(code=f"GHOST_{reason.upper()}", message=why)
    return ExecuteJobResult(outcome="failed", error=error, ghost=True, ghost_reason=reason)


def _why_ghost(ports: KernelPorts, run: RunRecord, workflow: Workflow) -> str:
    if run.definition_version == workflow.definition_version and ports.known_definitions.differs(workflow):
        return (
            f"run {run.id!r} is {run.status} and pinned to version {run.definition_version!r} of workflow "
            f"{workflow.id!r}, which is stored with another structure than this build has"
        )
    if run.definition_version not in (None, workflow.definition_version):
        return (
            f"run {run.id!r} is {run.status} and pinned to version {run.definition_version!r} of workflow "
            f"{workflow.id!r}; this build serves {workflow.definition_version!r}"
        )
    return f"run {run.id!r} is {run.status}"


def _aborted(abort: AbortSignal) -> ExecuteJobResult:
    why = f"the stage was told to stop ({abort.reason}); its outcome is discarded"
    return _ghost("orphan" if abort.reason == "cancelled" else "race", why)


async def _overtaken(
    ports: KernelPorts, run_id: str, job: JobRef | None, error: RunNotRunningError | SupersededError
) -> ExecuteJobResult:
    if isinstance(error, SupersededError):
        # Another execution of the same delivery may have overtaken this one, or be lost by now: as long as the job
        # is this delivery's, somebody has to look what became of the stage.
        is_owned = job is not None and await ports.job_transport.touch(job.job_id, job.fence)
        return _ghost("race" if is_owned else "orphan", str(error))
    status = await ports.persistence.get_run_status(run_id)
    return _ghost("orphan", f"run {run_id!r} is {status or 'gone'}; the outcome is discarded")


async def _keep_logs(ports: KernelPorts, outcome: ActivityOutcome) -> None:
    if not outcome.logs:
        return
    try:
        await ports.persistence.append_logs(outcome.logs)
    except Exception:  # the outcome is discarded already; its log lines must not turn that into an error
        _log.warning("%d log lines of a discarded outcome are lost", len(outcome.logs), exc_info=True)


async def _release(keyed: KeyedCommand, ports: KernelPorts) -> None:
    try:
        await keyed.release(ports.persistence)
    except Exception:  # the execution's own error is what the caller has to see
        _log.warning("an idempotency key stays in progress until it is stale", exc_info=True)
