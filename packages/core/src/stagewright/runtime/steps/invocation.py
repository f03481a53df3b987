"""What the steps of one invocation of a body share."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Final, Protocol, Self, TypeVar

from stagewright.annotations import AnnotationInput
from stagewright.errors import (
    DuplicateStepKeyError,
    StepKindMismatchError,
    StepLedgerNotConfiguredError,
)
from stagewright.json_values import Json
from stagewright.ports import ActivityRun
from stagewright.records import StepKind, StepRecord, StepStatus
from stagewright.runtime.body_threads import BodyThreads
from stagewright.runtime.reports import StageReports
from stagewright.runtime.steps.control_flow import StepSuspended, is_step_control_flow
from stagewright.runtime.steps.execution import StepExecution
from stagewright.runtime.steps.leases import Asker
from stagewright.runtime.steps.ledger_calls import LedgerCalls
from stagewright.runtime.steps.parking import CURRENT_CALL, Parking, StepCall, Suspension

__all__ = ["Cancellable", "StepInvocation"]

R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")
_PAUSE_FOR_THREADS: Final = 0.01
_ANSWERS_IN_A_ROW: Final = 25
"""How many steps answer from what is known before others on the loop have their turn."""


class Cancellable(Protocol[R_co]):
    """Work for a step that knows by itself where it may be cut off."""

    @property
    def is_lost(self) -> bool:
        """Whether it is no longer worth waiting for."""
        ...

    def work(self) -> Awaitable[R_co]:
        """Do it."""
        ...

    def cancel(self, task: "asyncio.Task[object]") -> None:
        """Cut it off where it may be, in the task that does it."""
        ...


class StepInvocation:
    """The steps of one invocation; as a context manager around the body it lets them settle at its end.

    All of it happens on the event loop; calls from a body's thread come through a portal.

    Args:
        activity: The invocation.
        reports: Where what is to be said goes.
        threads: For plain step functions.
        is_stopping: Whether the body is being ended from outside, so that nothing is shielded any more.
    """

    def __init__(
        self,
        activity: ActivityRun,
        reports: StageReports,
        threads: BodyThreads,
        *,
        is_stopping: Callable[[], bool] | None = None,
    ) -> None:
        self.activity = activity
        self.resources = activity.resources
        self.asker = Asker(activity.owner, activity.attempt)
        self.reports = reports
        self.threads = threads
        self.fatal: DuplicateStepKeyError | None = None
        self.is_closed = False
        self.executions: set[StepExecution] = set()
        self._is_stopping = is_stopping or (lambda: activity.abort.is_set)
        pause = _PAUSE_FOR_THREADS if activity.stage.is_blocking else 0.0
        self.parking = Parking(activity.resources.clock.now, self.cut_lost, pause=pause)
        self._asked: dict[str, StepCall] = {}
        self._loading = asyncio.Lock()
        self._rows: dict[str, StepRecord] | None = None
        self._unwatched: dict[int, tuple[StepCall, StepRecord | None]] = {}
        self._watched = 0
        self._answers = 0
        self._furthest: StepRecord | None = None
        self._has_warned_of_order = False
        self._working: dict[asyncio.Task[object], Cancellable[object]] = {}

    @property
    def suspension(self) -> Suspension | None:
        """Why and until when the invocation is suspended, if it is."""
        return self.parking.suspension

    def ledger(self, step_id: str) -> LedgerCalls:
        """The kernel's ledger.

        Raises:
            StepLedgerNotConfiguredError: If it has none.
        """
        # Asked anew each time: a harness puts its own in this one's place.
        if self.resources.step_ledger is None:
            raise StepLedgerNotConfiguredError(step_id)
        return LedgerCalls(self.resources.step_ledger, self.activity.stage_record_id)

    @asynccontextmanager
    async def call(self, step_id: str, kind: StepKind) -> AsyncIterator[StepCall]:
        """A call in progress, from its request to its end; see `begin`."""
        call = await self.begin(step_id, kind)
        try:
            yield call
        finally:
            self.parking.leave(call)

    async def begin(self, step_id: str, kind: StepKind) -> StepCall:
        """Take a request; whoever makes it ends it by `parking.leave`.

        Raises:
            StepSuspended: If the invocation is suspended already.
            DuplicateStepKeyError: If the id was asked for before.
            StepLedgerNotConfiguredError: If there is no ledger.
            RuntimeError: If the body has ended.
        """
        parent = CURRENT_CALL.get()
        if self.suspension is not None:
            # A body that swallows its suspension in a loop must not hold the event loop.
            await asyncio.sleep(0)
            call = StepCall(step_id, kind, 0, parent)
            call.cut_parents()
            raise StepSuspended(step_id, self.suspension.next_poll_at)
        if self.is_closed:
            raise RuntimeError(
                f"step {step_id!r} is asked for when the body has ended; await every task before it returns"
            )
        self.ledger(step_id)
        call = StepCall(step_id, kind, len(self._asked) + 1, parent)
        first = self._asked.setdefault(step_id, call)
        if first is not call:
            position = len(self._asked) + 1
            error = DuplicateStepKeyError(step_id, first.kind, first.position, kind, position)
            self.fatal = self.fatal or error
            raise error
        self.parking.enter(call)
        return call

    async def row_of(self, call: StepCall) -> StepRecord | None:
        """The step as the ledger has it; one that is completed as it had it when it was first looked at.

        Raises:
            StepKindMismatchError: If it is there as something else.
        """
        if self._rows is None:
            async with self._loading:
                if self._rows is None:
                    self._rows = await self.ledger(call.step_id).all()
        row = self._rows.get(call.step_id)
        if row is not None and row.status != "completed":
            row = await self.ledger(call.step_id).get(call.step_id)
        self._watch_order(call, row)
        if row is not None:
            self.check(call, row)
        return row

    def completed_row(self, call: StepCall) -> StepRecord | None:
        """The step, if it was completed when the steps of the stage were read, and its result lies in its row.

        Raises:
            StepKindMismatchError: If it is there as something else.
        """
        row = None if self._rows is None else self._rows.get(call.step_id)
        if row is None or row.status != "completed" or row.result_claim is not None:
            return None
        self._watch_order(call, row)
        self.check(call, row)
        return row

    async def give_way(self) -> None:
        """Let others on the loop go on, after so many answers that nothing was waited for."""
        self._answers += 1
        if self._answers % _ANSWERS_IN_A_ROW == 0:
            await asyncio.sleep(0)

    def _watch_order(self, call: StepCall, row: StepRecord | None) -> None:
        """Compare rows by the order of their requests, whatever order they are looked up in."""
        self._unwatched[call.position] = (call, row)
        while (following := self._unwatched.pop(self._watched + 1, None)) is not None:
            self._watched += 1
            if following[1] is not None:
                self._compare_order(following[0], following[1])

    def _compare_order(self, call: StepCall, row: StepRecord) -> None:
        """Say once for a stage that known steps are asked for in another order than the first time."""
        furthest = self._furthest
        if furthest is None or furthest.seq <= row.seq:
            self._furthest = row
            return
        if self._has_warned_of_order:
            return
        self._has_warned_of_order = True
        self.reports.log(
            "warn",
            f"step {call.step_id!r} is asked for after step {furthest.step_id!r}, as request {call.position} of this "
            f"invocation; at first it came before, as request {row.seq} and not {furthest.seq}. Results are found by "
            "id, so this is only worth a look",
            {},
            # A line of this id is kept once, in whatever invocation it is said again.
            id=f"order-{self.activity.stage_record_id}",
        )

    async def row_or_new(self, call: StepCall, new_row: Callable[[], StepRecord]) -> StepRecord:
        """The step as the ledger has it, which is given `new_row` when it has none.

        Raises:
            StepKindMismatchError: If it is there as something else.
        """
        row = await self.row_of(call)
        if row is None:
            created, row = await self.ledger(call.step_id).claim(new_row())
            if not created:
                self.check(call, row)
        return row

    def first_row(self, call: StepCall, status: StepStatus) -> StepRecord:
        """The row that a step gets when it is asked for the first time, without what belongs to its kind."""
        now = self.resources.clock.now()
        return StepRecord(
            id=self.resources.ids.new_id(),
            stage_record_id=self.activity.stage_record_id,
            step_id=call.step_id,
            seq=call.position,
            kind=call.kind,
            status=status,
            created_at=now,
            updated_at=now,
            stage_attempt=self.activity.attempt,
        )

    def check(self, call: StepCall, row: StepRecord) -> None:
        """Make sure that a row is what the call takes it for.

        Raises:
            StepKindMismatchError: If it isn't.
        """
        if row.kind != call.kind:
            raise StepKindMismatchError(call.step_id, call.kind, row.kind)

    async def attend(self, work: Cancellable[R]) -> R:
        """Have something done that is not cut off in the middle of a ledger call when the caller is cancelled.

        While the invocation is being suspended it is not cut off at all, unless the body is ended from outside, the
        work is lost, or the caller is cancelled again. In either case the caller goes on only when it is done.
        """
        task: asyncio.Task[R] = asyncio.ensure_future(_awaited(work))
        self._working[task] = work
        task.add_done_callback(self._forget)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            if self._is_stopping() or not self.parking.is_suspending or work.is_lost:
                work.cancel(task)
            while not task.done():
                try:
                    await asyncio.wait({task})
                except asyncio.CancelledError:
                    work.cancel(task)
            if not task.cancelled():
                task.exception()  # whatever it is, the cancellation is what the caller hears of
            raise
        return task.result()

    def cut_lost(self) -> None:
        """Cut off what is no longer worth waiting for, once the invocation is suspended or has ended."""
        if self.is_closed or self.suspension is not None:
            for task, work in self._working.items():
                if work.is_lost:
                    work.cancel(task)

    def end(self, execution: StepExecution) -> None:
        """An execution of a function is over."""
        self.executions.discard(execution)
        execution.is_over()

    def record_conflict(self, row: StepRecord, *, attempt: int) -> None:
        """Say that a step had an outcome before this execution's, which is dropped."""
        self.reports.log(
            "warn",
            f"execution {attempt} of step {row.step_id!r} came to an outcome when one was recorded already; "
            f"that, {row.status}, stands",
            {},
        )
        payload: dict[str, Json] = {
            "step_id": row.step_id,
            "kind": row.kind,
            "recorded_status": row.status,
            "recorded_attempt": row.attempt,
            "external_key": row.external_key,
        }
        self.reports.add_annotation(
            AnnotationInput(
                attributes={"step.outcome-conflict": row.status},
                payload=payload,
                idempotency_key=f"{row.stage_record_id}:{row.step_id}:{attempt}",
            )
        )

    def warn_of_dropped(self, error: BaseException) -> None:
        """Say what a body raised beside or after its suspension."""
        if not _is_control_flow_alone(error):
            self.reports.log(
                "warn",
                f"the stage is suspended, and what its body raised besides is dropped: {type(error).__name__}: {error}",
                {},
            )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.is_closed = True
        self.parking.close()
        try:
            await self._settle(error)
        finally:
            # What goes on in a thread that was left to itself has no lease any more.
            for execution in list(self.executions):
                self.end(execution)

    async def _settle(self, error: BaseException | None) -> None:
        if isinstance(error, GeneratorExit | KeyboardInterrupt):
            return
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            self._cancel_all()
        self.cut_lost()
        while self._working:
            try:
                await asyncio.wait(self._working)
            except asyncio.CancelledError:
                self._cancel_all()
                await asyncio.wait(self._working)
                raise

    def _cancel_all(self) -> None:
        for task, work in self._working.items():
            work.cancel(task)

    def _forget(self, task: "asyncio.Task[object]") -> None:
        self._working.pop(task, None)
        if not task.cancelled():
            task.exception()


async def _awaited(work: Cancellable[R]) -> R:
    return await work.work()


def _is_control_flow_alone(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_is_control_flow_alone(member) for member in error.exceptions)
    return is_step_control_flow(error) or isinstance(error, asyncio.CancelledError)
