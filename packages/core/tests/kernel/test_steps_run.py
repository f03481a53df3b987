"""`ctx.step.run`: done once however often the body is invoked, tried again as told, and fenced."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from stagewright import (
    Kernel,
    NonRetryableError,
    RetryPolicy,
    StageContext,
    Status,
    StepRun,
    Workflow,
    derive_external_key,
)
from stagewright.commands import ExecuteJobResult
from stagewright.errors import (
    DefinitionError,
    DuplicateStepKeyError,
    StepFailedError,
    StepKindMismatchError,
)
from stagewright.memory import InMemoryStepLedger
from stagewright.records import DequeuedJob, RunRecord, StagePatch, StepOwner
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
StartRun = Callable[..., Awaitable[str]]
TakeJob = Callable[..., Awaitable[DequeuedJob]]
Execute = Callable[..., Coroutine[Any, Any, ExecuteJobResult]]
Resume = Callable[[Kernel, str], Awaitable[None]]
RunSteps = Callable[..., Coroutine[Any, Any, tuple[RunRecord, list[ExecuteJobResult]]]]


class _Counted:
    """Functions by name that count their calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.runs: list[StepRun] = []

    def of(self, name: str, value: Any = None, *, fails: int = 0) -> Callable[[StepRun], Awaitable[Any]]:
        left = [ValueError(f"{name} {number}") for number in range(fails)]

        async def fn(run: StepRun) -> Any:
            self.calls.append(name)
            self.runs.append(run)
            await asyncio.sleep(0)
            if left:
                raise left.pop(0)
            return value

        return fn


@pytest.fixture
def counted() -> _Counted:
    return _Counted()


@pytest.mark.guarantee("steps.recorded-results-are-not-computed-again")
async def test_a_completed_step_answers_without_running_again(run_steps: RunSteps, counted: _Counted) -> None:
    invocations = 0

    async def body(ctx: StageContext[Any]) -> Any:
        nonlocal invocations
        invocations += 1
        first = await ctx.step.run("first", counted.of("first", {"n": 1}))
        second = await ctx.step.run("second", counted.of("second", 2))
        if invocations < 3:
            raise ValueError("again")
        return [first, second]

    run, results = await run_steps(body)
    assert run.output == [{"n": 1}, 2]
    assert [result.outcome for result in results] == ["failed", "failed", "completed"]
    assert counted.calls == ["first", "second"]


async def test_a_step_is_there_before_its_function_runs(
    run_steps: RunSteps, ledger: InMemoryStepLedger, clock: FakeClock
) -> None:
    async def body(ctx: StageContext[Any]) -> Any:
        async def fn(run: StepRun) -> list[Any]:
            (row,) = await ledger.list(ctx.stage_record_id)
            assert (row.kind, row.status, row.attempt, row.seq) == ("run", "running", 1, 1)
            assert (row.external_key, row.lease_expires_at) == (run.external_key, None)
            assert row.owner is not None
            assert (row.owner.deliveries, row.stage_attempt) == (1, 1)
            assert run.external_key == derive_external_key(ctx.stage_record_id, "a")
            return [run.step_id, run.attempt, run.is_reclaim, run.abort.is_set]

        return await ctx.step.run("a", fn)

    run, _ = await run_steps(body)
    assert run.output == ["a", 1, False, False]


@pytest.mark.parametrize("swallowed", [False, True])
@pytest.mark.parametrize("gathered", [False, True])
@pytest.mark.guarantee("steps.ids-are-unique-in-an-invocation")
async def test_an_id_that_is_used_twice_fails_the_stage_at_once(
    run_steps: RunSteps, counted: _Counted, swallowed: bool, gathered: bool
) -> None:
    errors: list[Exception] = []

    async def body(ctx: StageContext[Any]) -> Any:
        try:
            if gathered:
                await asyncio.gather(ctx.step.run("same", counted.of("a")), ctx.step.sleep("same", "1h"))
            await ctx.step.run("same", counted.of("a"))
            await ctx.step.sleep("same", "1h")
        except Exception as error:
            errors.append(error)
            if not swallowed:
                raise
        return "fine"

    run, results = await run_steps(body)
    assert run.status is Status.FAILED
    assert len(results) == 1, "no attempt is spent on it"
    (error,) = errors
    assert isinstance(error, DuplicateStepKeyError)
    assert (error.step_id, error.first_kind, error.first_position) == ("same", "run", 1)
    assert (error.kind, error.position) == ("sleep", 2)
    assert run.error is not None
    assert "'same'" in run.error.message
    assert "sleep (request 2)" in run.error.message


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"retries": -1}, "retries=-1"),
        ({"retries": True}, "retries=True"),
        ({"retries": 1.0}, "retries=1.0"),
        ({"retry_delay": "1h30m"}, "retry_delay='1h30m'"),
        ({"retry_delay": -1}, "retry_delay=-1"),
        ({"backoff": 0.5}, "backoff=0.5"),
        ({"backoff": float("inf")}, "backoff=inf"),
        ({"backoff": {"factor": 2, "cap": "1h"}}, "'cap'"),
        ({"backoff": {"jitter": 1}}, "backoff.jitter=1"),
        ({"backoff": {"max_delay": "x"}}, "backoff.max_delay='x'"),
        ({"lease": 0}, "lease=0"),
        ({"lease": "-5s"}, "lease='-5s'"),
        ({"heartbeat": 0}, "heartbeat=0"),
        ({"lease": "10s", "heartbeat": "10s"}, "heartbeat='10s'"),
        ({"on_reclaim": "maybe"}, "on_reclaim='maybe'"),
        ({"id": ""}, "an id is text that isn't empty"),
        ({"id": None}, "an id is text that isn't empty"),
        ({"id": "x" * 256}, "255"),
        ({"id": "nul\x00"}, "NUL"),
        ({"fn": 5}, "fn=5"),
        ({"fn": lambda a, b: None}, "needs a, b"),
        ({"fn": lambda *, key: None}, "needs key"),
        ({"fn": lambda: (yield)}, "generator"),
        ({"returns": "NoSuchType"}, "NoSuchType"),
    ],
)
@pytest.mark.guarantee("steps.wrong-arguments-do-nothing")
async def test_arguments_are_checked_before_anything_is_done(
    run_steps: RunSteps, ledger: InMemoryStepLedger, options: dict[str, Any], named: str
) -> None:
    called: list[int] = []

    async def body(ctx: StageContext[Any]) -> Any:
        given: dict[str, Any] = {"id": "a", "fn": lambda: called.append(1)} | options
        with pytest.raises(DefinitionError) as caught:
            await ctx.step.run(given.pop("id"), given.pop("fn"), **given)
        assert named in str(caught.value)
        assert await ledger.list(ctx.stage_record_id) == []
        return None

    run, _ = await run_steps(body)
    assert (run.status, called) == (Status.COMPLETED, [])


async def test_all_wrong_options_are_named_at_once(run_steps: RunSteps) -> None:
    async def body(ctx: StageContext[Any]) -> Any:
        with pytest.raises(DefinitionError) as caught:
            await ctx.step.run("a", lambda: None, retries=-1, lease=0, backoff=0)
        return list(caught.value.problems)

    run, _ = await run_steps(body)
    assert isinstance(run.output, list)
    assert len(run.output) == 3


async def test_a_function_gets_a_step_run_only_if_it_needs_one(run_steps: RunSteps) -> None:
    class Odd:
        def __call__(self) -> str:
            return "object"

    async def body(ctx: StageContext[Any]) -> Any:
        kept: list[Any] = []
        for i in range(2):
            number = await ctx.step.run(f"default-{i}", lambda i=i: i)
            kept.append(number)
        kept.append(await ctx.step.run("run", lambda run: run.step_id))
        kept.append(await ctx.step.run("rest", lambda *rest: len(rest)))
        kept.append(await ctx.step.run("object", Odd()))
        kept.append(await ctx.step.run("builtin", dict))
        return kept

    run, _ = await run_steps(body)
    assert run.output == [0, 1, "run", 0, "object", {}]


@pytest.mark.guarantee("steps.retries-are-durable")
async def test_a_failed_step_is_tried_again_after_its_pause(
    run_steps: RunSteps, counted: _Counted, clock: FakeClock, ledger: InMemoryStepLedger
) -> None:
    start = clock.now()
    invocations: list[timedelta] = []
    fn = counted.of("a", "done", fails=4)

    async def body(ctx: StageContext[Any]) -> Any:
        invocations.append(clock.now() - start)
        return await ctx.step.run(
            "a",
            fn,
            retries=4,
            retry_delay="10s",
            backoff={"factor": 2, "max_delay": "30s"},
        )

    run, results = await run_steps(body)
    assert run.output == "done"
    assert [result.outcome for result in results] == ["suspended"] * 4 + ["completed"]
    assert [moment.total_seconds() for moment in invocations] == [0, 10, 30, 60, 90]
    assert [one.attempt for one in counted.runs] == [1, 2, 3, 4, 5]
    assert len({one.external_key for one in counted.runs}) == 1
    assert not any(one.is_reclaim for one in counted.runs)
    assert results[0].next_poll_at == start + timedelta(seconds=10)


async def test_a_step_that_fails_too_often_raises_what_its_function_raised(
    run_steps: RunSteps, counted: _Counted
) -> None:
    raised: list[str] = []
    fn = counted.of("a", fails=9)

    async def body(ctx: StageContext[Any]) -> Any:
        try:
            await ctx.step.run("a", fn, retries=1)
        except ValueError as error:
            raised.append(f"{type(error).__name__}: {error}")
            raise
        return None

    run, results = await run_steps(body, retry=RetryPolicy(1))
    assert [result.outcome for result in results] == ["suspended", "failed"]
    assert raised == ["ValueError: a 1"]
    assert run.error is not None
    assert (run.error.type, run.error.message) == ("ValueError", "a 1")


async def test_an_error_that_can_not_be_helped_is_not_tried_again(run_steps: RunSteps) -> None:
    calls: list[int] = []

    async def fn() -> None:
        calls.append(1)
        raise NonRetryableError("never")

    async def body(ctx: StageContext[Any]) -> Any:
        return await ctx.step.run("a", fn, retries=5)

    run, results = await run_steps(body)
    assert (run.status, len(results), calls) == (Status.FAILED, 1, [1])


async def test_a_random_pause_is_drawn_once_and_kept(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    resume: Resume,
    counted: _Counted,
    ledger: InMemoryStepLedger,
    clock: FakeClock,
) -> None:
    class Random:
        drawn = 0

        def uniform(self) -> float:
            self.drawn += 1
            return 0.25 / self.drawn

    fn = counted.of("a", fails=1)

    async def body(ctx: StageContext[Any]) -> Any:
        return await ctx.step.run("a", fn, retries=1, retry_delay="40s", backoff={"jitter": True})

    random = Random()
    kernel, other = (make_kernel(flow_of(body), random=random) for _ in range(2))
    run_id = await start_run(kernel)
    job = await take_job(kernel)
    first = await execute(kernel, job)
    due = clock.now() + timedelta(seconds=10)
    assert first.next_poll_at == due
    (row,) = await kernel.runs.steps(run_id)
    assert row.retry_at == due
    # Another process that looks too early waits for the same moment.
    clock.advance("3s")
    due_now = StagePatch(updated_at=clock.now(), next_poll_at=clock.now())
    await kernel.ports.persistence.update_stage(row.stage_record_id, due_now)
    await kernel.ports.job_transport.defer(job.job_id, clock.now(), "early")
    assert (await execute(other, await take_job(other))).next_poll_at == due
    await resume(other, run_id)
    assert (await execute(other, await take_job(other))).outcome == "completed"
    assert (counted.calls, random.drawn) == (["a", "a"], 1)


@pytest.mark.guarantee("steps.a-failed-step-runs-once-per-attempt-of-its-stage")
async def test_an_attempt_of_the_stage_gives_a_failed_step_one_more_execution(
    run_steps: RunSteps, counted: _Counted
) -> None:
    fn = counted.of("a", "done", fails=3)

    async def body(ctx: StageContext[Any]) -> Any:
        return await ctx.step.run("a", fn, retries=1)

    run, results = await run_steps(body)
    assert run.output == "done"
    # Attempts 1 and 2 by its own retries, then one for each further attempt of the stage.
    assert [one.attempt for one in counted.runs] == [1, 2, 3, 4]
    assert not any(one.is_reclaim for one in counted.runs)
    assert [result.outcome for result in results] == ["suspended", "failed", "failed", "completed"]


async def test_a_failure_that_was_recorded_is_raised_again_as_one_that_is_stored(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    resume: Resume,
    counted: _Counted,
) -> None:
    caught: list[Exception] = []
    fn = counted.of("a", fails=9)

    async def body(ctx: StageContext[Any]) -> Any:
        try:
            await ctx.step.run("a", fn)
        except Exception as error:
            caught.append(error)
        await ctx.step.sleep("pause", "1h")
        return "went on"

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    await execute(kernel, await take_job(kernel))
    await resume(kernel, run_id)
    assert (await execute(kernel, await take_job(kernel))).output == "went on"
    first, second = caught
    assert isinstance(first, ValueError)
    assert isinstance(second, StepFailedError)
    assert (second.step_id, second.type, second.message) == ("a", "ValueError", "a 0")
    assert counted.calls == ["a"]


async def test_a_step_of_another_kind_is_named(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    resume: Resume,
) -> None:
    async def before(ctx: StageContext[Any]) -> Any:
        await ctx.step.sleep("a", "1s")

    async def after(ctx: StageContext[Any]) -> Any:
        with pytest.raises(StepKindMismatchError, match="as run, and this run has it as sleep"):
            await ctx.step.run("a", lambda: 1)
        return "named"

    kernel = make_kernel(flow_of(before))
    run_id = await start_run(kernel)
    await execute(kernel, await take_job(kernel))
    await resume(kernel, run_id)
    assert (await execute(make_kernel(flow_of(after)), await take_job(kernel))).output == "named"


async def test_a_step_names_the_delivery_that_executed_it(
    run_steps: RunSteps, counted: _Counted, ledger: InMemoryStepLedger
) -> None:
    owners: list[StepOwner | None] = []

    async def body(ctx: StageContext[Any]) -> Any:
        await ctx.step.run("a", counted.of("a"))
        await ctx.step.sleep("pause", "1s")
        await ctx.step.run("b", counted.of("b"))
        owners.extend(row.owner for row in await ledger.list(ctx.stage_record_id) if row.kind == "run")

    await run_steps(body)
    assert [owner.deliveries for owner in owners if owner is not None] == [1, 2]


async def test_a_kernel_without_a_ledger_says_so_at_the_call(run_steps: RunSteps) -> None:
    async def body(ctx: StageContext[Any]) -> Any:
        return await ctx.step.run("a", lambda: 1)

    run, _ = await run_steps(body, ports={"step_ledger": None}, retry=RetryPolicy(1))
    assert run.error is not None
    assert run.error.type == "StepLedgerNotConfiguredError"
    assert "Kernel(step_ledger=...)" in run.error.message
