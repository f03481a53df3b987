"""Inputs, configs and outputs that fit no schema, and exceptions that are hard to write down."""

import asyncio
import io
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from pydantic import BaseModel, Field, field_validator

from stagewright import (
    BlockingStageContext,
    Kernel,
    StageContext,
    StageResult,
    Status,
    Suspend,
    Workflow,
    define_workflow,
)
from stagewright.commands import ExecuteJobResult
from stagewright.memory import InMemoryPersistence
from stagewright.records import DequeuedJob, RunRecord
from stagewright.runtime.steps.control_flow import StepSuspended
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
StartRun = Callable[..., Awaitable[str]]
TakeJob = Callable[[Kernel], Awaitable[DequeuedJob]]
Execute = Callable[..., Coroutine[Any, Any, ExecuteJobResult]]
Run = Callable[..., Awaitable[ExecuteJobResult]]
Finish = Callable[[Kernel, str], Awaitable[RunRecord]]


class Strict(BaseModel):
    amount: int = Field(ge=0)


class Config(BaseModel):
    digits: int = 2


async def echo(ctx: StageContext[Any]) -> Any:
    return ctx.input


@pytest.fixture
def run_body(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, take_job: TakeJob, execute: Execute
) -> Run:
    """`await run_body(body, input=None, **options)`: what the execution of a stage with that body answers."""

    async def run(body: Callable[..., Any], input: object = None, **options: Any) -> ExecuteJobResult:
        kernel = make_kernel(flow_of(body, **options))
        await start_run(kernel, input)
        return await execute(kernel, await take_job(kernel))

    return run


def assert_terminal(result: ExecuteJobResult, code: str, *texts: str) -> None:
    assert (result.outcome, result.will_retry, result.retryable, result.ghost) == (
        "failed",
        False,
        False,
        False,
    )
    assert result.error is not None
    assert (result.error.code, result.error.stage_id) == (code, "s1")
    assert all(text in result.error.message for text in texts), result.error.message


@pytest.mark.guarantee("kernel.misfits-fail-at-once")
async def test_an_output_that_the_next_stage_can_not_take_fails_it_at_once(
    make_kernel: MakeKernel, start_run: StartRun, finish: Finish
) -> None:
    async def never(ctx: StageContext[Any]) -> Any:
        pytest.fail("the body ran")

    workflow = (
        define_workflow("flow", input=Any)
        .stage("s1", echo, input=Any, output=Any)
        .stage("s2", never, input=Strict, output=Any)
        .build()
    )
    kernel = make_kernel(workflow)
    run = await finish(kernel, await start_run(kernel, {"amount": -1}))
    assert run.status is Status.FAILED
    assert run.error is not None
    assert (run.error.code, run.error.type, run.error.stage_id) == (
        "INVALID_INPUT",
        "InvalidInputError",
        "s2",
    )
    assert "$.amount" in run.error.message
    assert [stage.attempt for stage in await kernel.runs.stages(run.id)] == [1, 1]


async def test_a_stored_config_that_fits_no_more_fails_the_stage_at_once(
    make_kernel: MakeKernel,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    persistence: InMemoryPersistence,
) -> None:
    def versioned(config: type[BaseModel]) -> Workflow:
        builder = define_workflow("flow", input=Any).stage("s1", echo, input=Any, output=Any, config=config)
        return builder.version("1").build()

    class Stricter(BaseModel):
        digits: int = 3

        # What a validator refuses is no part of the structure, so that the version stays the same.
        @field_validator("digits")
        @classmethod
        def at_least_three(cls, digits: int) -> int:
            if digits < 3:
                raise ValueError("too few")
            return digits

    run_id = await start_run(make_kernel(versioned(Config)))
    kernel = make_kernel(versioned(Stricter))
    assert_terminal(await execute(kernel, await take_job(kernel)), "INVALID_CONFIG", "$.digits")
    run = await kernel.runs.get(run_id)
    assert run is not None
    assert run.status is Status.FAILED


@pytest.mark.guarantee("kernel.unstorable-output-fails-at-once")
@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda: {"a": [1, io.StringIO()]}, "$.a[1]"),
        (lambda: {"a": [1, lambda: 1]}, "$.a[1]"),
        (lambda: {"a": [1, (n for n in range(1))]}, "$.a[1]"),
        (lambda: {"a": float("nan")}, "$.a"),
        (lambda: {"a": "nul\x00"}, "$.a"),
        (lambda: {"a": "\ud800"}, "$.a"),
        (lambda: {1: "a"}, "$[1]"),
        (lambda: (1, 2), "$"),
        (object, "$"),
        (lambda: asyncio.sleep, "$"),
    ],
)
async def test_an_output_that_can_not_be_stored_fails_the_run_at_once(
    run_body: Run, make: Callable[[], object], path: str
) -> None:
    async def body(ctx: StageContext[Any]) -> Any:
        return make()

    assert_terminal(await run_body(body), "INVALID_OUTPUT", f"{path}: ")


async def test_an_output_inside_itself_fails_the_run_at_once(run_body: Run) -> None:
    async def body(ctx: StageContext[Any]) -> Any:
        value: list[object] = []
        value.append({"again": value})
        return value

    assert_terminal(await run_body(body), "INVALID_OUTPUT", "$[0].again")


@pytest.mark.parametrize(
    ("output", "value"), [(int, "x"), (Strict, {"amount": -1}), (list[int], [1, "x"]), (None, 1)]
)
async def test_an_output_of_another_type_fails_the_run_at_once(
    run_body: Run, output: object, value: object
) -> None:
    async def body(ctx: StageContext[Any]) -> Any:
        return value

    assert_terminal(await run_body(body, output=output), "INVALID_OUTPUT", "s1")


def odd_result(**fields: Any) -> Any:
    return StageResult(output=1, **fields)


class Spiteful:
    @property
    def __dict__(self) -> Any:  # type: ignore[override]  # on purpose
        raise RuntimeError("keep out")

    def __repr__(self) -> str:
        raise RuntimeError("keep out")


@pytest.mark.parametrize(
    "returned",
    [
        lambda: odd_result(metrics={"n": float("inf")}),
        lambda: odd_result(metrics={"n": object()}),
        lambda: odd_result(metrics=5),
        lambda: odd_result(metrics=None),
        lambda: odd_result(artifacts={"a": object()}),
        lambda: odd_result(artifacts={"a": float("nan")}),
        lambda: odd_result(artifacts={1: "a"}),
        lambda: odd_result(artifacts=["a"]),
        lambda: StageResult(output=lambda: 1),
        lambda: StageResult(output=odd_result()),
        lambda: Suspend({"x": 1}),
        Spiteful,
        lambda: [Spiteful()],
    ],
)
async def test_an_odd_result_fails_the_run_at_once(run_body: Run, returned: Callable[[], object]) -> None:
    async def body(ctx: StageContext[Any]) -> Any:
        return returned()

    assert_terminal(await run_body(body), "INVALID_OUTPUT")


# Exceptions


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


def group() -> BaseException:
    return BaseExceptionGroup("several", [ValueError("one"), GeneratorExit("two")])


@pytest.mark.guarantee("kernel.any-exception-is-recorded")
@pytest.mark.parametrize(
    ("make", "type_name", "text"),
    [
        (UnprintableError, "UnprintableError", "can't be shown"),
        (lambda: ValueError("nul\x00 and \ud800"), "ValueError", "nul\\x00 and \\ud800"),
        (lambda: ValueError("x" * 1_000_000), "ValueError", "(cut)"),
        (ValueError, "ValueError", ""),
        (
            lambda: ExceptionGroup("several", [ValueError("one"), UnprintableError()]),
            "ExceptionGroup",
            "several",
        ),
        (group, "BaseExceptionGroup", "several"),
        (lambda: GeneratorExit("odd"), "GeneratorExit", "odd"),
        (lambda: asyncio.CancelledError("of its own"), "CancelledError", "of its own"),
        (lambda: RecursionError("deep"), "RecursionError", "deep"),
    ],
)
async def test_whatever_a_body_raises_is_recorded(
    run_body: Run, make: Callable[[], BaseException], type_name: str, text: str
) -> None:
    async def body(ctx: StageContext[Any]) -> Any:
        raise make()

    result = await run_body(body)
    assert result.outcome == "failed"
    assert result.error is not None
    assert result.error.type == type_name
    assert text in result.error.message
    assert len(result.error.message.encode()) <= 8 * 1024
    assert len((result.error.traceback or "").encode()) <= 16 * 1024


async def test_causes_and_notes_are_recorded_with_the_error(run_body: Run) -> None:
    async def body(ctx: StageContext[Any]) -> Any:
        try:
            raise KeyError("the cause")
        except KeyError as cause:
            error = ValueError("the error")
            error.add_note("the note")
            raise error from cause

    result = await run_body(body)
    assert result.error is not None
    assert result.error.message == "the error\nthe note"
    assert "the cause" in (result.error.traceback or "")


async def test_an_error_behind_an_output_that_can_not_be_stored_stays_visible(run_body: Run) -> None:
    class Grumpy(BaseModel):
        value: int = 1

        def __getattribute__(self, name: str) -> Any:
            if name == "value":
                raise OSError("the disk said no")
            return super().__getattribute__(name)

    async def body(ctx: StageContext[Any]) -> Any:
        return {"a": Grumpy()}

    assert_terminal(await run_body(body), "INVALID_OUTPUT", "$.a")


async def test_an_interrupt_of_the_process_is_nobodys_failure(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, take_job: TakeJob, execute: Execute
) -> None:
    async def body(ctx: StageContext[Any]) -> Any:
        raise KeyboardInterrupt

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    with pytest.raises(KeyboardInterrupt):
        await execute(kernel, await take_job(kernel))
    (stage,) = await kernel.runs.stages(run_id)
    assert (stage.status, stage.error) == (Status.RUNNING, None)


@pytest.mark.parametrize(
    ("kind", "blocking"),
    [(SystemExit, False), (SystemExit, True), (KeyboardInterrupt, True), (GeneratorExit, True)],
)
async def test_a_body_that_would_end_the_process_fails_its_stage(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    kind: type[BaseException],
    blocking: bool,
) -> None:
    async def body(ctx: StageContext[Any]) -> Any:
        raise kind("bye")

    def blocking_body(ctx: BlockingStageContext[Any]) -> Any:
        raise kind("bye")

    kernel = make_kernel(flow_of(blocking_body if blocking else body))
    run_id = await start_run(kernel)
    result = await execute(kernel, await take_job(kernel))
    (stage,) = await kernel.runs.stages(run_id)
    assert (result.outcome, result.will_retry, stage.status) == ("failed", False, Status.FAILED)
    assert stage.error is not None
    assert (stage.error.type, stage.error.message) == (kind.__name__, "bye")


async def test_a_cancelled_worker_records_nothing(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, take_job: TakeJob, execute: Execute
) -> None:
    inside = asyncio.Event()

    async def body(ctx: StageContext[Any]) -> Any:
        inside.set()
        await asyncio.Event().wait()

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    executing = asyncio.create_task(execute(kernel, await take_job(kernel)))
    await inside.wait()
    executing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await executing
    (stage,) = await kernel.runs.stages(run_id)
    assert (stage.status, stage.error) == (Status.RUNNING, None)


async def test_a_suspension_without_a_step_does_not_end_the_worker(run_body: Run, clock: FakeClock) -> None:
    async def body(ctx: StageContext[Any]) -> Any:
        raise StepSuspended("made-up", clock.now())

    assert (await run_body(body)).outcome == "failed"
