"""`ctx.step.run`: claim a step, call its function, record what came of it."""

import asyncio
from dataclasses import replace
from datetime import datetime
from typing import Any

from stagewright.duration import add_duration
from stagewright.errors import (
    NonRetryableError,
    StepFailedError,
    StepLeaseLostError,
    StepNotReplaySafeError,
    StepResultNotSerializableError,
)
from stagewright.records import StepPatch, StepRecord
from stagewright.runtime.abort import LinkedAbort
from stagewright.runtime.blocking_portal import LoopPortal
from stagewright.runtime.failure import describe_exception
from stagewright.runtime.steps.calling import CutOff, Raised, Result, Returned, called
from stagewright.runtime.steps.control_flow import StepSuspended
from stagewright.runtime.steps.endings import (
    FAILED,
    NOT_REPLAY_SAFE,
    NOT_SERIALIZABLE,
    Answer,
    Failure,
    Settled,
    Wait,
    stored_failure,
)
from stagewright.runtime.steps.execution import Lease, RunningStep, StepExecution
from stagewright.runtime.steps.external_key import derive_external_key
from stagewright.runtime.steps.function import StepFunction
from stagewright.runtime.steps.invocation import StepInvocation
from stagewright.runtime.steps.leases import (
    DEFAULT_LEASE,
    Free,
    Held,
    Superseded,
    Void,
    is_superseded,
    standing_of,
)
from stagewright.runtime.steps.options import StepOptions
from stagewright.runtime.steps.parking import CURRENT_CALL, StepCall
from stagewright.runtime.steps.results import load_result, record_result, store_result

__all__ = ["RunStep"]


class RunStep:
    """One call of `ctx.step.run`, which `StepInvocation.attend` attends to.

    Args:
        invocation: The invocation of the body.
        call: The call.
        function: What is called.
        options: How.
    """

    def __init__(
        self, invocation: StepInvocation, call: StepCall, function: StepFunction, options: StepOptions
    ) -> None:
        self._invocation = invocation
        self._call = call
        self._function = function
        self._options = options
        self._resources = invocation.resources
        self._ledger = invocation.ledger(call.step_id)
        length, interval = options.lease, options.heartbeat
        if length is None and invocation.asker.owner is None:
            length = DEFAULT_LEASE
            interval = None if interval is None or interval >= length else interval
        self._lease = Lease(length, interval)
        self._is_in_function = False
        self._is_cancelled = False

    @property
    def is_lost(self) -> bool:
        """Whether its execution has lost its lease."""
        return self._call.is_lost

    async def work(self) -> Settled:
        """Answer from the ledger, or claim the step, call its function on the loop or in a thread, and record."""
        opened = await self.open()
        if not isinstance(opened, StepExecution):
            return opened
        if self._is_cancelled:
            return await self.record(opened, CutOff(asyncio.CancelledError()))
        return await self.record(opened, await self._execute(opened))

    def cancel(self, task: "asyncio.Task[object]") -> None:
        """Cut the function off, never a call of the ledger."""
        self._is_cancelled = True
        if self._is_in_function:
            task.cancel()

    async def open(self) -> StepExecution | Settled:
        """What the ledger knows of the step; or the execution that this call is to make of it."""
        row = await self._invocation.row_of(self._call)
        if row is None:
            created, row = await self._ledger.claim(self._first_row())
            if created:
                return self._begin(row, is_reclaim=False)
            self._invocation.check(self._call, row)
        while True:
            met = await self._meet(row)
            if not isinstance(met, StepRecord):
                return met
            row = met

    async def record(self, execution: StepExecution, result: Result) -> Settled:
        """Keep what came of an execution; of several executions the first to come here is the one that counts."""
        self._invocation.end(execution)
        suspension = self._invocation.suspension
        if self._call.is_cut and not isinstance(result, CutOff):
            # A step that it made waits; what it made of that is no outcome.
            until = self._resources.clock.now() if suspension is None else suspension.next_poll_at
            result = CutOff(StepSuspended(self._call.step_id, until))
        match result:
            case Returned(value):
                return await self._record_value(execution, value)
            case Raised(error):
                if execution.abort.is_set and isinstance(error, Exception):
                    await execution.give_up()
                    return Failure(error)
                return await self._record_failure(execution.row, error)
            case CutOff(error, goes_on):
                if self._call.is_lost and suspension is not None:
                    error = StepSuspended(self._call.step_id, suspension.next_poll_at)
                # What goes on in a thread may still take effect: whoever comes next is told that it is a reclaim.
                if goes_on:
                    execution.abort.set("lease-lost")
                else:
                    await execution.give_up()
                return Failure(error)

    def _first_row(self) -> StepRecord:
        row, owner = self._invocation.first_row(self._call, "running"), self._invocation.activity.owner
        key = derive_external_key(row.stage_record_id, row.step_id)
        return replace(row, owner=owner, lease_expires_at=self._lease.end(row.created_at), external_key=key)

    async def _meet(self, row: StepRecord) -> StepExecution | Settled | StepRecord:
        """Deal with a row that is there; a row is the answer when it changed meanwhile."""
        asker, now = self._invocation.asker, self._resources.clock.now()
        if row.status == "completed":
            return Answer(self._function.load(await load_result(self._resources, row)))
        if row.status == "failed":
            stored = stored_failure(row)
            if not isinstance(stored, StepFailedError):
                return Failure(stored)
            if is_superseded(row, asker):
                return Failure(StepLeaseLostError(row.step_id))
            if row.stage_attempt == asker.stage_attempt:
                if row.retry_at is None:
                    return Failure(stored)
                if now < row.retry_at:
                    return Wait(row.retry_at)
            return await self._take(row, now, is_reclaim=False)
        match standing_of(row, asker, now):
            case Superseded():
                return Failure(StepLeaseLostError(row.step_id))
            case Held(until):
                return Wait(until)
            case Free():
                # An error says that it was opened again after an execution that came to no result.
                return await self._take(row, now, is_reclaim=row.error is not None)
            case Void():
                if self._options.on_reclaim == "fail":
                    return await self._refuse(row, now)
                return await self._take(row, now, is_reclaim=True)

    async def _take(self, row: StepRecord, now: datetime, *, is_reclaim: bool) -> StepExecution | StepRecord:
        patch = StepPatch(
            updated_at=now,
            status="running",
            attempt=row.attempt + 1,
            stage_attempt=self._invocation.asker.stage_attempt,
            owner=self._invocation.asker.owner,
            lease_expires_at=self._lease.end(now),
            retry_at=None,
            error=None,
        )
        applied, current = await self._ledger.change(
            row, patch, attempt=row.attempt, what="the beginning of another execution"
        )
        return self._begin(current, is_reclaim=is_reclaim) if applied else current

    async def _refuse(self, row: StepRecord, now: datetime) -> Settled | StepRecord:
        error = StepNotReplaySafeError(row.step_id, row.external_key, row.lease_expires_at)
        described = describe_exception(
            error, code=NOT_REPLAY_SAFE, stage_id=self._invocation.activity.stage.id
        )
        patch = StepPatch(updated_at=now, status="failed", error=described, retry_at=None)
        applied, current = await self._ledger.change(row, patch, attempt=row.attempt, what="the refusal")
        if not applied:
            return current
        self._invocation.parking.note_recorded()
        return Failure(error)

    def _begin(self, row: StepRecord, *, is_reclaim: bool) -> StepExecution:
        execution = StepExecution(
            row,
            self._lease,
            is_reclaim=is_reclaim,
            ledger=self._ledger,
            clock=self._resources.clock,
            abort=LinkedAbort(self._invocation.activity.abort),
            on_lost=self._lose,
        )
        self._invocation.executions.add(execution)
        return execution

    def _lose(self) -> None:
        self._invocation.reports.log(
            "warn",
            f"step {self._call.step_id!r} lost its lease while it was executed; a suspension waits for it no longer",
            {},
        )
        self._invocation.parking.note_lost(self._call)
        self._invocation.cut_lost()

    async def _execute(self, execution: StepExecution) -> Result:
        token = CURRENT_CALL.set(self._call)
        self._is_in_function = True
        try:
            return await called(
                lambda portal: self.call_function(execution, portal),
                threads=self._invocation.threads if self._function.is_blocking else None,
                name=f"stagewright-step-{self._call.step_id}",
                is_cancelled=lambda: self._is_cancelled,
            )
        finally:
            self._is_in_function = False
            CURRENT_CALL.reset(token)

    def call_function(self, execution: StepExecution, portal: LoopPortal | None) -> object:
        """Call the step's function, with what it takes."""
        call: Any = self._function.call  # Any: it takes a StepRun or nothing
        return call(RunningStep(execution, portal)) if self._function.takes_run else call()

    async def _record_value(self, execution: StepExecution, value: object) -> Settled:
        row = execution.row
        try:
            kept, back = self._function.keep(value)
        except StepResultNotSerializableError as error:
            return await self._record_failure(row, error, code=NOT_SERIALIZABLE)
        stored = await store_result(self._resources, row, kept)
        patch = StepPatch(
            updated_at=self._resources.clock.now(),
            status="completed",
            lease_expires_at=None,
            result=stored.result,
            result_claim=stored.claim,
            error=None,
        )
        # Whoever has the step by now: what was done was done, and the first result is the one.
        change = self._ledger.change(row, patch, attempt=None, what="the result")
        applied, current = await record_result(self._resources, stored, change)
        self._invocation.parking.note_recorded()
        if applied:
            return Answer(back)
        return await self._recorded_before(row, current)

    async def _record_failure(self, row: StepRecord, error: BaseException, *, code: str = FAILED) -> Settled:
        now = self._resources.clock.now()
        retry_at: datetime | None = None
        may_retry = isinstance(error, Exception) and not isinstance(error, NonRetryableError)
        if may_retry and row.attempt <= self._options.retries:
            pause = self._options.pause_after(row.attempt, self._resources.random.uniform)
            retry_at = add_duration(now, pause, field="retry_delay")
        described = describe_exception(error, code=code, stage_id=self._invocation.activity.stage.id)
        patch = StepPatch(
            updated_at=now, status="failed", lease_expires_at=None, retry_at=retry_at, error=described
        )
        applied, current = await self._ledger.change(row, patch, attempt=row.attempt, what="the failure")
        if not applied and current.status == "running":
            # Another execution has the step; that this one failed says nothing about it.
            lost = StepLeaseLostError(row.step_id)
            lost.__cause__ = error
            return Failure(lost)
        if not applied:
            return await self._recorded_before(row, current)
        if retry_at is not None:
            return Wait(retry_at)
        self._invocation.parking.note_recorded()
        return Failure(error)

    async def _recorded_before(self, row: StepRecord, current: StepRecord) -> Settled:
        self._invocation.record_conflict(current, attempt=row.attempt)
        if current.status == "completed":
            return Answer(self._function.load(await load_result(self._resources, current)))
        return Failure(stored_failure(current))
