"""Running bodies here: what comes out as an outcome, and what doesn't."""

import asyncio
import contextvars
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel

from stagewright import BlockingStageContext, StageContext, StageResult, Suspend
from stagewright.definitions import NotReady
from stagewright.executors import RoutingExecutor
from stagewright.ports import ActivityOutcome, ActivityRun, BodyFailed, BodyReturned, BodySuspended
from stagewright.records import LogRecord
from stagewright.runtime import local_executor
from stagewright.runtime.local_executor import LocalExecutor

MakeActivity = Callable[..., ActivityRun]
VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE", default="unset")


class Amount(BaseModel):
    n: int


async def run(activity: ActivityRun) -> ActivityOutcome:
    return await LocalExecutor().run(activity)


async def test_a_body_gets_its_values_as_their_types(make_activity: MakeActivity) -> None:
    async def body(ctx: StageContext[Amount, Amount]) -> Amount:
        assert isinstance(ctx.input, Amount)
        assert isinstance(ctx.config, Amount)
        return Amount(n=ctx.input.n + ctx.config.n)

    types = {"input_type": Amount, "output_type": Amount, "config_type": Amount}
    outcome = await run(make_activity(body, input={"n": 1}, config={"n": 2}, **types))
    assert outcome == ActivityOutcome(ending=BodyReturned(output={"n": 3}))


async def test_a_result_carries_metrics_and_artifacts(make_activity: MakeActivity) -> None:
    async def body(ctx: StageContext[Any]) -> StageResult[int]:
        return StageResult(
            output=1, metrics={"m": 1}, artifacts={"plain": [1], "model": Amount(n=2), "none": None}
        )

    outcome = await run(make_activity(body))
    assert outcome.ending == BodyReturned(
        output=1, metrics={"m": 1}, artifacts={"plain": [1], "model": {"n": 2}, "none": None}
    )


async def test_a_batch_may_suspend(make_activity: MakeActivity) -> None:
    async def body(ctx: StageContext[Any]) -> Suspend:
        return Suspend({"id": 1}, poll_interval="1m", max_wait="1h")

    async def check(state: Any, ctx: StageContext[Any]) -> NotReady:
        return NotReady()

    outcome = await run(make_activity(body, mode="async-batch", check_completion=check))
    assert isinstance(outcome.ending, BodySuspended)
    assert (outcome.ending.state, outcome.ending.poll_interval.total_seconds()) == ({"id": 1}, 60)


async def test_values_that_fit_nothing_never_reach_the_body(make_activity: MakeActivity) -> None:
    async def body(ctx: StageContext[Any]) -> Any:
        pytest.fail("the body ran")

    cases: list[tuple[dict[str, Any], str]] = [
        ({"input": {}}, "INVALID_INPUT"),
        ({"input": {"n": 1}, "config": {"n": "x"}}, "INVALID_CONFIG"),
    ]
    for fields, code in cases:
        outcome = await run(make_activity(body, input_type=Amount, config_type=Amount, **fields))
        assert isinstance(outcome.ending, BodyFailed)
        assert (outcome.ending.error.code, outcome.ending.retryable) == (code, False)


async def test_what_a_body_said_before_it_failed_is_part_of_the_outcome(make_activity: MakeActivity) -> None:
    async def body(ctx: StageContext[Any]) -> Any:
        ctx.annotate("a", 1)
        ctx.progress(5)
        ctx.log("info", "said")
        raise ValueError("no")

    outcome = await run(make_activity(body))
    assert isinstance(outcome.ending, BodyFailed)
    assert [len(said) for said in (outcome.annotations, outcome.progress, outcome.logs)] == [1, 1, 1]


# Plain functions


@pytest.mark.guarantee("kernel.plain-bodies-leave-the-loop-free")
async def test_a_plain_body_runs_in_a_thread_of_its_own_while_the_loop_goes_on(
    make_activity: MakeActivity,
) -> None:
    go = threading.Event()

    def body(ctx: BlockingStageContext[Any]) -> Any:
        go.wait(30)
        thread = threading.current_thread()
        return [thread is threading.main_thread(), thread.daemon, thread.name]

    running = asyncio.create_task(run(make_activity(body)))
    for _ in range(5):
        await asyncio.sleep(0)
    go.set()
    assert (await running).ending == BodyReturned(output=[False, True, "stagewright-s-run"])


async def test_more_plain_bodies_than_any_pool_has_run_at_once(make_activity: MakeActivity) -> None:
    together = threading.Barrier(60)

    def body(ctx: BlockingStageContext[Any]) -> Any:
        together.wait(60)
        return 1

    outcomes = await asyncio.gather(*(run(make_activity(body)) for _ in range(60)))
    assert {outcome.ending == BodyReturned(output=1) for outcome in outcomes} == {True}


async def test_a_plain_body_sees_the_callers_context_variables_and_changes_its_own(
    make_activity: MakeActivity,
) -> None:
    def body(ctx: BlockingStageContext[Any]) -> Any:
        seen = VARIABLE.get()
        VARIABLE.set("changed")
        return seen

    VARIABLE.set("callers")
    assert (await run(make_activity(body))).ending == BodyReturned(output="callers")
    assert VARIABLE.get() == "callers"


async def test_the_storage_of_a_plain_body_blocks_and_works(make_activity: MakeActivity) -> None:
    def body(ctx: BlockingStageContext[Any]) -> Any:
        ctx.storage.save("a/json", {"x": [1]})
        ctx.storage.save("model", Amount(n=1))
        ctx.storage.save_bytes("raw", b"\x00\xff")
        assert ctx.storage.load("model", Amount) == Amount(n=1)
        assert ctx.storage.load_bytes("raw") == b"\x00\xff"
        ctx.storage.delete("raw")
        assert not ctx.storage.exists("raw")
        return [ctx.storage.load("a/json"), ctx.storage.keys(), ctx.storage.exists("model")]

    assert (await run(make_activity(body))).ending == BodyReturned(
        output=[{"x": [1]}, ["a/json", "model"], True]
    )


async def test_an_error_of_the_storage_is_raised_in_the_plain_body(make_activity: MakeActivity) -> None:
    def body(ctx: BlockingStageContext[Any]) -> Any:
        ctx.storage.load("nothing")

    outcome = await run(make_activity(body))
    assert isinstance(outcome.ending, BodyFailed)
    assert outcome.ending.error.type == "BlobNotFoundError"


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("kind", [StopIteration, StopAsyncIteration])
async def test_a_body_that_raises_stop_iteration_fails_like_any_other(
    make_activity: MakeActivity, blocking: bool, kind: type[Exception]
) -> None:
    async def body(ctx: StageContext[Any]) -> Any:
        raise kind("odd")

    def blocking_body(ctx: BlockingStageContext[Any]) -> Any:
        raise kind("odd")

    outcome = await run(make_activity(blocking_body if blocking else body))
    assert isinstance(outcome.ending, BodyFailed)
    assert "StopIteration" in str(outcome.ending.error) or "StopAsyncIteration" in str(outcome.ending.error)


async def test_cancelling_a_plain_body_does_not_wait_for_its_thread(make_activity: MakeActivity) -> None:
    inside, go = threading.Event(), threading.Event()

    def body(ctx: BlockingStageContext[Any]) -> Any:
        inside.set()
        go.wait(30)

    running = asyncio.create_task(run(make_activity(body)))
    await asyncio.to_thread(inside.wait, 30)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    go.set()


# Log lines while a body runs


@pytest.fixture
def quick_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_executor, "_LOG_INTERVAL", 0.0)


@pytest.mark.usefixtures("quick_logs")
async def test_lines_are_written_while_the_body_runs_and_not_again_with_the_outcome(
    make_activity: MakeActivity,
) -> None:
    written: list[LogRecord] = []
    written_once = asyncio.Event()

    async def write_logs(lines: Sequence[LogRecord]) -> None:
        written.extend(lines)
        written_once.set()

    async def body(ctx: StageContext[Any]) -> Any:
        ctx.log("info", "early")
        await written_once.wait()
        return 1

    activity = make_activity(body)
    outcome = await run(replace(activity, resources=replace(activity.resources, write_logs=write_logs)))
    assert [line.message for line in written] == ["early"]
    assert outcome.logs == ()


@pytest.mark.usefixtures("quick_logs")
@pytest.mark.parametrize("error", [ConnectionError("down"), None])
async def test_lines_that_could_not_be_written_come_with_the_outcome(
    make_activity: MakeActivity, error: Exception | None
) -> None:
    asked = asyncio.Event()

    async def write_logs(lines: object) -> None:
        asked.set()
        if error is not None:
            raise error
        await asyncio.Event().wait()

    async def body(ctx: StageContext[Any]) -> Any:
        ctx.log("info", "one")
        await asked.wait()
        ctx.log("info", "two")
        return 1

    activity = make_activity(body)
    activity = replace(activity, resources=replace(activity.resources, write_logs=write_logs))
    outcome = await run(activity)
    assert [line.message for line in outcome.logs] == ["one", "two"]


async def test_no_task_is_left_behind(make_activity: MakeActivity) -> None:
    async def body(ctx: StageContext[Any]) -> Any:
        raise ValueError("no")

    before = asyncio.all_tasks()
    await run(make_activity(body))
    assert asyncio.all_tasks() == before


# Sending stages elsewhere


class Remote:
    def __init__(self) -> None:
        self.seen: list[ActivityRun] = []

    async def run(self, activity: ActivityRun) -> ActivityOutcome:
        self.seen.append(activity)
        return ActivityOutcome(ending=BodyReturned(output="remote"))


async def test_the_listed_stages_go_elsewhere_unchanged_and_all_others_run_here(
    make_activity: MakeActivity,
) -> None:
    async def body(ctx: StageContext[Any]) -> Any:
        return "local"

    activity = make_activity(body)
    remote = Remote()
    assert (await RoutingExecutor(remote, ["s"]).run(activity)).ending == BodyReturned(output="remote")
    assert remote.seen == [activity]
    assert (await RoutingExecutor(remote, ["other"]).run(activity)).ending == BodyReturned(output="local")
    assert (await RoutingExecutor(remote, []).run(activity)).ending == BodyReturned(output="local")
    local = Remote()
    assert (await RoutingExecutor(remote, [], local=local).run(activity)).ending == BodyReturned(
        output="remote"
    )
    assert local.seen == [activity]


async def test_a_worker_that_is_cancelled_while_log_lines_are_written_is_cancelled(
    make_activity: MakeActivity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_executor, "_LOG_INTERVAL", 0)
    writing, may_end = asyncio.Event(), asyncio.Event()

    async def body(ctx: StageContext[Any]) -> Any:
        ctx.log("info", "line")
        await writing.wait()

    async def write_logs(lines: Sequence[LogRecord]) -> None:
        writing.set()
        try:
            await asyncio.Event().wait()
        finally:
            # What a store does when its statement is cancelled: it rolls back, which takes a while.
            await may_end.wait()

    activity = make_activity(body)
    activity = replace(activity, resources=replace(activity.resources, write_logs=write_logs))
    running = asyncio.create_task(run(activity))
    await writing.wait()
    for _ in range(5):
        await asyncio.sleep(0)
    running.cancel()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await running
