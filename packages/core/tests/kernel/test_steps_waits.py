"""`ctx.step.wait_for`: asked until the answer will do, patient with what fails, and never beyond its deadline."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

from stagewright import (
    BlockingStageContext,
    Kernel,
    NonRetryableError,
    RetryPolicy,
    StageContext,
    Status,
    Workflow,
)
from stagewright.commands import ExecuteJobResult
from stagewright.errors import (
    DefinitionError,
    InvalidDurationError,
    StageAbortedError,
    StepFailedError,
    StepTimeoutError,
)
from stagewright.memory import InMemoryDatabase, InMemoryStepLedger
from stagewright.records import DequeuedJob, RunRecord, StepExpectation, StepPatch
from stagewright.runtime.abort import AbortSource
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
StartRun = Callable[..., Awaitable[str]]
TakeJob = Callable[..., Awaitable[DequeuedJob]]
Execute = Callable[..., Coroutine[Any, Any, ExecuteJobResult]]
Resume = Callable[[Kernel, str], Awaitable[None]]
RunSteps = Callable[..., Coroutine[Any, Any, tuple[RunRecord, list[ExecuteJobResult]]]]
Once = Callable[..., Coroutine[Any, Any, ExecuteJobResult]]
Hours = Callable[[float], datetime]

Ctx = StageContext[Any]


class Parcel(BaseModel):
    state: str
    weight: Decimal


def ready(parcel: Parcel) -> bool:
    return parcel.state == "there"


def parcels(*states: str | Exception) -> Iterator[Parcel | Exception]:
    for state in states:
        yield state if isinstance(state, Exception) else Parcel(state=state, weight=Decimal("1.10"))


def asking(answers: Iterator[Any]) -> Callable[[], Coroutine[Any, Any, Parcel]]:
    async def poll() -> Parcel:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, Parcel)
        return answer

    return poll


@pytest.mark.guarantee("steps.waits-ask-until-the-answer-will-do")
async def test_a_wait_asks_at_its_interval_until_the_answer_will_do(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    resume: Resume,
    hours: Hours,
) -> None:
    poll = asking(parcels("on its way", "on its way", "there"))
    seen: list[Parcel] = []

    async def body(ctx: Ctx) -> Any:
        parcel = await ctx.step.wait_for("parcel", poll=poll, ready=ready, every="1h", timeout="9h")
        seen.append(parcel)
        await ctx.step.sleep("pause", "1h")
        return parcel.state

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    for hour in (1, 2, 3):
        assert (await execute(kernel, await take_job(kernel))).next_poll_at == hours(hour)
        await resume(kernel, run_id)
    assert (await execute(kernel, await take_job(kernel))).output == "there"
    assert seen == [Parcel(state="there", weight=Decimal("1.10"))] * 2
    step = (await kernel.runs.steps(run_id))[0]
    assert (step.kind, step.status, step.deadline_at) == ("wait", "completed", hours(9))


async def test_the_pause_begins_when_the_answer_has_come(once: Once, clock: FakeClock, hours: Hours) -> None:
    async def poll() -> int:
        clock.advance("30m")
        return 1

    async def body(ctx: Ctx) -> Any:
        await ctx.step.wait_for("x", poll=poll, ready=lambda _: False, every="1h", timeout="9h")

    assert (await once(body)).next_poll_at == hours(1.5)


@pytest.mark.guarantee("steps.deadlines-never-slide")
async def test_interval_and_deadline_are_stored_once_and_the_last_look_is_at_the_deadline(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    resume: Resume,
    hours: Hours,
) -> None:
    options = iter([{"every": "2h", "timeout": "5h"}, {"every": "1m", "timeout": "1m"}] * 3)
    asked: list[int] = []

    async def poll() -> int:
        asked.append(1)
        return 0

    async def body(ctx: Ctx) -> Any:
        given: dict[str, Any] = next(options)
        await ctx.step.wait_for("x", poll=poll, ready=bool, **given)

    kernel = make_kernel(flow_of(body, retry=RetryPolicy(3, delay=0)))
    run_id = await start_run(kernel)
    for hour in (2, 4, 5):
        assert (await execute(kernel, await take_job(kernel))).next_poll_at == hours(hour)
        await resume(kernel, run_id)
    result = await execute(kernel, await take_job(kernel))
    assert (result.outcome, result.will_retry) == ("failed", False)
    assert result.error is not None
    assert result.error.type == "StepTimeoutError"
    assert len(asked) == 3, "at the deadline nobody is asked any more"


@pytest.mark.guarantee("steps.timeouts-keep-their-class")
async def test_a_timeout_keeps_its_class_in_other_processes(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    resume: Resume,
) -> None:
    caught: list[Exception] = []

    async def body(ctx: Ctx) -> Any:
        try:
            await ctx.step.wait_for("x", poll=lambda: 0, ready=bool, every="1h", timeout="1h", returns=int)
        except Exception as error:
            caught.append(error)
        await ctx.step.sleep("pause", "1h")
        return "without"

    run_id = await start_run(make_kernel(flow_of(body)))
    outcome = ""
    for _ in range(6):
        kernel = make_kernel(flow_of(body))
        result = await execute(kernel, await take_job(kernel))
        if result.outcome != "suspended":
            outcome = str(result.output)
            break
        await resume(kernel, run_id)
    assert outcome == "without"
    assert len(caught) > 1
    assert {type(error) for error in caught} == {StepTimeoutError}
    assert len({str(error) for error in caught}) == 1


async def test_a_poll_that_passes_the_deadline_times_out_unless_it_brought_the_answer(
    once: Once, clock: FakeClock
) -> None:
    async def late(value: int) -> int:
        clock.advance("2h")
        return value

    async def body(ctx: Ctx) -> Any:
        options: Any = {"ready": bool, "every": "1m", "timeout": "1h", "returns": int}
        with pytest.raises(StepTimeoutError):
            await ctx.step.wait_for("in vain", poll=lambda: late(0), **options)
        return await ctx.step.wait_for("in the end", poll=lambda: late(7), **options)

    assert (await once(body)).output == 7


@pytest.mark.guarantee("steps.a-poll-that-fails-is-no-failed-step")
async def test_what_a_poll_raises_is_borne_with_a_pause_of_its_own(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    resume: Resume,
    hours: Hours,
) -> None:
    errors = [ConnectionError(f"no {number}") for number in range(5)]
    poll = asking(parcels(*errors, "on its way", ConnectionError("again"), "there"))

    async def body(ctx: Ctx) -> Any:
        parcel = await ctx.step.wait_for(
            "x", poll=poll, ready=ready, every="3h", timeout="90h", poll_backoff="1h"
        )
        return parcel.state

    counts: list[int] = []
    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    moments: list[datetime | None] = []
    for _ in range(7):
        # Each look is another process's; what is counted lies in the ledger.
        kernel = make_kernel(flow_of(body))
        moments.append((await execute(kernel, await take_job(kernel))).next_poll_at)
        counts.append((await kernel.runs.steps(run_id))[0].poll_failures)
        await resume(kernel, run_id)
    assert moments == [hours(1), hours(2), hours(3), hours(4), hours(5), hours(8), hours(9)]
    assert counts == [1, 2, 3, 4, 5, 0, 1]
    assert (await execute(kernel, await take_job(kernel))).output == "there"
    for level, lines in {"DEBUG": 4, "WARN": 2}.items():
        said = (await kernel.runs.logs(run_id, level=level)).items  # type: ignore[arg-type]  # both are levels
        assert len(said) == lines
        assert all("asked in vain" in line.message for line in said)


async def test_without_a_pause_of_its_own_a_failed_poll_waits_as_long_as_any(
    once: Once, hours: Hours
) -> None:
    poll = asking(parcels(ConnectionError()))

    async def body(ctx: Ctx) -> Any:
        await ctx.step.wait_for("x", poll=poll, ready=ready, every="3h", timeout="2h")

    assert (await once(body)).next_poll_at == hours(2), "bounded by the deadline"


async def test_what_no_other_look_can_help_ends_the_wait(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    resume: Resume,
) -> None:
    errors: list[Exception] = []

    async def poll() -> int:
        raise NonRetryableError("the order is gone")

    async def body(ctx: Ctx) -> Any:
        try:
            await ctx.step.wait_for("x", poll=poll, ready=bool, every="1h", timeout="9h")
        except Exception as error:
            errors.append(error)
        await ctx.step.sleep("pause", "1h")

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    for _ in range(2):
        await execute(kernel, await take_job(kernel))
        await resume(kernel, run_id)
    assert [type(error) for error in errors] == [NonRetryableError, StepFailedError]
    assert "the order is gone" in str(errors[1])


async def test_what_ready_raises_is_the_bodys_error_and_leaves_the_wait_open(run_steps: RunSteps) -> None:
    tries = 0

    def picky(value: int) -> bool:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise KeyError("stauts")
        return True

    async def body(ctx: Ctx) -> Any:
        return await ctx.step.wait_for(
            "x", poll=lambda: 5, ready=picky, every="1h", timeout="9h", returns=int
        )

    run, results = await run_steps(body)
    assert [result.outcome for result in results] == ["failed", "completed"]
    assert results[0].error is not None
    assert results[0].error.type == "KeyError"
    assert run.output == 5


async def test_an_answer_that_can_not_be_kept_fails_its_step_for_good(run_steps: RunSteps) -> None:
    async def body(ctx: Ctx) -> Any:
        await ctx.step.wait_for("x", poll=lambda: {"f": open}, ready=bool, every="1h", timeout="9h")

    run, results = await run_steps(body)
    assert len(results) == 1
    assert run.error is not None
    assert run.error.type == "StepResultNotSerializableError"
    assert "$.f" in run.error.message


async def test_of_two_pollers_the_first_recorded_answer_counts(
    run_steps: RunSteps, ledger: InMemoryStepLedger
) -> None:
    async def body(ctx: Ctx) -> Any:
        async def poll() -> int:
            (row,) = await ledger.list(ctx.stage_record_id)
            patch = StepPatch(updated_at=datetime.now(UTC), status="completed", result=1)
            await ledger.compare_and_set(row.id, StepExpectation(status="pending"), patch)
            return 2

        return await ctx.step.wait_for("x", poll=poll, ready=bool, every="1h", timeout="9h")

    run, _ = await run_steps(body)
    assert run.output == 1


async def test_an_aborted_stage_asks_nobody(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, take_job: TakeJob, execute: Execute
) -> None:
    asked: list[int] = []
    source = AbortSource()
    errors: list[Exception] = []

    async def poll() -> int:
        asked.append(1)
        return 1

    async def body(ctx: Ctx) -> Any:
        source.set("cancelled")
        try:
            await ctx.step.wait_for("x", poll=poll, ready=bool, every="1h", timeout="9h")
        except StageAbortedError as error:
            errors.append(error)
            raise

    kernel = make_kernel(flow_of(body))
    await start_run(kernel)
    await execute(kernel, await take_job(kernel), abort=source)
    assert asked == []
    assert [str(error) for error in errors] == ["the stage was told to stop: cancelled"]


async def test_plain_functions_are_asked_off_the_loop(run_steps: RunSteps) -> None:
    threads: dict[str, int] = {}
    loop = threading.get_ident()

    def poll() -> int:
        threads["async body"] = threading.get_ident()
        return 1

    async def body(ctx: Ctx) -> Any:
        return await ctx.step.wait_for("x", poll=poll, ready=bool, every="1s", timeout="9h")

    def plain(ctx: BlockingStageContext[Any]) -> Any:
        own = threading.get_ident()
        turns = iter([0, 5])

        def here() -> int:
            threads["plain body"] = threading.get_ident()
            threads["own"] = own
            return next(turns)

        async def there() -> int:
            threads["on the loop"] = threading.get_ident()
            return 2

        first = ctx.step.wait_for("y", poll=here, ready=lambda n: n == 0, every="1s", timeout="9h")
        second = ctx.step.wait_for("z", poll=there, ready=bool, every="1s", timeout="9h")
        return [first, second]

    run, _ = await run_steps(body, plain)
    assert run.status is Status.COMPLETED
    assert run.output == [0, 2]
    assert threads["async body"] != loop
    assert threads["plain body"] == threads["own"] != loop
    assert threads["on the loop"] == loop


async def test_a_plain_body_waits_and_replays(run_steps: RunSteps) -> None:
    answers = iter([0, 0, 7])

    def body(ctx: BlockingStageContext[Any]) -> Any:
        return ctx.step.wait_for(
            "x", poll=lambda: next(answers), ready=bool, every="1h", timeout="9h", returns=int
        )

    run, results = await run_steps(body)
    assert [result.outcome for result in results] == ["suspended", "suspended", "completed"]
    assert run.output == 7


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"every": 0}, "every=0"),
        ({"every": "5 m"}, "every='5 m'"),
        ({"timeout": 0}, "timeout=0"),
        ({"timeout": float("nan")}, "timeout=nan"),
        ({"poll_backoff": 0}, "poll_backoff=0"),
        ({"poll": 3}, "poll=3"),
        ({"poll": lambda run: run}, "called with nothing"),
        ({"ready": 3}, "ready=3"),
        ({"ready": asyncio.sleep}, "ready is an async def"),
        ({"returns": open}, "pydantic"),
    ],
)
@pytest.mark.guarantee("steps.wrong-arguments-do-nothing")
async def test_options_that_make_no_sense_are_refused(
    once: Once, options: Any, named: str, database: InMemoryDatabase
) -> None:
    async def body(ctx: Ctx) -> Any:
        given = {"poll": lambda: 1, "ready": bool, "every": "1h", "timeout": "9h"} | options
        with pytest.raises(DefinitionError) as refused:
            await ctx.step.wait_for("x", **given)
        return str(refused.value)

    said = str((await once(body)).output)
    assert "'x'" in said
    assert named in said
    assert database.steps.all() == {}


@pytest.mark.parametrize("name", ["every", "timeout", "poll_backoff"])
async def test_times_beyond_the_calendar_are_refused(
    once: Once, name: str, database: InMemoryDatabase
) -> None:
    async def body(ctx: Ctx) -> Any:
        given: Any = {"every": "1h", "timeout": "9h"} | {name: "2920000d"}
        with pytest.raises(InvalidDurationError):
            await ctx.step.wait_for("x", poll=lambda: 1, ready=bool, **given)
        return "refused"

    assert (await once(body)).output == "refused"
    assert database.steps.all() == {}
