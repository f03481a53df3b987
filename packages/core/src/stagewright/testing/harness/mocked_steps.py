"""`ctx.step` of a body in a harness: the engine's own, with other functions in the place of mocked ones."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from stagewright.definitions import StepRun
from stagewright.duration import Duration
from stagewright.errors import NonRetryableError
from stagewright.runtime.blocking_portal import LoopPortal
from stagewright.runtime.steps.calls import DEFAULT_KEEPALIVE, BlockingSteps, Steps
from stagewright.runtime.steps.endings import Settled
from stagewright.runtime.steps.function import StepFunction, payload_schema
from stagewright.runtime.steps.invocation import StepInvocation
from stagewright.runtime.steps.options import StepOptions, WaitOptions, check_step_id
from stagewright.runtime.steps.parking import StepCall
from stagewright.testing.harness.step_mocks import BodyMocks, ErrorMock, ResultMock

__all__ = ["MockedBlockingSteps", "MockedSteps"]

Ready = Callable[[object], object]


class MockedSteps(Steps):
    """The steps of an `async def` body."""

    def __init__(self, invocation: StepInvocation, mocks: BodyMocks) -> None:
        super().__init__(invocation)
        self._mocks = mocks

    async def run_read(self, function: StepFunction, options: StepOptions) -> object:
        """Run a step, by its mock if it has one."""
        return await super().run_read(_run_function(self._mocks, function), options)

    async def wait_read(self, function: StepFunction, ready: Ready, options: WaitOptions) -> object:
        """Wait by a step, by its mock if it has one."""
        return await super().wait_read(*_poll_function(self._mocks, function, ready), options)

    async def wait_for_signal(
        self, id: str, *, timeout: Duration, returns: object = None, keepalive: Duration = DEFAULT_KEEPALIVE
    ) -> Any:
        """Wait for a signal; its mock, if it has one, has to be of the type that is asked for."""
        check_step_id(id)
        mock = self._mocks.of(id, "signal")
        if isinstance(mock, ResultMock):
            self._mocks.check_payload(id, payload_schema(id, returns), mock.value)
        return await super().wait_for_signal(id, timeout=timeout, returns=returns, keepalive=keepalive)


class MockedBlockingSteps(BlockingSteps):
    """The steps of a plain body."""

    def __init__(self, invocation: StepInvocation, portal: LoopPortal, mocks: BodyMocks) -> None:
        super().__init__(invocation, portal)
        self._steps = MockedSteps(invocation, mocks)
        self._mocks = mocks

    def _run_here(self, call: StepCall, function: StepFunction, options: StepOptions) -> Settled:
        return super()._run_here(call, _run_function(self._mocks, function), options)

    def _wait_here(
        self, call: StepCall, function: StepFunction, ready: Ready, options: WaitOptions
    ) -> Settled:
        return super()._wait_here(call, *_poll_function(self._mocks, function, ready), options)


def _run_function(mocks: BodyMocks, function: StepFunction) -> StepFunction:
    """What stands in for the function of `ctx.step.run`; its retries and its type stay."""
    match mocks.of(function.step_id, "run"):
        case ResultMock(value):
            result = mocks.as_result(function.step_id, function.schema, value)
            return replace(function, call=_answering(mocks, function, result), takes_run=False)
        case ErrorMock(error, executions):
            return replace(function, call=_failing(mocks, function, error, executions), takes_run=True)
        case _:
            return function


def _poll_function(mocks: BodyMocks, function: StepFunction, ready: Ready) -> tuple[StepFunction, Ready]:
    """The same for `ctx.step.wait_for`."""
    match mocks.of(function.step_id, "wait"):
        case ResultMock(value):
            result = mocks.as_result(function.step_id, function.schema, value)
            return replace(function, call=_answering(mocks, function, result)), _is_ready
        case ErrorMock(_, int()):
            problem = "a wait ends with its first error; leave out `attempt`, which counts executions of ctx.step.run"
            raise mocks.misused(function.step_id, problem)
        case ErrorMock(error) if isinstance(error, NonRetryableError):
            return replace(function, call=_failing(mocks, function, error, None)), ready
        case _:
            return function, ready


def _is_ready(_answer: object) -> bool:
    return True


def _answering(mocks: BodyMocks, function: StepFunction, result: object) -> Callable[[], object]:
    def answer() -> object:
        mocks.note_used(function.step_id)
        return result

    return answer


def _failing(
    mocks: BodyMocks, function: StepFunction, error: Exception, executions: int | None
) -> Callable[..., object]:
    call: Any = function.call  # Any: it takes a StepRun or nothing

    def fail(run: StepRun | None = None) -> object:
        if executions is not None and run is not None and run.attempt > executions:
            return call(run) if function.takes_run else call()
        mocks.note_used(function.step_id)
        # The same error may be raised many times, and would tell of all of them.
        raise error.with_traceback(None)

    return fail
