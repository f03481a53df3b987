"""Running bodies in this process."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

from stagewright.definitions import RetryPolicy
from stagewright.errors import (
    InvalidConfigError,
    InvalidInputError,
    InvalidOutputError,
    Problem,
    SchemaMismatchError,
    StageTimeoutError,
    ValueNotSerializableError,
)
from stagewright.ports import ActivityEnding, ActivityOutcome, ActivityRun, BodyFailed, BodyWaits
from stagewright.runtime.abort import LinkedAbort
from stagewright.runtime.blocking import BlockingContext
from stagewright.runtime.blocking_portal import LoopPortal
from stagewright.runtime.body_ending import what_came_of
from stagewright.runtime.body_threads import DEFAULT_CAP, BodyThreads
from stagewright.runtime.contexts import AsyncContext
from stagewright.runtime.failure import describe_exception
from stagewright.runtime.fork_guard import ends_in_this_process
from stagewright.runtime.reports import StageReports
from stagewright.runtime.returned import read_returned
from stagewright.runtime.steps.invocation import StepInvocation

__all__ = ["LocalExecutor"]

_LOG_INTERVAL: Final = 1.0
_DEFAULT_POLICY: Final = RetryPolicy()
_log: Final = logging.getLogger("stagewright.kernel")


class LocalExecutor:
    """Runs `async def` bodies on this event loop and plain `def` bodies in threads of their own.

    Args:
        abandoned_threads_cap: How many threads that nobody waits for any more are borne before `is_full`.
    """

    def __init__(self, *, abandoned_threads_cap: int = DEFAULT_CAP) -> None:
        self._threads = BodyThreads(abandoned_threads_cap)

    @property
    def abandoned_threads(self) -> int:
        """How many threads of plain bodies and steps go on after their time-out or cancellation."""
        return self._threads.abandoned

    @property
    def abandoned_threads_cap(self) -> int:
        """How many of them are borne."""
        return self._threads.cap

    @property
    def is_full(self) -> bool:
        """Whether there are so many that no more work should be taken."""
        return self._threads.is_full

    async def run(self, activity: ActivityRun) -> ActivityOutcome:
        """Run a body to its end. Whatever it raises, and whatever its values don't fit, is the outcome."""
        reports = StageReports(activity)
        async with _logs_written_meanwhile(activity, reports):
            ending = await _ending(activity, reports, self._threads)
        return ActivityOutcome(
            ending=ending,
            progress=reports.progress,
            annotations=reports.annotations,
            logs=reports.take_logs(),
        )


async def _ending(activity: ActivityRun, reports: StageReports, threads: BodyThreads) -> ActivityEnding:
    stage = activity.stage
    try:
        given = stage.parse_input(activity.input)
    except SchemaMismatchError as error:
        return _unfit(activity, InvalidInputError(f"stage {stage.id!r}", error.problems), "INVALID_INPUT")
    try:
        config = stage.parse_config(activity.config)
    except SchemaMismatchError as error:
        return _unfit(activity, InvalidConfigError(f"stage {stage.id!r}", error.problems), "INVALID_CONFIG")
    invocation = _Invocation(activity, reports, threads)
    returned, raised = await what_came_of(invocation.run_body(given, config))
    waits = _waiting(activity, invocation.steps, raised)
    if waits is not None:
        return waits
    return _read(activity, returned) if raised is None else _failed(activity, raised)


def _waiting(
    activity: ActivityRun, steps: StepInvocation, raised: BaseException | None
) -> BodyWaits | BodyFailed | None:
    """What its steps decide about the ending of a body, whatever it returned or raised."""
    if steps.fatal is not None:
        return _failed(activity, steps.fatal)
    if steps.suspension is not None:
        if raised is not None:
            steps.warn_of_dropped(raised)
        return BodyWaits(step_id=steps.suspension.step_id, next_poll_at=steps.suspension.next_poll_at)
    return None


class _Invocation:
    """One invocation of a body, within its time limit."""

    def __init__(self, activity: ActivityRun, reports: StageReports, threads: BodyThreads) -> None:
        timeout = activity.stage.timeout
        self._seconds = None if timeout is None else timeout.total_seconds()
        self._limit: asyncio.Timeout = asyncio.timeout(self._seconds)
        self._abort = LinkedAbort(activity.abort)
        self._activity = replace(activity, abort=self._abort)
        self._reports = reports
        self._threads = threads
        self.steps = StepInvocation(self._activity, reports, threads, is_stopping=self._is_stopping)

    async def run_body(self, given: Any, config: Any) -> object:
        stage_id = self._activity.stage.id
        try:
            async with self._limit, self.steps:
                returned = await self._call_body(given, config)
        except TimeoutError:
            if self._limit.expired() and self._seconds is not None:
                raise StageTimeoutError(stage_id, self._seconds) from None
            raise
        finally:
            if self._limit.expired():
                # A plain body goes on in its thread; this is how it learns that nobody waits for it any more.
                self._abort.set("lease-lost")
        if self._is_over() and self._seconds is not None:
            # The body let its cancellation pass and returned after all, or blocked the loop and left no room for one.
            raise StageTimeoutError(stage_id, self._seconds)
        return returned

    async def _call_body(self, given: Any, config: Any) -> object:
        activity, stage = self._activity, self._activity.stage
        if not stage.is_blocking:
            context = AsyncContext(activity, self._reports, input=given, config=config, steps=self.steps)
            with ends_in_this_process(f"stage {stage.id!r} of run {activity.run_id}"):
                return await stage.execute(context)
        portal = LoopPortal(asyncio.get_running_loop())
        blocking = BlockingContext(
            activity, self._reports, input=given, config=config, portal=portal, steps=self.steps
        )
        name = f"stagewright-{stage.id}-{activity.run_id}"
        return await self._threads.run(lambda: stage.execute(blocking), name=name)

    def _is_over(self) -> bool:
        ends_at = self._limit.when()
        return ends_at is not None and asyncio.get_running_loop().time() >= ends_at

    def _is_stopping(self) -> bool:
        return self._abort.is_set or self._limit.expired()


def _read(activity: ActivityRun, returned: object) -> ActivityEnding:
    try:
        return read_returned(activity.stage, returned)
    except SchemaMismatchError as error:
        subject, problems = error.what, error.problems
    except ValueNotSerializableError as error:
        subject, problems = error.what, (Problem(path=error.path, message=error.problem),)
    except Exception as error:  # what a returned object does when it is looked at is the body's failure
        subject = f"the output of stage {activity.stage.id!r}"
        problems = (Problem(path="$", message=f"it can't be read: {describe_exception(error)}"),)
    return _unfit(activity, InvalidOutputError(subject, problems), "INVALID_OUTPUT")


def _unfit(activity: ActivityRun, error: Exception, code: str) -> BodyFailed:
    return BodyFailed(error=describe_exception(error, code=code, stage_id=activity.stage.id), retryable=False)


def _failed(activity: ActivityRun, error: BaseException) -> BodyFailed:
    policy = activity.stage.retry or _DEFAULT_POLICY
    code = "STAGE_TIMEOUT" if isinstance(error, StageTimeoutError) else "STAGE_FAILED"
    return BodyFailed(
        error=describe_exception(error, code=code, stage_id=activity.stage.id),
        retryable=policy.allows(error),
    )


@asynccontextmanager
async def _logs_written_meanwhile(activity: ActivityRun, reports: StageReports) -> AsyncIterator[None]:
    """Write log lines each second while a body runs, so that they can be read, and survive a crash."""
    writers: list[asyncio.Task[None]] = []
    # Most bodies are done before the first second is over.
    beginning = asyncio.get_running_loop().call_later(
        _LOG_INTERVAL, lambda: writers.append(asyncio.create_task(_write_logs(activity, reports)))
    )
    try:
        yield
    finally:
        beginning.cancel()
        for writer in writers:
            writer.cancel()
            # Waiting for a set, unlike awaiting the task, lets a cancellation of this very task through.
            await asyncio.wait({writer})


async def _write_logs(activity: ActivityRun, reports: StageReports) -> None:
    while True:
        lines = reports.take_logs()
        try:
            if lines:
                await activity.resources.write_logs(lines)
        except Exception:  # the lines are tried again with the next ones, and with the outcome
            reports.put_back_logs(lines)
            _log.warning(
                "%d log lines of run %s could not be written yet", len(lines), activity.run_id, exc_info=True
            )
        except asyncio.CancelledError:
            # Whether they were written is unknown; a line that is there already is skipped by its id.
            reports.put_back_logs(lines)
            raise
        await asyncio.sleep(_LOG_INTERVAL)
