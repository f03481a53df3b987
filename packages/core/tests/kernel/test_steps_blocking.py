"""Steps of plain `def` bodies, and plain step functions: which thread they run in, and how they end."""

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stagewright import BlockingStageContext, StageContext, Status, StepRun
from stagewright.commands import ExecuteJobResult
from stagewright.executors import LocalExecutor
from stagewright.memory import InMemoryStepLedger
from stagewright.records import RunRecord
from stagewright.system import SystemClock
from stagewright.testing import FakeClock

RunSteps = Callable[..., Coroutine[Any, Any, tuple[RunRecord, list[ExecuteJobResult]]]]

Ctx = StageContext[Any]
BlockingCtx = BlockingStageContext[Any]
REQUEST: ContextVar[str] = ContextVar("request", default="of nobody")


@pytest.mark.guarantee("steps.plain-functions-never-block-the-loop")
async def test_functions_run_in_the_thread_that_is_promised(run_steps: RunSteps) -> None:
    loop_thread = threading.get_ident()
    seen: dict[str, int] = {}

    def plain() -> str:
        seen["plain"] = threading.get_ident()
        return "plain"

    async def coroutine() -> str:
        seen["coroutine"] = threading.get_ident()
        return "coroutine"

    async def echo(word: str) -> str:
        return word

    def body(ctx: BlockingCtx) -> Any:
        seen["body"] = threading.get_ident()
        return [
            ctx.step.run("plain", plain),
            ctx.step.run("coroutine", coroutine),
            ctx.step.run("lambda", lambda word="coroutine": echo(word), returns=str),
        ]

    run, _ = await run_steps(body)
    assert run.output == ["plain", "coroutine", "coroutine"]
    assert seen["body"] != loop_thread
    assert seen["plain"] == seen["body"], "a plain step function runs in the thread of its body"
    assert seen["coroutine"] == loop_thread

    async def async_body(ctx: Ctx) -> Any:
        return [
            await ctx.step.run("plain", plain),
            await ctx.step.run("lambda", lambda word="coroutine": echo(word), returns=str),
        ]

    run, _ = await run_steps(async_body)
    assert run.output == ["plain", "coroutine"]
    assert seen["plain"] != loop_thread


async def test_a_plain_body_sleeps_retries_and_replays(run_steps: RunSteps, clock: FakeClock) -> None:
    calls: list[tuple[str, int]] = []

    def flaky(run: StepRun) -> str:
        calls.append(("flaky", run.attempt))
        if run.attempt < 3:
            raise ValueError("not yet")
        return "done"

    def body(ctx: BlockingCtx) -> Any:
        try:
            kept = ctx.step.run("flaky", flaky, retries=2, retry_delay="1m")
            ctx.step.sleep("pause", "1h")
        except Exception as error:
            return repr(error)
        return kept

    start = clock.now()
    run, results = await run_steps(body)
    assert run.output == "done"
    assert calls == [("flaky", 1), ("flaky", 2), ("flaky", 3)]
    assert [result.outcome for result in results] == ["suspended"] * 3 + ["completed"]
    assert clock.now() == start + timedelta(hours=1, minutes=2)


async def test_a_plain_body_that_swallows_its_suspension_still_suspends(run_steps: RunSteps) -> None:
    def body(ctx: BlockingCtx) -> Any:
        try:
            ctx.step.sleep("pause", "1h")
        except BaseException:
            return "no"
        return "yes"

    run, results = await run_steps(body)
    assert run.output == "yes"
    assert [result.outcome for result in results] == ["suspended", "completed"]


async def test_waits_in_threads_of_a_plain_body_are_all_known(run_steps: RunSteps, clock: FakeClock) -> None:
    start = clock.now()

    def body(ctx: BlockingCtx) -> Any:
        with ThreadPoolExecutor(3) as pool:
            waits = [pool.submit(ctx.step.sleep, name, name) for name in ("2d", "1h", "3d")]
            for wait in waits:
                wait.result()
        return "awake"

    run, results = await run_steps(body)
    assert run.output == "awake"
    assert [result.next_poll_at for result in results] == [
        start + timedelta(hours=1),
        # The end of a sleep after another wait had begun is something new.
        *[result.next_poll_at for result in results[1:]],
    ]


async def test_what_a_plain_function_raises_comes_out_of_its_step(run_steps: RunSteps) -> None:
    caught: list[str] = []

    def leave() -> None:
        raise SystemExit(3)

    def stop() -> None:
        raise StopIteration

    def body(ctx: BlockingCtx) -> Any:
        for name, fn in (("leave", leave), ("stop", stop)):
            try:
                ctx.step.run(name, fn)
            except BaseException as error:
                caught.append(type(error).__name__)

    run, _ = await run_steps(body)
    assert run.status is Status.COMPLETED
    assert caught == ["SystemExit", "StopIteration"]

    async def async_body(ctx: Ctx) -> Any:
        try:
            await ctx.step.run("leave", leave)
        except SystemExit:
            caught.append("async")

    run, _ = await run_steps(async_body)
    assert (run.status, caught[-1]) == (Status.COMPLETED, "async")


@pytest.mark.parametrize("kind", [KeyboardInterrupt, GeneratorExit])
async def test_what_would_end_the_event_loop_fails_the_step_whose_thread_raises_it(
    run_steps: RunSteps, kind: type[BaseException]
) -> None:
    def leave() -> None:
        raise kind("bye")

    async def body(ctx: Ctx) -> Any:
        await ctx.step.run("leave", leave)

    run, _ = await run_steps(body)
    assert run.status is Status.FAILED
    assert run.error is not None
    assert kind.__name__ in str(run.error)


async def test_a_plain_function_beats_by_calling(run_steps: RunSteps, clock: FakeClock) -> None:
    def body(ctx: BlockingCtx) -> Any:
        def fn(run: StepRun) -> str:
            clock.advance("50s")
            run.heartbeat()
            return "kept"

        return ctx.step.run("a", fn, lease="1m")

    async def async_body(ctx: Ctx) -> Any:
        def fn(run: StepRun) -> str:
            clock.advance("50s")
            run.heartbeat()
            return "kept"

        return await ctx.step.run("a", fn, lease="1m")

    assert (await run_steps(body))[0].output == "kept"
    assert (await run_steps(async_body))[0].output == "kept"


@pytest.mark.guarantee("steps.late-results-of-threads-are-refused")
@pytest.mark.parametrize("kind", ["plain body", "plain function"])
async def test_what_a_thread_says_after_its_time_is_refused(
    run_steps: RunSteps, ledger: InMemoryStepLedger, kind: str
) -> None:
    """The thread goes on, is counted, and the next execution is told that it is a reclaim."""
    go, over = threading.Event(), threading.Event()
    seen: list[tuple[int, bool]] = []
    aborted: list[str | None] = []
    late: list[str] = []
    records: list[str] = []
    threads: list[threading.Thread] = []

    def fn(run: StepRun) -> str:
        seen.append((run.attempt, run.is_reclaim))
        threads.append(threading.current_thread())
        if run.attempt == 1:
            go.wait(30)
            aborted.append(run.abort.reason)
            late.append("returned")
            return "late"
        return "in time"

    def plain_body(ctx: BlockingCtx) -> Any:
        records.append(ctx.stage_record_id)
        try:
            return ctx.step.run("a", fn)
        finally:
            if ctx.attempt == 1:
                over.set()

    async def async_body(ctx: Ctx) -> Any:
        records.append(ctx.stage_record_id)
        try:
            return await ctx.step.run("a", fn)
        finally:
            if ctx.attempt == 1:
                over.set()

    executor = LocalExecutor()
    body: Callable[..., Any] = plain_body if kind == "plain body" else async_body
    run, results = await run_steps(body, ports={"executor": executor}, timeout="50ms")
    counted = executor.abandoned_threads
    go.set()
    await asyncio.to_thread(over.wait, 30)
    for thread in threads:
        await asyncio.to_thread(thread.join, 30)
    assert (run.output, seen) == ("in time", [(1, False), (2, True)])
    assert [result.outcome for result in results] == ["failed", "completed"]
    assert (counted, executor.abandoned_threads) == (1, 0)
    assert (late, aborted) == (["returned"], ["lease-lost"])
    (step,) = await ledger.list(records[0])
    assert (step.status, step.result, step.attempt) == ("completed", "in time", 2)


async def test_an_abandoned_step_that_must_not_run_again_does_not(run_steps: RunSteps) -> None:
    go = threading.Event()
    calls: list[int] = []

    def fn() -> None:
        calls.append(1)
        go.wait(30)

    async def body(ctx: Ctx) -> Any:
        return await ctx.step.run("a", fn, on_reclaim="fail")

    run, results = await run_steps(body, timeout="50ms")
    go.set()
    assert run.error is not None
    assert run.error.type == "StepNotReplaySafeError"
    assert (calls, len(results)) == ([1], 2)


async def test_an_executor_full_of_abandoned_threads_says_so(run_steps: RunSteps) -> None:
    go = threading.Event()
    executor = LocalExecutor(abandoned_threads_cap=2)

    def body(ctx: BlockingCtx) -> Any:
        go.wait(30)

    run, _ = await run_steps(body, ports={"executor": executor}, timeout="20ms")
    assert run.status is Status.FAILED
    assert (executor.abandoned_threads, executor.abandoned_threads_cap, executor.is_full) == (3, 2, True)
    go.set()


@pytest.mark.guarantee("steps.context-variables-reach-the-thread")
async def test_context_variables_reach_the_threads_of_steps(run_steps: RunSteps) -> None:
    seen: list[str] = []

    async def body(ctx: Ctx) -> Any:
        REQUEST.set("of the body")
        await ctx.step.run("run", lambda: seen.append(REQUEST.get()))
        await ctx.step.wait_for("wait", poll=REQUEST.get, ready=bool, every="1s", timeout="1h", returns=str)

        async def later() -> None:
            seen.append(REQUEST.get())

        await ctx.step.run("async", later)

    def plain(ctx: BlockingStageContext[Any]) -> Any:
        REQUEST.set("of the plain body")
        ctx.step.run("run", lambda: seen.append(REQUEST.get()))

        async def on_the_loop() -> None:
            seen.append(REQUEST.get())

        ctx.step.run("async", on_the_loop)

    run, _ = await run_steps(body, plain)
    assert run.status is Status.COMPLETED
    assert seen == ["of the body", "of the body", "of the plain body", "of the plain body"]


@pytest.mark.slow
@pytest.mark.guarantee("steps.plain-functions-never-block-the-loop")
async def test_ten_seconds_of_blocking_keep_a_lease_of_two(
    run_steps: RunSteps, ledger: InMemoryStepLedger
) -> None:
    """In a thread of its own and in a plain body's: the lease is renewed all the while, and nobody takes over."""
    leases: list[datetime] = []
    loop_went_on: list[float] = []

    async def watch(stage_record_id: str) -> None:
        while True:
            await asyncio.sleep(0.1)
            loop_went_on.append(time.monotonic())
            (row,) = await ledger.list(stage_record_id)
            if row.lease_expires_at is not None and row.lease_expires_at not in leases[-1:]:
                leases.append(row.lease_expires_at)
                assert row.lease_expires_at > datetime.now(UTC)

    def blocks(run: StepRun) -> int:
        time.sleep(10)
        return run.attempt

    async def body(ctx: Ctx) -> Any:
        watcher = asyncio.create_task(watch(ctx.stage_record_id))
        try:
            return await ctx.step.run("block", blocks, lease="2s")
        finally:
            watcher.cancel()

    def plain(ctx: BlockingStageContext[Any]) -> Any:
        return ctx.step.run("block", blocks, lease="2s")

    run, results = await run_steps(body, plain, ports={"clock": SystemClock()})
    assert run.output == 1
    assert [result.output for result in results] == [1, 1]
    assert len(leases) > 8, "renewed three times within its length"
    pauses = [later - earlier for earlier, later in itertools.pairwise(loop_went_on)]
    assert max(pauses) < 1.5, "the loop was never blocked"
