"""`ctx.step`, for `async def` bodies and for plain ones."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

from stagewright.definitions import Backoff, OnReclaim
from stagewright.duration import Duration, add_duration, parse_duration
from stagewright.errors import StageAbortedError
from stagewright.records import StepRecord
from stagewright.runtime.blocking_portal import LoopPortal
from stagewright.runtime.steps.calling import Result, called_here
from stagewright.runtime.steps.endings import Answer, Failure, Settled, Wait
from stagewright.runtime.steps.execution import StepExecution
from stagewright.runtime.steps.function import StepFunction, payload_schema, require_predicate
from stagewright.runtime.steps.invocation import StepInvocation
from stagewright.runtime.steps.options import (
    StepOptions,
    WaitOptions,
    check_step_id,
    read_options,
    read_signal_options,
    read_wait_options,
)
from stagewright.runtime.steps.parking import CURRENT_CALL, StepCall
from stagewright.runtime.steps.run import RunStep
from stagewright.runtime.steps.signals import receive_signal
from stagewright.runtime.steps.sleep import wake_time
from stagewright.runtime.steps.waits import WaitStep

__all__ = ["BlockingSteps", "Steps"]

_CLOSED: Final = "lease-lost"
DEFAULT_KEEPALIVE: Final = "5m"


class Steps:
    """A `StageSteps`."""

    def __init__(self, invocation: StepInvocation) -> None:
        self._invocation = invocation

    async def run(
        self,
        id: str,
        fn: Any,  # Any: a function of any result
        *,
        returns: object = None,
        retries: int = 0,
        retry_delay: Duration = 0,
        backoff: float | Backoff | None = None,
        lease: Duration | None = None,
        heartbeat: Duration | None = None,
        on_reclaim: OnReclaim = "rerun",
    ) -> Any:
        """Call a function and keep its result."""
        check_step_id(id)
        options = read_options(
            id,
            retries=retries,
            retry_delay=retry_delay,
            backoff=backoff,
            lease=lease,
            heartbeat=heartbeat,
            on_reclaim=on_reclaim,
        )
        return await self.run_read(StepFunction.read(id, fn, returns), options)

    async def run_read(self, function: StepFunction, options: StepOptions) -> object:
        """Run a step whose arguments have been read."""
        invocation = self._invocation
        call = await invocation.begin(function.step_id, "run")
        try:
            answer = self.known_answer(call, function)
            if answer is not None:
                await invocation.give_way()
                return answer.value
            work = RunStep(invocation, call, function, options)
            return await self._come_of(call, await invocation.attend(work))
        finally:
            invocation.parking.leave(call)

    def known_answer(self, call: StepCall, function: StepFunction) -> Answer | None:
        """What a step has given, if that is known without asking the ledger."""
        row = self._invocation.completed_row(call)
        return None if row is None else Answer(function.load(row.result))

    async def wait_for(
        self,
        id: str,
        *,
        poll: Any,  # Any: a function of any answer
        ready: Any,  # Any: a function of such an answer
        every: Duration,
        timeout: Duration,
        poll_backoff: Duration | None = None,
        returns: object = None,
    ) -> Any:
        """Ask until the answer will do."""
        function, options = _read_wait(id, poll, ready, every, timeout, poll_backoff, returns)
        return await self.wait_read(function, ready, options)

    async def wait_read(
        self, function: StepFunction, ready: Callable[[object], object], options: WaitOptions
    ) -> object:
        """Wait by a step whose arguments have been read."""
        invocation = self._invocation
        lengths = {"timeout": options.timeout, "every": options.every, "poll_backoff": options.backoff}
        self._require_calendar(lengths)
        async with invocation.call(function.step_id, "wait") as call:
            work = WaitStep(invocation, call, function, ready, options)
            return await self._come_of(call, await invocation.attend(work))

    async def wait_for_signal(
        self, id: str, *, timeout: Duration, returns: object = None, keepalive: Duration = DEFAULT_KEEPALIVE
    ) -> Any:
        """Return what a signal to this step brings."""
        check_step_id(id)
        options = read_signal_options(id, timeout=timeout, keepalive=keepalive)
        schema = payload_schema(id, returns)
        self._require_calendar({"timeout": options.timeout, "keepalive": options.keepalive})
        async with self._invocation.call(id, "signal") as call:
            return await self._come_of(call, await receive_signal(self._invocation, call, schema, options))

    async def sleep(self, id: str, duration: Duration) -> None:
        """Return once this long has passed since it was first asked for."""
        check_step_id(id)
        length = parse_duration(duration, field="duration")
        self._require_calendar({"duration": length})
        async with self._invocation.call(id, "sleep") as call:
            until = await wake_time(self._invocation, call, length)
            if until is not None:
                await self._invocation.parking.park(call, until)

    def _require_calendar(self, lengths: Mapping[str, timedelta | None]) -> None:
        """Refuse what would end beyond the calendar, before anything is done."""
        now = self._invocation.resources.clock.now()
        for field, length in lengths.items():
            add_duration(now, length or timedelta(0), field=field)

    async def _come_of(self, call: StepCall, settled: Settled) -> object:
        match settled:
            case Answer(value):
                return value
            case Failure(error):
                raise error
            case Wait(until):
                return await self._invocation.parking.park(call, until)


class BlockingSteps:
    """A `BlockingStageSteps`: the same steps from another thread, in which plain functions are called."""

    def __init__(self, invocation: StepInvocation, portal: LoopPortal) -> None:
        self._invocation = invocation
        self._portal = portal
        self._steps = Steps(invocation)

    def run(
        self,
        id: str,
        fn: Any,  # Any: a function of any result
        *,
        returns: object = None,
        retries: int = 0,
        retry_delay: Duration = 0,
        backoff: float | Backoff | None = None,
        lease: Duration | None = None,
        heartbeat: Duration | None = None,
        on_reclaim: OnReclaim = "rerun",
    ) -> Any:
        """Call a function and keep its result."""
        check_step_id(id)
        options = read_options(
            id,
            retries=retries,
            retry_delay=retry_delay,
            backoff=backoff,
            lease=lease,
            heartbeat=heartbeat,
            on_reclaim=on_reclaim,
        )
        function = StepFunction.read(id, fn, returns)
        if not function.is_blocking:
            return self._portal.call(self._steps.run_read(function, options))
        begun = self._portal.call(self._answer_or_begin(function))
        if isinstance(begun, Answer):
            return begun.value
        return self._come_of(begun, lambda: self._run_here(begun, function, options))

    def wait_for(
        self,
        id: str,
        *,
        poll: Any,  # Any: a function of any answer
        ready: Any,  # Any: a function of such an answer
        every: Duration,
        timeout: Duration,
        poll_backoff: Duration | None = None,
        returns: object = None,
    ) -> Any:
        """Ask until the answer will do."""
        function, options = _read_wait(id, poll, ready, every, timeout, poll_backoff, returns)
        if not function.is_blocking:
            return self._portal.call(self._steps.wait_read(function, ready, options))
        call = self._portal.call(self._invocation.begin(id, "wait"))
        return self._come_of(call, lambda: self._wait_here(call, function, ready, options))

    def wait_for_signal(
        self, id: str, *, timeout: Duration, returns: object = None, keepalive: Duration = DEFAULT_KEEPALIVE
    ) -> Any:
        """Return what a signal to this step brings."""
        return self._portal.call(
            self._steps.wait_for_signal(id, timeout=timeout, returns=returns, keepalive=keepalive)
        )

    def sleep(self, id: str, duration: Duration) -> None:
        """Return once this long has passed since it was first asked for."""
        self._portal.call(self._steps.sleep(id, duration))

    async def _answer_or_begin(self, function: StepFunction) -> StepCall | Answer:
        """A call in progress, unless the step is known to be completed: then one change of threads is all it costs."""
        call = await self._invocation.begin(function.step_id, "run")
        try:
            answer = self._steps.known_answer(call, function)
        except BaseException:
            self._invocation.parking.leave(call)
            raise
        if answer is None:
            return call
        self._invocation.parking.leave(call)
        return answer

    def _come_of(self, call: StepCall, work: Callable[[], Settled]) -> object:
        try:
            match work():
                case Answer(value):
                    return value
                case Failure(error):
                    raise error
                case Wait(until):
                    return self._portal.call(self._invocation.parking.park(call, until))
        finally:
            self._portal.call(self._leave(call))

    def _run_here(self, call: StepCall, function: StepFunction, options: StepOptions) -> Settled:
        """Open and record on the loop, and call the function in this thread in between."""
        step = RunStep(self._invocation, call, function, options)
        opened = self._portal.call(self._open(step))
        if not isinstance(opened, StepExecution):
            return opened
        result = self._call_here(call, lambda portal: step.call_function(opened, portal))
        return self._portal.call(self._record(step, opened, result))

    def _wait_here(
        self,
        call: StepCall,
        function: StepFunction,
        ready: Callable[[object], object],
        options: WaitOptions,
    ) -> Settled:
        wait = WaitStep(self._invocation, call, function, ready, options)
        opened = self._portal.call(self._open_wait(wait))
        if not isinstance(opened, StepRecord):
            return opened
        result = self._call_here(call, wait.call_function)
        return self._portal.call(self._record_wait(wait, opened, result))

    def _call_here(self, call: StepCall, function: Callable[[LoopPortal | None], object]) -> Result:
        token = CURRENT_CALL.set(call)
        try:
            return called_here(function, self._portal)
        finally:
            CURRENT_CALL.reset(token)

    async def _open(self, step: RunStep) -> StepExecution | Settled:
        opened = await step.open()
        if isinstance(opened, StepExecution) and self._invocation.is_closed:
            self._invocation.end(opened)
            await opened.give_up()
            raise StageAbortedError(_CLOSED)
        return opened

    async def _record(self, step: RunStep, execution: StepExecution, result: Result) -> Settled:
        if self._invocation.is_closed:
            # Nobody has waited for this thread; whoever has the stage now has the step too.
            self._invocation.end(execution)
            raise StageAbortedError(_CLOSED)
        return await step.record(execution, result)

    async def _open_wait(self, wait: WaitStep) -> StepRecord | Settled:
        return await wait.open()

    async def _record_wait(self, wait: WaitStep, row: StepRecord, result: Result) -> Settled:
        if self._invocation.is_closed:
            raise StageAbortedError(_CLOSED)
        return await wait.record(row, result)

    async def _leave(self, call: StepCall) -> None:
        self._invocation.parking.leave(call)


def _read_wait(
    id: str,
    poll: object,
    ready: object,
    every: Duration,
    timeout: Duration,
    poll_backoff: Duration | None,
    returns: object,
) -> tuple[StepFunction, WaitOptions]:
    check_step_id(id)
    options = read_wait_options(id, every=every, timeout=timeout, poll_backoff=poll_backoff)
    function = StepFunction.read(id, poll, returns, role="poll")
    require_predicate(id, ready)
    return function, options
