"""`ctx.step.wait_for`: ask again and again, in one invocation after the other, until the answer will do."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from stagewright.duration import add_duration
from stagewright.errors import NonRetryableError, StepResultNotSerializableError
from stagewright.records import StepPatch, StepRecord
from stagewright.runtime.blocking_portal import LoopPortal
from stagewright.runtime.failure import describe_exception
from stagewright.runtime.steps.calling import CutOff, Raised, Result, Returned, called
from stagewright.runtime.steps.control_flow import StepSuspended
from stagewright.runtime.steps.endings import (
    FAILED,
    NOT_SERIALIZABLE,
    Answer,
    Failure,
    Settled,
    Wait,
    stored_failure,
    time_out,
)
from stagewright.runtime.steps.function import StepFunction
from stagewright.runtime.steps.invocation import StepInvocation
from stagewright.runtime.steps.options import WaitOptions
from stagewright.runtime.steps.parking import CURRENT_CALL, StepCall
from stagewright.runtime.steps.results import load_result, record_result, store_result

__all__ = ["WaitStep"]

_BORNE_QUIETLY: Final = 3


@dataclass(frozen=True, slots=True)
class _Judged:
    """An answer, whether it will do, and what was raised when that was asked."""

    answer: object
    is_ready: bool
    problem: Exception | None


class WaitStep:
    """One call of `ctx.step.wait_for`, which `StepInvocation.attend` attends to.

    Args:
        invocation: The invocation of the body.
        call: The call.
        function: What is asked.
        ready: Whether an answer will do.
        options: How.
    """

    def __init__(
        self,
        invocation: StepInvocation,
        call: StepCall,
        function: StepFunction,
        ready: Callable[[object], object],
        options: WaitOptions,
    ) -> None:
        self._invocation = invocation
        self._call = call
        self._function = function
        self._ready = ready
        self._options = options
        self._resources = invocation.resources
        self._ledger = invocation.ledger(call.step_id)
        self._is_asking = False
        self._is_cancelled = False

    @property
    def is_lost(self) -> bool:
        """Never: nobody but this invocation has a wait."""
        return False

    async def work(self) -> Settled:
        """Answer from the ledger, or ask once, on the loop or in a thread, and record what came of it."""
        opened = await self.open()
        if not isinstance(opened, StepRecord):
            return opened
        if self._is_cancelled:
            return Failure(asyncio.CancelledError())
        return await self.record(opened, await self._ask())

    def cancel(self, task: "asyncio.Task[object]") -> None:
        """Cut the function off, never a call of the ledger."""
        self._is_cancelled = True
        if self._is_asking:
            task.cancel()

    async def open(self) -> StepRecord | Settled:
        """How the wait has ended; or its row, if it is to be asked for now."""
        row = await self._invocation.row_or_new(self._call, self._first_row)
        if row.status != "pending":
            return await self._ended(row)
        if self._is_over(row):
            return await self._time_out(row)
        abort = self._invocation.activity.abort
        try:
            abort.raise_if_set()
        except Exception as error:
            return Failure(error)
        return row

    def call_function(self, _portal: LoopPortal | None) -> object:
        """Ask once, and have the answer judged where it comes."""
        answer = self._function.call()
        return self._judged_later(answer) if inspect.isawaitable(answer) else self._judged(answer)

    async def record(self, row: StepRecord, result: Result) -> Settled:
        """Keep an answer that will do, and how often the asking has failed."""
        if self._call.is_cut and not isinstance(result, CutOff):
            # A step that it made waits; what it made of that is no answer.
            return Failure(StepSuspended(row.step_id, self._resources.clock.now()))
        match result:
            case Returned(_Judged(answer, is_ready, problem)):
                if problem is not None:
                    return Failure(problem)
                return await self._record_answer(row, answer) if is_ready else await self._wait_on(row)
            case Returned(answer):
                raise AssertionError(f"every answer is judged, and {answer!r} is not")
            case Raised(error) if isinstance(error, Exception) and not isinstance(error, NonRetryableError):
                return await self._bear(row, error)
            case Raised(error):
                return await self._record_failure(row, error, FAILED)
            case CutOff(error):
                return Failure(error)

    def _first_row(self) -> StepRecord:
        row, options = self._invocation.first_row(self._call, "pending"), self._options
        deadline = add_duration(row.created_at, options.timeout, field="timeout")
        return replace(row, deadline_at=deadline, poll_interval=options.every)

    def _judged(self, answer: object) -> "_Judged":
        try:
            return _Judged(answer, bool(self._ready(answer)), None)
        except (
            Exception
        ) as error:  # it says nothing about what is waited for: the body gets it, the wait stays
            return _Judged(answer, False, error)

    async def _judged_later(self, answer: Awaitable[object]) -> "_Judged":
        return self._judged(await answer)

    async def _ask(self) -> Result:
        token = CURRENT_CALL.set(self._call)
        self._is_asking = True
        try:
            return await called(
                self.call_function,
                threads=self._invocation.threads if self._function.is_blocking else None,
                name=f"stagewright-step-{self._call.step_id}",
                is_cancelled=lambda: self._is_cancelled,
            )
        finally:
            self._is_asking = False
            CURRENT_CALL.reset(token)

    async def _record_answer(self, row: StepRecord, value: object) -> Settled:
        try:
            kept, back = self._function.keep(value)
        except StepResultNotSerializableError as error:
            return await self._record_failure(row, error, NOT_SERIALIZABLE)
        stored = await store_result(self._resources, row, kept)
        patch = StepPatch(
            updated_at=self._resources.clock.now(),
            status="completed",
            result=stored.result,
            result_claim=stored.claim,
        )
        change = self._change(row, patch, what="the answer")
        applied, current = await record_result(self._resources, stored, change)
        if applied:
            return Answer(back)
        return await self._ended(current)

    async def _record_failure(self, row: StepRecord, error: BaseException, code: str) -> Settled:
        described = describe_exception(error, code=code, stage_id=self._invocation.activity.stage.id)
        patch = StepPatch(updated_at=self._resources.clock.now(), status="failed", error=described)
        applied, current = await self._change(row, patch, what="the failure")
        return Failure(error) if applied else await self._ended(current)

    async def _wait_on(self, row: StepRecord) -> Settled:
        if row.poll_failures:
            patch = StepPatch(updated_at=self._resources.clock.now(), poll_failures=0)
            applied, current = await self._ledger.change(
                row, patch, attempt=None, what="that it was answered"
            )
            if not applied:
                return await self._ended(current)
        return await self._pause(row, row.poll_interval or self._options.every)

    async def _bear(self, row: StepRecord, error: Exception) -> Settled:
        """What is asked may be out of order for a while; that is no failure of the step."""
        failures = row.poll_failures + 1
        self._invocation.reports.log(
            "debug" if failures <= _BORNE_QUIETLY else "warn",
            f"step {row.step_id!r} asked in vain, {failures} times in a row by now: {describe_exception(error)}",
            {},
        )
        patch = StepPatch(updated_at=self._resources.clock.now(), poll_failures=failures)
        applied, current = await self._ledger.change(row, patch, attempt=None, what="that it asked in vain")
        if not applied:
            return await self._ended(current)
        interval = row.poll_interval or self._options.every
        return await self._pause(row, interval if self._options.backoff is None else self._options.backoff)

    async def _pause(self, row: StepRecord, length: timedelta) -> Settled:
        if self._is_over(row):
            return await self._time_out(row)
        until = add_duration(self._resources.clock.now(), length, field="every")
        return Wait(min(until, row.deadline_at or until))

    def _is_over(self, row: StepRecord) -> bool:
        return row.deadline_at is not None and self._resources.clock.now() >= row.deadline_at

    async def _time_out(self, row: StepRecord) -> Settled:
        patch = time_out(row, self._resources.clock.now(), stage_id=self._invocation.activity.stage.id)
        _, current = await self._change(row, patch, what="that its time is over")
        return await self._ended(current)

    async def _change(self, row: StepRecord, patch: StepPatch, *, what: str) -> tuple[bool, StepRecord]:
        applied, current = await self._ledger.change(row, patch, attempt=None, what=what)
        self._invocation.parking.note_recorded()
        return applied, current

    async def _ended(self, row: StepRecord) -> Settled:
        if row.status == "completed":
            return Answer(self._function.load(await load_result(self._resources, row)))
        return Failure(stored_failure(row))
