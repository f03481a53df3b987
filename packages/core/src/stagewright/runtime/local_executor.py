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
from stagewright.ports import ActivityEnding, ActivityOutcome, ActivityRun, BodyFailed
from stagewright.runtime.abort import LinkedAbort
from stagewright.runtime.blocking import BlockingContext, LoopPortal
from stagewright.runtime.body_threads import BodyRaisedError, run_in_own_thread
from stagewright.runtime.contexts import AsyncContext
from stagewright.runtime.failure import describe_exception
from stagewright.runtime.reports import StageReports
from stagewright.runtime.returned import read_returned

__all__ = ["LocalExecutor"]

_LOG_INTERVAL: Final = 1.0
_DEFAULT_POLICY: Final = RetryPolicy()
_log: Final = logging.getLogger("stagewright.kernel")


class LocalExecutor:
    """Runs `async def` bodies on this event loop and plain `def` bodies in threads of their own."""

    async def run(self, activity: ActivityRun) -> ActivityOutcome:
        """Run a body to its end. Whatever it raises, and whatever its values don't fit, is the outcome."""
        reports = StageReports(activity)
        async with _logs_written_meanwhile(activity, reports):
            ending = await _ending(activity, reports)
        return ActivityOutcome(
            ending=ending,
            progress=reports.progress,
            annotations=reports.annotations,
            logs=reports.take_logs(),
        )


async def _ending(activity: ActivityRun, reports: StageReports) -> ActivityEnding:
    stage = activity.stage
    try:
        given = stage.parse_input(activity.input)
    except SchemaMismatchError as error:
        return _unfit(activity, InvalidInputError(f"stage {stage.id!r}", error.problems), "INVALID_INPUT")
    try:
        config = stage.parse_config(activity.config)
    except SchemaMismatchError as error:
        return _unfit(activity, InvalidConfigError(f"stage {stage.id!r}", error.problems), "INVALID_CONFIG")
    try:
        returned = await _invoke(activity, reports, given, config)
    except StageTimeoutError as error:
        retryable = (stage.retry or _DEFAULT_POLICY).allows(error)
        described = describe_exception(error, code="STAGE_TIMEOUT", stage_id=stage.id)
        return BodyFailed(error=described, retryable=retryable)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # The body cancelled itself, or let a cancellation of its own making out: that is its failure.
        return _failed(activity, error)
    except KeyboardInterrupt:
        raise
    except BodyRaisedError as raised:
        return _failed(activity, raised.error)
    except BaseException as error:
        return _failed(activity, error)
    return _read(activity, returned)


async def _invoke(activity: ActivityRun, reports: StageReports, given: Any, config: Any) -> object:
    stage = activity.stage
    seconds = None if stage.timeout is None else stage.timeout.total_seconds()
    limit = asyncio.timeout(seconds)
    abort = LinkedAbort(activity.abort)
    activity = replace(activity, abort=abort)
    try:
        async with limit:
            if stage.is_blocking:
                portal = LoopPortal(asyncio.get_running_loop())
                blocking = BlockingContext(activity, reports, input=given, config=config, portal=portal)
                name = f"stagewright-{stage.id}-{activity.run_id}"
                returned = await run_in_own_thread(lambda: stage.execute(blocking), name=name)
            else:
                returned = await stage.execute(AsyncContext(activity, reports, input=given, config=config))
    except TimeoutError:
        if limit.expired() and seconds is not None:
            raise StageTimeoutError(stage.id, seconds) from None
        raise
    finally:
        if limit.expired():
            # A plain body goes on in its thread; this is how it learns that nobody waits for it any more.
            abort.set("lease-lost")
    if limit.expired() and seconds is not None:
        # The body let its cancellation pass and returned after all, too late.
        raise StageTimeoutError(stage.id, seconds)
    return returned


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
    return BodyFailed(
        error=describe_exception(error, stage_id=activity.stage.id), retryable=policy.allows(error)
    )


@asynccontextmanager
async def _logs_written_meanwhile(activity: ActivityRun, reports: StageReports) -> AsyncIterator[None]:
    """Write log lines each second while a body runs, so that they can be read, and survive a crash."""
    writer = asyncio.create_task(_write_logs(activity, reports))
    try:
        yield
    finally:
        writer.cancel()
        # Waiting for a set, unlike awaiting the task, lets a cancellation of this very task through.
        await asyncio.wait({writer})


async def _write_logs(activity: ActivityRun, reports: StageReports) -> None:
    while True:
        await asyncio.sleep(_LOG_INTERVAL)
        lines = reports.take_logs()
        if not lines:
            continue
        try:
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
