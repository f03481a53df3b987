"""Phase 3 of an execution: the outcome, and all that commits with it."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from stagewright.duration import add_duration
from stagewright.errors import InvalidDurationError, RunNotRunningError, SupersededError
from stagewright.events import (
    Event,
    StageCompleted,
    StageFailed,
    StageRetrying,
    StageSuspended,
    WorkflowSuspended,
)
from stagewright.kernel.procedures.advance_run import advance_run
from stagewright.kernel.procedures.annotate import AnnotationSubject, annotate
from stagewright.kernel.procedures.execution import Execution
from stagewright.kernel.procedures.settle_job import Settlement, settle_job
from stagewright.kernel.procedures.store_output import StoredOutput
from stagewright.kernel.rules.failures import GiveUp, TryAgain, judge_failure
from stagewright.kernel.unit_of_work import UnitOfWork
from stagewright.ports import ActivityOutcome, BodyFailed, BodyReturned, BodySuspended, BodyWaits
from stagewright.records import (
    ErrorRecord,
    LoadedRun,
    LogLevel,
    LogRecord,
    StagePatch,
    StoredStage,
)
from stagewright.records.copies import detached_fields
from stagewright.runtime.failure import describe_exception
from stagewright.status import Status

__all__ = ["Recorded", "is_alone", "record_outcome"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What was recorded of an execution."""

    outcome: Literal["completed", "suspended", "failed"]
    error: ErrorRecord | None = None
    next_poll_at: datetime | None = None
    will_retry: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ending:
    """How an outcome is written: the stage's new state, the job's, the events that say so, a line for the log."""

    recorded: Recorded
    patch: StagePatch
    settlement: Settlement
    events: tuple[Event, ...]
    log_level: LogLevel | None = None


def is_alone(execution: Execution, outcome: ActivityOutcome) -> bool:
    """Whether a body has returned in a run in which nothing else goes on: it is likely to be unchanged."""
    loaded = execution.loaded
    return (
        loaded is not None
        and isinstance(outcome.ending, BodyReturned)
        and loaded.run.redrive_count == 0
        and all(
            stage.status is Status.COMPLETED or stage.id == execution.record.id for stage in loaded.stages
        )
    )


async def record_outcome(
    unit: UnitOfWork,
    execution: Execution,
    outcome: ActivityOutcome,
    stored: StoredOutput | None,
    *,
    advances: bool,
    expected: LoadedRun | None = None,
) -> Recorded:
    """Record how an execution ended, together with its job, its events, and where `advances` the run's next step.

    With `expected` the run isn't read: the transaction is refused by the store if it is another one by now.

    Raises:
        RunNotRunningError: If the run has ended or was cancelled; nothing is kept then.
        SupersededError: If this attempt or this delivery isn't the current one any more; nothing is kept then.
        StaleVersionError: If the run isn't as expected; nothing is kept then.
    """
    if expected is None:
        loaded = await _still_wanted(unit, execution)
    else:
        await unit.tx.expect_run(expected)
        loaded = expected
    run, stages = loaded.run, loaded.stages
    record = next(stage for stage in stages if stage.id == execution.record.id)
    ending = await _ending(unit, execution, record, outcome, stored)
    await settle_job(unit, execution.job, ending.settlement)
    version = None if expected is None else record.version
    await unit.tx.update_stage(record.id, ending.patch, expected_version=version)
    for event in (*outcome.progress, *ending.events):
        unit.emit(event)
    subject = AnnotationSubject(
        stage_record_id=record.id, attempt=record.attempt, scope="stage", scope_id=record.stage_id
    )
    await annotate(unit, outcome.annotations, run_id=run.id, subject=subject)
    await unit.tx.append_logs([*outcome.logs, *_log_lines(unit, record, ending)])
    if advances and not ending.recorded.will_retry:
        changed = _patched(record, ending.patch)
        now = [changed if stage.id == record.id else stage for stage in stages]
        await advance_run(unit, run, execution.workflow, now, last_sequence=loaded.last_sequence)
    return ending.recorded


async def _still_wanted(unit: UnitOfWork, execution: Execution) -> LoadedRun:
    loaded = await unit.tx.load_runs([execution.run_id], lock=True)
    if not loaded or loaded[0].run.status is not Status.RUNNING:
        raise RunNotRunningError(execution.run_id, loaded[0].run.status if loaded else None)
    started = execution.record
    current = next((stage for stage in loaded[0].stages if stage.id == started.id), None)
    if current is None or current.attempt != started.attempt or current.status is not Status.RUNNING:
        raise SupersededError(execution.job.job_id if execution.job else f"of stage {started.stage_id}")
    return loaded[0]


async def _ending(
    unit: UnitOfWork,
    execution: Execution,
    record: StoredStage,
    outcome: ActivityOutcome,
    stored: StoredOutput | None,
) -> _Ending:
    match outcome.ending:
        case BodyReturned() as returned:
            assert stored is not None  # an output is stored before this transaction opens
            return _completed(unit, record, returned, stored)
        case BodySuspended() as suspended:
            try:
                return _suspended(unit, record, suspended)
            except InvalidDurationError as error:
                described = describe_exception(error, code="INVALID_OUTPUT", stage_id=record.stage_id)
                return await _failed(unit, execution, record, BodyFailed(error=described, retryable=False))
        case BodyWaits() as waits:
            return _waiting(unit, record, waits)
        case BodyFailed() as failed:
            return await _failed(unit, execution, record, failed)


def _completed(
    unit: UnitOfWork, record: StoredStage, returned: BodyReturned, stored: StoredOutput
) -> _Ending:
    duration = unit.now - (record.started_at or unit.now)
    patch = StagePatch(
        updated_at=unit.now,
        status=Status.COMPLETED,
        completed_at=unit.now,
        duration=duration,
        error=None,
        next_poll_at=None,
        waiting_step_id=None,
        metrics=returned.metrics,
        output=stored.output,
        output_claim=stored.output_claim,
        artifacts=stored.artifacts,
    )
    event = StageCompleted(
        timestamp=unit.now,
        run_id=record.run_id,
        stage_id=record.stage_id,
        stage_name=record.stage_name,
        duration=duration,
    )
    return _Ending(
        recorded=Recorded(outcome="completed"),
        patch=patch,
        settlement=Settlement(kind="complete"),
        events=(event,),
    )


def _suspended(unit: UnitOfWork, record: StoredStage, suspended: BodySuspended) -> _Ending:
    next_poll_at = add_duration(unit.now, suspended.poll_interval, field="poll_interval")
    limit = suspended.max_wait
    patch = StagePatch(
        updated_at=unit.now,
        status=Status.SUSPENDED,
        error=None,
        metrics=suspended.metrics,
        suspended_state=suspended.state,
        next_poll_at=next_poll_at,
        poll_interval=suspended.poll_interval,
        max_wait_until=None if limit is None else add_duration(unit.now, limit, field="max_wait"),
        waiting_step_id=None,
    )
    return _Ending(
        recorded=Recorded(outcome="suspended", next_poll_at=next_poll_at),
        patch=patch,
        settlement=Settlement(kind="suspend", next_poll_at=next_poll_at),
        events=_told_of_suspension(unit, record, next_poll_at),
    )


def _waiting(unit: UnitOfWork, record: StoredStage, waits: BodyWaits) -> _Ending:
    # Another look at the same step is no news.
    is_news = record.waiting_step_id != waits.step_id
    # A signal that came since the body began may have been overlooked by it.
    next_poll_at = min(waits.next_poll_at, record.nudged_at or waits.next_poll_at)
    return _Ending(
        recorded=Recorded(outcome="suspended", next_poll_at=next_poll_at),
        patch=StagePatch(
            updated_at=unit.now,
            status=Status.SUSPENDED,
            error=None,
            next_poll_at=next_poll_at,
            waiting_step_id=waits.step_id,
            nudged_at=None,
        ),
        settlement=Settlement(kind="suspend", next_poll_at=next_poll_at),
        events=_told_of_suspension(unit, record, next_poll_at) if is_news else (),
    )


def _told_of_suspension(unit: UnitOfWork, record: StoredStage, next_poll_at: datetime) -> tuple[Event, ...]:
    return (
        StageSuspended(
            timestamp=unit.now,
            run_id=record.run_id,
            stage_id=record.stage_id,
            stage_name=record.stage_name,
            next_poll_at=next_poll_at,
        ),
        WorkflowSuspended(timestamp=unit.now, run_id=record.run_id, stage_id=record.stage_id),
    )


async def _failed(unit: UnitOfWork, execution: Execution, record: StoredStage, failed: BodyFailed) -> _Ending:
    earlier, most = await _budget(unit, execution)
    verdict = judge_failure(
        earlier_failures=earlier,
        max_attempts=most,
        retryable=failed.retryable,
        policy=execution.stage.retry,
        jitter=unit.ports.random.uniform,
    )
    duration = unit.now - (record.started_at or unit.now)
    match verdict:
        case TryAgain(failures, delay):
            return _Ending(
                recorded=Recorded(outcome="failed", error=failed.error, will_retry=True),
                # The attempt rises here, not at the next start, so that a late outcome of this one is refused.
                patch=StagePatch(
                    updated_at=unit.now,
                    status=Status.PENDING,
                    attempt=record.attempt + 1,
                    error=failed.error,
                    duration=duration,
                    waiting_step_id=None,
                ),
                settlement=Settlement(kind="fail", error=str(failed.error), retry=True, delay=delay),
                events=(
                    StageRetrying(
                        timestamp=unit.now,
                        run_id=record.run_id,
                        stage_id=record.stage_id,
                        stage_name=record.stage_name,
                        attempt=failures,
                        max_attempts=most,
                        error=str(failed.error),
                    ),
                ),
                log_level="WARN",
            )
        case GiveUp():
            return _Ending(
                recorded=Recorded(outcome="failed", error=failed.error),
                patch=StagePatch(
                    updated_at=unit.now,
                    status=Status.FAILED,
                    completed_at=unit.now,
                    error=failed.error,
                    duration=duration,
                    waiting_step_id=None,
                ),
                settlement=Settlement(kind="fail", error=str(failed.error)),
                events=(
                    StageFailed(
                        timestamp=unit.now,
                        run_id=record.run_id,
                        stage_id=record.stage_id,
                        stage_name=record.stage_name,
                        error=str(failed.error),
                    ),
                ),
                log_level="ERROR",
            )


async def _budget(unit: UnitOfWork, execution: Execution) -> tuple[int, int]:
    """How many failures this stage has had and may have; a stage that no job delivered gets no second attempt."""
    job = execution.job
    if job is None:
        return 0, 1
    if unit.jobs is not None:
        jobs = await unit.jobs.get_jobs_by_run(execution.run_id)
    else:
        transport = unit.ports.job_transport
        jobs = unit.fetched("jobs", lambda: transport.get_jobs_by_run(execution.run_id))
    for one in jobs:
        if one.id == job.job_id:
            return one.failures, one.max_attempts
    raise SupersededError(job.job_id)


def _log_lines(unit: UnitOfWork, record: StoredStage, ending: _Ending) -> list[LogRecord]:
    if ending.log_level is None:
        return []
    line = LogRecord(
        id=unit.ports.ids.new_id(),
        run_id=record.run_id,
        level=ending.log_level,
        message=f"attempt {record.attempt} of stage {record.stage_id!r} failed: {ending.recorded.error}",
        created_at=unit.now,
        stage_record_id=record.id,
        stage_id=record.stage_id,
    )
    return [line]


def _patched(record: StoredStage, patch: StagePatch) -> StoredStage:
    """The record as this transaction leaves it, whatever the body does from now on to what it gave."""
    return replace(record, **detached_fields(patch), version=record.version + 1)
