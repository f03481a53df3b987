"""Steps that are cancelled, nested, left behind, or asked for too late."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from stagewright import Kernel, RetryPolicy, StageContext, Status, StepRun, Workflow
from stagewright.commands import ClaimJobs, ExecuteJobResult, TransitionRun
from stagewright.kernel.commands.job_enqueue_owed import EnqueueOwedJobs
from stagewright.memory import InMemoryJobTransport
from stagewright.records import DequeuedJob, RunRecord
from stagewright.testing import FakeClock

RunSteps = Callable[..., Coroutine[Any, Any, tuple[RunRecord, list[ExecuteJobResult]]]]
Once = Callable[..., Coroutine[Any, Any, ExecuteJobResult]]

Ctx = StageContext[Any]


@pytest.mark.guarantee("steps.a-cancelled-step-is-given-up")
async def test_a_step_that_is_cancelled_is_given_up_and_executed_again(run_steps: RunSteps) -> None:
    seen: list[tuple[int, bool]] = []
    ended: list[str] = []

    async def body(ctx: Ctx) -> Any:
        async def fn(run: Any) -> str:
            seen.append((run.attempt, run.is_reclaim))
            if run.attempt == 1:
                limit.reschedule(asyncio.get_running_loop().time())
                try:
                    await asyncio.Event().wait()
                finally:
                    ended.append("cancelled")
            return "done"

        try:
            async with asyncio.timeout(None) as limit:
                return await ctx.step.run("a", fn, on_reclaim="fail")
        except TimeoutError:
            await ctx.step.sleep("pause", "1s")

    run, _ = await run_steps(body)
    assert run.output == "done"
    assert seen == [(1, False), (2, False)]
    assert ended == ["cancelled"]


async def test_a_time_limit_of_the_stage_ends_its_steps(run_steps: RunSteps) -> None:
    seen: list[tuple[int, bool]] = []

    async def fn(run: Any) -> str:
        seen.append((run.attempt, run.is_reclaim))
        if run.attempt == 1:
            await asyncio.Event().wait()
        return "done"

    async def body(ctx: Ctx) -> Any:
        return (await asyncio.gather(ctx.step.run("a", fn), ctx.step.sleep("b", 0)))[0]

    run, results = await run_steps(body, timeout="500ms")
    assert [result.outcome for result in results] == ["failed", "completed"]
    assert results[0].error is not None
    assert results[0].error.code == "STAGE_TIMEOUT"
    assert (run.output, seen) == ("done", [(1, False), (2, False)])


async def test_a_step_in_flight_is_not_cancelled_while_another_waits(run_steps: RunSteps) -> None:
    seen: list[str] = []

    async def body(ctx: Ctx) -> Any:
        async def fn() -> str:
            for _ in range(50):
                await asyncio.sleep(0)  # until the other waits
            limit.reschedule(asyncio.get_running_loop().time())
            await asyncio.sleep(0.05)
            seen.append("whole")
            return "kept"

        limit = asyncio.timeout(None)

        async def limited() -> Any:
            try:
                async with limit:
                    return await ctx.step.run("a", fn)
            except TimeoutError:
                return "too late"

        return (await asyncio.gather(ctx.step.sleep("pause", "1h"), limited()))[1]

    run, _ = await run_steps(body)
    assert (run.output, seen) == ("kept", ["whole"])


async def test_steps_may_be_made_of_steps(run_steps: RunSteps) -> None:
    calls: list[str] = []

    async def body(ctx: Ctx) -> Any:
        async def inner() -> int:
            calls.append("inner")
            return 1

        async def outer(run: Any) -> int:
            calls.append(f"outer {run.attempt} {run.is_reclaim}")
            value = await ctx.step.run("inner", inner)
            try:
                await ctx.step.sleep("pause", "1h")
            except BaseException:
                if run.attempt == 1:
                    return 99  # what comes out of a step that was suspended inside is no result
                raise
            return value + 1

        return await ctx.step.run("outer", outer)

    run, results = await run_steps(body)
    assert run.output == 2
    assert [result.outcome for result in results] == ["suspended", "completed"]
    assert calls == ["outer 1 False", "inner", "outer 2 False"]


async def test_a_step_asked_for_after_the_end_says_so(once: Once) -> None:
    left: list[Ctx] = []

    async def body(ctx: Ctx) -> Any:
        left.append(ctx)
        return "ended"

    assert (await once(body)).output == "ended"
    with pytest.raises(RuntimeError, match="the body has ended"):
        await left[0].step.run("late", lambda: 1)


async def test_a_wait_that_nobody_waits_for_suspends_nothing(once: Once) -> None:
    tasks: list[asyncio.Task[None]] = []

    async def body(ctx: Ctx) -> Any:
        tasks.append(asyncio.ensure_future(ctx.step.sleep("pause", "1h")))
        while len(tasks) < 2:
            await asyncio.sleep(0)
            tasks.append(tasks[0])
        return "ended"

    assert (await once(body)).output == "ended"
    await asyncio.wait(tasks)
    assert tasks[0].cancelled()


class _Steps:
    """A body of steps of every kind, and the executions of its functions."""

    def __init__(self) -> None:
        self.runs: list[StepRun] = []
        self._polls = 0

    async def body(self, ctx: Ctx) -> Any:
        first = await ctx.step.run("first", self._fn)
        middle = await asyncio.gather(
            ctx.step.run("beside", self._fn),
            ctx.step.wait_for("wait", poll=self._poll, ready=bool, every="1m", timeout="9d", returns=str),
            ctx.step.wait_for_signal("signal", timeout="9d", keepalive="1h"),
            ctx.step.sleep("pause", "1m"),
            ctx.step.run("large", lambda: "x" * 200, returns=str),
        )
        return [first, *middle[:3], await ctx.step.run("last", self._fn)]

    async def _fn(self, run: StepRun) -> str:
        self.runs.append(run)
        await asyncio.sleep(0)
        return run.step_id

    async def _poll(self) -> str:
        self._polls += 1
        await asyncio.sleep(0)
        return "ready" if self._polls > 1 else ""


@pytest.mark.parametrize("transport", ["enlisting", "separate"], indirect=True)
@pytest.mark.guarantee("steps.a-cancelled-step-is-given-up")
async def test_an_execution_that_is_cancelled_at_any_moment_owns_no_step(
    make_kernel: Callable[..., Kernel],
    flow_of: Callable[..., Workflow],
    start_run: Callable[..., Awaitable[str]],
    take_job: Callable[..., Awaitable[DequeuedJob]],
    execute: Callable[..., Coroutine[Any, Any, ExecuteJobResult]],
    resume: Callable[[Kernel, str], Awaitable[None]],
    signal: Callable[..., Coroutine[Any, Any, object]],
    hold_at: Callable[..., tuple[asyncio.Event, asyncio.Event]],
    forget_cues: Callable[[], None],
    transport: InMemoryJobTransport,
    clock: FakeClock,
) -> None:
    """At each call of a store in turn, every other time twice: the next execution goes on, and nothing is a reclaim."""
    for nth in range(1, 200):
        steps = _Steps()
        kernel = make_kernel(flow_of(steps.body, retry=RetryPolicy(1)), spill_threshold_bytes=100)
        run_id = await start_run(kernel)
        await signal(kernel, run_id, "sent", step_id="signal")
        job = await take_job(kernel)
        reached, go = hold_at("*", nth=nth)
        task = asyncio.create_task(execute(kernel, job))
        waiting = asyncio.create_task(reached.wait())
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        is_over = task.done()
        for _ in range(1 + nth % 2):
            task.cancel()
            await asyncio.sleep(0)
        go.set()
        await asyncio.wait({task}, timeout=10)
        assert task.done(), nth
        forget_cues()
        rows = await kernel.runs.steps(run_id)
        assert all(row.owner is None for row in rows if row.status == "running"), nth
        running = [one for one in await transport.get_jobs_by_run(run_id) if one.status is Status.RUNNING]
        for one in running:
            await transport.defer(one.id, clock.now(), "handed back", job.fence)
        for _ in range(8):
            await kernel.dispatch(EnqueueOwedJobs(owed_for="0s"))
            for again in (await kernel.dispatch(ClaimJobs("worker"))).jobs:
                await execute(kernel, again)
            await kernel.dispatch(TransitionRun(run_id))
            await resume(kernel, run_id)
        run = await kernel.runs.get(run_id)
        assert run is not None
        assert (run.status, run.output) == (Status.COMPLETED, ["first", "beside", "ready", "sent", "last"]), (
            nth
        )
        counts = Counter(one.step_id for one in steps.runs)
        assert max(counts.values()) <= 2, (nth, counts)
        assert not any(one.is_reclaim for one in steps.runs), nth
        if is_over:
            assert nth > 20
            return
    raise AssertionError("the execution has no end")
