"""Asking whether the work of a suspended batch is done."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeAlias

from stagewright.annotations import AnnotationInput
from stagewright.definitions import NotReady, Ready, RetryPolicy
from stagewright.errors import (
    InvalidOutputError,
    Problem,
    SchemaMismatchError,
    StageTimeoutError,
    ValueNotSerializableError,
)
from stagewright.events import StageProgress
from stagewright.ports import ActivityRun, BodyFailed, BodyReturned
from stagewright.records import LogRecord
from stagewright.runtime.blocking import BlockingContext
from stagewright.runtime.blocking_portal import LoopPortal
from stagewright.runtime.body_ending import what_came_of
from stagewright.runtime.body_threads import BodyThreads
from stagewright.runtime.contexts import AsyncContext
from stagewright.runtime.failure import describe_exception
from stagewright.runtime.reports import StageReports
from stagewright.runtime.returned import read_returned
from stagewright.runtime.steps.invocation import StepInvocation

__all__ = ["BatchNotReady", "CheckEnding", "CheckOutcome", "check_batch"]

_DEFAULT_POLICY: Final = RetryPolicy()


@dataclass(frozen=True, slots=True)
class BatchNotReady:
    """The work isn't done; None is to ask again after the stage's poll interval."""

    next_check_in: timedelta | None


CheckEnding: TypeAlias = BodyReturned | BatchNotReady | BodyFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOutcome:
    """How a check ended, and what it said on the way."""

    ending: CheckEnding
    progress: tuple[StageProgress, ...]
    annotations: tuple[AnnotationInput, ...]
    logs: tuple[LogRecord, ...]


async def check_batch(activity: ActivityRun) -> CheckOutcome:
    """Call a stage's `check_completion`. Whatever it raises, and whatever its values don't fit, is the outcome."""
    reports = StageReports(activity)
    ending = await _ending(activity, reports)
    return CheckOutcome(
        ending=ending,
        progress=reports.progress,
        annotations=reports.annotations,
        logs=reports.take_logs(),
    )


async def _ending(activity: ActivityRun, reports: StageReports) -> CheckEnding:
    check = _Check(activity, reports)
    answer, raised = await what_came_of(check.ask())
    if check.steps.fatal is not None:
        return _failed(activity, check.steps.fatal)
    if check.steps.suspension is not None:
        # A step of the check waits: the batch isn't ready before that has ended.
        now = activity.resources.clock.now()
        return BatchNotReady(max(check.steps.suspension.next_poll_at - now, timedelta(0)))
    if raised is not None:
        return _failed(activity, raised)
    try:
        return _read(activity, answer)
    except SchemaMismatchError as error:
        return _unfit(activity, error.what, error.problems)
    except ValueNotSerializableError as error:
        return _unfit(activity, error.what, (Problem(path=error.path, message=error.problem),))


class _Check:
    """One call of a check, within the stage's time limit."""

    def __init__(self, activity: ActivityRun, reports: StageReports) -> None:
        timeout = activity.stage.timeout
        self._seconds = None if timeout is None else timeout.total_seconds()
        self._limit = asyncio.timeout(self._seconds)
        self._activity = activity
        self._reports = reports
        self._threads = BodyThreads()
        self.steps = StepInvocation(activity, reports, self._threads, is_stopping=self._limit.expired)

    async def ask(self) -> object:
        activity, stage = self._activity, self._activity.stage
        given: Any = stage.parse_input(activity.input)
        config: Any = stage.parse_config(activity.config)
        what = f"the suspended state of stage {stage.id!r}"
        state = stage.state_schema.load(activity.resume_state, what=what)
        try:
            async with self._limit, self.steps:
                return await self._call(state, given, config)
        except TimeoutError:
            if self._limit.expired() and self._seconds is not None:
                raise StageTimeoutError(stage.id, self._seconds) from None
            raise

    async def _call(self, state: object, given: Any, config: Any) -> object:
        activity, stage = self._activity, self._activity.stage
        check = stage.check_completion
        assert check is not None  # a stage that may suspend has one
        if not stage.check_is_blocking:
            context = AsyncContext(activity, self._reports, input=given, config=config, steps=self.steps)
            return await check(state, context)
        portal = LoopPortal(asyncio.get_running_loop())
        blocking = BlockingContext(
            activity, self._reports, input=given, config=config, portal=portal, steps=self.steps
        )
        name = f"stagewright-{stage.id}-check-{activity.run_id}"
        return await self._threads.run(lambda: check(state, blocking), name=name)


def _read(activity: ActivityRun, answer: object) -> CheckEnding:
    stage = activity.stage
    if isinstance(answer, NotReady):
        return BatchNotReady(answer.next_check_in)
    if isinstance(answer, Ready):
        returned = read_returned(stage, answer.output)
        if isinstance(returned, BodyReturned):
            return returned
    found = type(answer.output if isinstance(answer, Ready) else answer).__name__
    problem = f"check_completion answers Ready(output) or NotReady(), and this is {found}"
    return _unfit(activity, f"the answer of stage {stage.id!r}", (Problem(path="$", message=problem),))


def _unfit(activity: ActivityRun, subject: str, problems: tuple[Problem, ...]) -> BodyFailed:
    error = InvalidOutputError(subject, problems)
    described = describe_exception(error, code="INVALID_OUTPUT", stage_id=activity.stage.id)
    return BodyFailed(error=described, retryable=False)


def _failed(activity: ActivityRun, error: BaseException) -> BodyFailed:
    if isinstance(error, SchemaMismatchError):
        # Its input, its config or its state is what doesn't fit, and asking again gives the same.
        described = describe_exception(error, code="INVALID_INPUT", stage_id=activity.stage.id)
        return BodyFailed(error=described, retryable=False)
    code = "STAGE_TIMEOUT" if isinstance(error, StageTimeoutError) else "STAGE_FAILED"
    policy = activity.stage.retry or _DEFAULT_POLICY
    described = describe_exception(error, code=code, stage_id=activity.stage.id)
    return BodyFailed(error=described, retryable=policy.allows(error))
