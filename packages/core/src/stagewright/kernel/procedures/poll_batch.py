"""One poll of a suspended batch: claimed for a while, checked with no transaction open, recorded if still wanted."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias

from stagewright.definitions import Stage, Workflow
from stagewright.duration import add_duration, add_within_calendar
from stagewright.errors import InvalidDurationError, SpilledPayloadUnavailableError
from stagewright.events import Event, StageCompleted, StageRetrying
from stagewright.kernel.context import KernelPorts
from stagewright.kernel.procedures.advance_run import advance_run
from stagewright.kernel.procedures.annotate import AnnotationSubject, annotate
from stagewright.kernel.procedures.execution import Execution
from stagewright.kernel.procedures.fail_stage import fail_stage, follow_failure
from stagewright.kernel.procedures.load_activity import load_activity
from stagewright.kernel.procedures.store_output import StoredOutput, discard_output, store_output
from stagewright.kernel.rules.failures import TryAgain, judge_failure
from stagewright.kernel.unit_of_work import UnitOfWork, in_transaction
from stagewright.ports import BodyFailed, BodyReturned, JobTransport
from stagewright.records import ErrorRecord, JobRecord, LoadedRun, StagePatch, StoredStage, set_fields
from stagewright.runtime.abort import NeverAborted
from stagewright.runtime.batch_check import BatchNotReady, CheckOutcome, check_batch
from stagewright.runtime.failure import describe_exception
from stagewright.status import Status

__all__ = ["ClaimedBatch", "Polled", "claim_batch", "poll_batch"]

Polled: TypeAlias = Literal["completed", "failed", "waiting", "dropped"]
"""What became of a batch; `dropped` when the run or another poller had moved it on meanwhile."""

_SHORTEST_CLAIM: Final = timedelta(seconds=60)
_DEFAULT_INTERVAL: Final = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class ClaimedBatch:
    """A batch that this poller looks at.

    Attributes:
        loaded: Its run as of the claim.
        workflow: The run's workflow.
        record: The stage, whose `next_poll_at` is the end of the claim.
    """

    loaded: LoadedRun
    workflow: Workflow
    record: StoredStage

    @property
    def stage(self) -> Stage[Any, Any, Any]:
        """The stage as it is defined."""
        return self.workflow.stage(self.record.stage_id)


async def claim_batch(
    unit: UnitOfWork, loaded: LoadedRun, workflow: Workflow, record: StoredStage
) -> ClaimedBatch:
    """Keep other pollers from a due batch for a while; if this one dies, the batch is due again then."""
    claim = max(record.poll_interval or _DEFAULT_INTERVAL, _SHORTEST_CLAIM)
    until = add_within_calendar(unit.now, claim)
    if record.max_wait_until is not None and record.max_wait_until > unit.now:
        until = min(until, record.max_wait_until)
    await unit.tx.update_stage(record.id, StagePatch(updated_at=unit.now, next_poll_at=until, nudged_at=None))
    return ClaimedBatch(loaded, workflow, replace(record, next_poll_at=until, nudged_at=None))


async def poll_batch(ports: KernelPorts, claimed: ClaimedBatch) -> Polled:
    """Check a batch, and record what came of it unless somebody was faster."""
    execution = Execution(
        run_id=claimed.loaded.run.id,
        workflow=claimed.workflow,
        stage=claimed.stage,
        record=claimed.record,
        job=None,
        advances=True,
    )
    outcome = await _checked(ports, execution, claimed)
    stored: StoredOutput | None = None
    if isinstance(outcome.ending, BodyReturned):
        stored = await store_output(ports, execution, outcome.ending)

    async def record(unit: UnitOfWork, *, advances: bool) -> Polled:
        return await _record(unit, claimed, outcome, stored, advances=advances)

    try:
        polled = await in_transaction(ports, lambda unit: record(unit, advances=True))
    except SpilledPayloadUnavailableError:
        # A sibling's output can't be read now. This outcome is recorded all the same; the run moves on later.
        polled = await in_transaction(ports, lambda unit: record(unit, advances=False))
    if polled == "dropped":
        await discard_output(ports, stored)
    return polled


async def _checked(ports: KernelPorts, execution: Execution, claimed: ClaimedBatch) -> CheckOutcome:
    run, stages = claimed.loaded.run, claimed.loaded.stages
    try:
        activity = await load_activity(ports, execution, run, stages, NeverAborted())
    except SpilledPayloadUnavailableError as error:
        described = describe_exception(error, code="INPUT_UNAVAILABLE", stage_id=execution.stage.id)
        activity = BodyFailed(error=described, retryable=True)
    if isinstance(activity, BodyFailed):
        return CheckOutcome(ending=activity, progress=(), annotations=(), logs=())
    return await check_batch(activity)


async def _record(
    unit: UnitOfWork,
    claimed: ClaimedBatch,
    outcome: CheckOutcome,
    stored: StoredOutput | None,
    *,
    advances: bool,
) -> Polled:
    loaded = await unit.tx.load_runs([claimed.record.run_id], lock=True)
    if not loaded or loaded[0].run.status is not Status.RUNNING:
        return "dropped"
    stages: Sequence[StoredStage] = loaded[0].stages
    record = next((stage for stage in stages if stage.id == claimed.record.id), None)
    if record is None or not _is_still_claimed(record, claimed.record):
        return "dropped"
    await _say(unit, record, outcome)
    failure: ErrorRecord | None = None
    match outcome.ending:
        case BodyReturned() as returned:
            assert stored is not None  # an output is stored before this transaction opens
            stages = await _complete(unit, stages, record, returned, stored)
            if advances:
                await advance_run(unit, loaded[0].run, claimed.workflow, stages)
            return "completed"
        case BatchNotReady(next_check_in):
            failure = await _wait_on(unit, record, next_check_in)
        case BodyFailed() as failed:
            failure = await _try_again(unit, claimed, record, failed)
    if failure is None:
        return "waiting"
    stages = await fail_stage(unit, stages, record, failure)
    await _settle(unit, record, failure)
    await follow_failure(unit, loaded[0].run, stages)
    return "failed"


def _is_still_claimed(current: StoredStage, claimed: StoredStage) -> bool:
    # A nudge ends the claim before its time, and nobody else may have taken the batch yet.
    is_own = current.next_poll_at == claimed.next_poll_at or (
        current.nudged_at is not None and current.next_poll_at == current.nudged_at
    )
    return current.status is Status.SUSPENDED and is_own and current.attempt == claimed.attempt


async def _say(unit: UnitOfWork, record: StoredStage, outcome: CheckOutcome) -> None:
    for event in outcome.progress:
        unit.emit(event)
    subject = AnnotationSubject(
        stage_record_id=record.id, attempt=record.attempt, scope="stage", scope_id=record.stage_id
    )
    await annotate(unit, outcome.annotations, run_id=record.run_id, subject=subject)
    await unit.tx.append_logs(list(outcome.logs))


async def _complete(
    unit: UnitOfWork,
    stages: Sequence[StoredStage],
    record: StoredStage,
    returned: BodyReturned,
    stored: StoredOutput,
) -> list[StoredStage]:
    duration = unit.now - (record.started_at or unit.now)
    patch = StagePatch(
        updated_at=unit.now,
        status=Status.COMPLETED,
        completed_at=unit.now,
        duration=duration,
        error=None,
        next_poll_at=None,
        metrics=returned.metrics or record.metrics,
        output=stored.output,
        output_claim=stored.output_claim,
        artifacts=stored.artifacts,
    )
    await unit.tx.update_stage(record.id, patch)
    event: Event = StageCompleted(
        timestamp=unit.now,
        run_id=record.run_id,
        stage_id=record.stage_id,
        stage_name=record.stage_name,
        duration=duration,
    )
    unit.emit(event)
    await _settle(unit, record, None)
    completed = replace(record, **set_fields(patch))
    return [completed if stage.id == record.id else stage for stage in stages]


async def _wait_on(
    unit: UnitOfWork, record: StoredStage, next_check_in: timedelta | None
) -> ErrorRecord | None:
    """Say when the batch is looked at next; or why it is looked at no more."""
    limit = record.max_wait_until
    if limit is not None and limit <= unit.now:
        message = f"stage {record.stage_id!r} isn't ready and has waited beyond its max_wait, until {limit.isoformat()}"
        return ErrorRecord(code="MAX_WAIT_EXCEEDED", message=message, stage_id=record.stage_id)
    interval = next_check_in if next_check_in is not None else record.poll_interval or _DEFAULT_INTERVAL
    try:
        due = add_duration(unit.now, interval, field="next_check_in")
    except InvalidDurationError as error:
        return describe_exception(error, code="INVALID_OUTPUT", stage_id=record.stage_id)
    due = min(due, limit or due, record.nudged_at or due)
    patch = StagePatch(updated_at=unit.now, next_poll_at=due, error=None, nudged_at=None)
    await unit.tx.update_stage(record.id, patch)
    return None


async def _try_again(
    unit: UnitOfWork, claimed: ClaimedBatch, record: StoredStage, failed: BodyFailed
) -> ErrorRecord | None:
    """Check once more as long as the stage's budget lasts: the batch itself is at work, and isn't submitted anew."""
    job = await _job(unit, record)
    earlier, most = (0, 1) if job is None else (job.failures, job.max_attempts)
    verdict = judge_failure(
        earlier_failures=earlier,
        max_attempts=most,
        retryable=failed.retryable,
        policy=claimed.stage.retry,
        jitter=unit.ports.random.uniform,
    )
    if job is None or not isinstance(verdict, TryAgain):
        return failed.error
    pause = max(verdict.delay, record.poll_interval or _DEFAULT_INTERVAL)
    due = add_within_calendar(unit.now, pause)
    patch = StagePatch(updated_at=unit.now, next_poll_at=due, error=failed.error)
    await unit.tx.update_stage(record.id, patch)
    unit.emit(
        StageRetrying(
            timestamp=unit.now,
            run_id=record.run_id,
            stage_id=record.stage_id,
            stage_name=record.stage_name,
            attempt=verdict.failures,
            max_attempts=most,
            error=str(failed.error),
        )
    )
    job_id, error = job.id, str(failed.error)

    async def spend(transport: JobTransport) -> None:
        await transport.fail(job_id, error, retry=True)
        await transport.suspend(job_id, due)

    await _with_transport(unit, spend)
    return None


async def _settle(unit: UnitOfWork, record: StoredStage, failure: ErrorRecord | None) -> None:
    """End the stage's job with it, unless a worker has it: its outcome is refused when it comes."""
    job = await _job(unit, record)
    if job is None:
        return
    job_id = job.id

    async def end(transport: JobTransport) -> None:
        if failure is None:
            await transport.complete(job_id)
        else:
            await transport.fail(job_id, str(failure), retry=False)

    await _with_transport(unit, end)


async def _job(unit: UnitOfWork, record: StoredStage) -> JobRecord | None:
    """The suspended job of a stage."""
    if unit.jobs is not None:
        jobs = await unit.jobs.get_jobs_by_run(record.run_id)
    else:
        transport = unit.ports.job_transport
        jobs = unit.fetched("jobs", lambda: transport.get_jobs_by_run(record.run_id))
    suspended = (job for job in jobs if job.stage_id == record.stage_id and job.status is Status.SUSPENDED)
    return next(suspended, None)


async def _with_transport(unit: UnitOfWork, work: Callable[[JobTransport], Awaitable[None]]) -> None:
    """In this transaction where the transport takes part, else after its commit."""
    if unit.jobs is not None:
        await work(unit.jobs)
    else:
        transport = unit.ports.job_transport
        unit.after_commit(lambda: work(transport))
