"""Runs driven to their end in one process."""

import asyncio
import threading
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from stagewright import (
    BlockingStageContext,
    Kernel,
    NotReady,
    Ready,
    RetryPolicy,
    Stage,
    StageContext,
    Status,
    Suspend,
    Workflow,
    define_stage,
    define_workflow,
    open_kernel,
    stage,
)
from stagewright.commands import CancelRun, ClaimPendingRuns, CreateRun
from stagewright.errors import InvalidDurationError, InvalidSettingError, RunNotFoundError, RunStalledError
from stagewright.events import Event
from stagewright.hosting import drive_run
from stagewright.testing import CollectingEventSink


def opened(*stages: Stage[Any, Any, Any], **options: Any) -> AbstractAsyncContextManager[Kernel]:
    return open_kernel(flow(*stages), "memory://", **options)


def flow(*stages: Stage[Any, Any, Any]) -> Workflow:
    builder = define_workflow("w", input=int)
    for one in stages:
        builder = builder.pipe(one)
    return builder.build()


@stage("double")
async def double(ctx: StageContext[int]) -> int:
    return ctx.input * 2


async def test_events_are_reported_in_order_and_delivered() -> None:
    seen: list[Event] = []
    sink = CollectingEventSink()
    async with opened(double, event_sink=sink) as kernel:
        created = await kernel.dispatch(CreateRun("w", 2))
        run = await drive_run(kernel, created.run_id, on_event=seen.append)
    assert (run.status, run.output) == (Status.COMPLETED, 4)
    types = ["workflow:created", "workflow:started", "stage:started", "stage:completed", "workflow:completed"]
    assert [event.type for event in seen] == types
    assert [event.type for event in sink.events] == types


async def test_many_drivers_of_one_store_end_all_runs() -> None:
    bodies: list[int] = []

    @stage("slow")
    async def slow(ctx: StageContext[int]) -> int:
        bodies.append(ctx.input)
        await asyncio.sleep(0)
        return ctx.input

    async with opened(slow, double) as kernel:
        created = [await kernel.dispatch(CreateRun("w", number)) for number in range(60)]
        runs = await asyncio.gather(*(drive_run(kernel, one.run_id) for one in created))
    assert [run.output for run in runs] == [number * 2 for number in range(60)]
    assert sorted(bodies) == list(range(60))


async def test_a_running_body_is_told_of_the_cancel() -> None:
    inside = asyncio.Event()

    @stage("waits")
    async def waits(ctx: StageContext[int]) -> int:
        inside.set()
        await ctx.abort.wait()
        assert ctx.abort.reason == "cancelled"
        return 1

    async with opened(waits) as kernel:
        created = await kernel.dispatch(CreateRun("w", 1))
        driving = asyncio.create_task(drive_run(kernel, created.run_id))
        await inside.wait()
        assert (await kernel.dispatch(CancelRun(created.run_id))).cancelled
        run = await asyncio.wait_for(driving, 4)
    assert (run.status, run.output) == (Status.CANCELLED, None)


async def test_a_body_in_a_thread_is_told_of_the_cancel() -> None:
    inside = threading.Event()
    effects: list[str] = []

    @stage("loops")
    def loops(ctx: BlockingStageContext[int]) -> int:
        inside.set()
        while not ctx.abort.is_set:
            threading.Event().wait(0.01)
        effects.append(str(ctx.abort.reason))
        return 1

    async with opened(loops) as kernel:
        created = await kernel.dispatch(CreateRun("w", 1))
        driving = asyncio.create_task(drive_run(kernel, created.run_id))
        await asyncio.to_thread(inside.wait)
        await kernel.dispatch(CancelRun(created.run_id))
        assert (await asyncio.wait_for(driving, 4)).status is Status.CANCELLED
    assert effects == ["cancelled"]


async def test_a_body_in_a_thread_learns_of_its_timeout() -> None:
    late, attempts = threading.Event(), []

    @stage("charge", timeout="50ms", retry=RetryPolicy(max_attempts=2, delay="1ms"))
    def charge(ctx: BlockingStageContext[int]) -> int:
        attempts.append(ctx.attempt)
        if ctx.attempt == 1:
            while not ctx.abort.is_set:
                threading.Event().wait(0.01)
            late.set()
            ctx.abort.raise_if_set()
        return ctx.attempt

    async with opened(charge) as kernel:
        created = await kernel.dispatch(CreateRun("w", 1))
        run = await drive_run(kernel, created.run_id)
        assert await asyncio.to_thread(late.wait, 5)
    assert (run.output, attempts) == (2, [1, 2])


async def test_a_run_that_was_cut_off_goes_on_with_the_next_driver() -> None:
    first = asyncio.Event()

    @stage("hangs_once")
    async def hangs_once(ctx: StageContext[int]) -> int:
        if not first.is_set():
            first.set()
            await asyncio.Event().wait()
        return ctx.attempt

    async with opened(hangs_once) as kernel:
        created = await kernel.dispatch(CreateRun("w", 1))
        with pytest.raises(TimeoutError, match=r"did not end within 0\.05 s"):
            await drive_run(kernel, created.run_id, timeout="50ms")
        [job] = await kernel.ports.job_transport.get_jobs_by_run(created.run_id)
        assert (job.status, job.failures, job.worker_losses, job.interruptions) == (Status.PENDING, 0, 0, 1)
        run = await drive_run(kernel, created.run_id)
    assert run.status is Status.COMPLETED


async def test_a_suspended_batch_is_asked_until_it_is_done() -> None:
    asked: list[int] = []

    async def submit(ctx: StageContext[int]) -> int | Suspend:
        return Suspend({"batch": 1}, poll_interval="20ms")

    async def check(state: dict[str, int], ctx: StageContext[int]) -> Ready[int] | NotReady:
        asked.append(state["batch"])
        return Ready(7) if len(asked) == 3 else NotReady()

    waiting = define_stage("batch", submit, input=int, output=int, mode="async-batch", check_completion=check)
    async with opened(waiting, double) as kernel:
        created = await kernel.dispatch(CreateRun("w", 1))
        run = await drive_run(kernel, created.run_id, timeout="10s")
    assert (run.output, asked) == (14, [1, 1, 1])


async def test_a_sleeping_run_is_woken_when_it_is_time() -> None:
    bodies: list[str] = []

    @stage("nap")
    async def nap(ctx: StageContext[int]) -> int:
        bodies.append("body")
        await ctx.step.sleep("a moment", "100ms")
        return await ctx.step.run("count", lambda: ctx.input + 1)

    async with opened(nap, double) as kernel:
        created = await kernel.dispatch(CreateRun("w", 1))
        run = await drive_run(kernel, created.run_id, timeout="10s")
    assert (run.output, bodies) == (4, ["body", "body"])


async def test_a_run_without_any_job_left_is_stalled() -> None:
    async with opened(double) as kernel:
        created = await kernel.dispatch(CreateRun("w", 1))
        await kernel.dispatch(ClaimPendingRuns("elsewhere"))
        await kernel.ports.job_transport.delete_by_run_and_stages(created.run_id, ["double"])
        with pytest.raises(RunStalledError, match="no job of it is left"):
            await drive_run(kernel, created.run_id, timeout="10s")


async def test_a_run_that_nobody_here_serves_is_stalled() -> None:
    async with opened(double) as kernel:
        created = await kernel.dispatch(CreateRun("w", 1))
        async with open_kernel(
            flow(double, define_stage("more", _same, input=int, output=int)),
            kernel.ports.persistence,
            job_transport=kernel.ports.job_transport,
            blob_store=kernel.ports.blob_store,
        ) as newer:
            with pytest.raises(RunStalledError, match="doesn't serve version"):
                await drive_run(newer, created.run_id)


async def _same(ctx: StageContext[int]) -> int:
    return ctx.input


async def test_a_sink_that_never_answers_does_not_hold_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stagewright.hosting.drive._DELIVERY_PATIENCE", 0.05)

    class Stuck:
        async def emit(self, event: Event) -> None:
            await asyncio.Event().wait()

    async with opened(double, event_sink=Stuck()) as kernel:
        created = await kernel.dispatch(CreateRun("w", 1))
        run = await drive_run(kernel, created.run_id)
        assert run.status is Status.COMPLETED
        assert all(event.published_at is None for event in await kernel.runs.events(created.run_id))


async def test_a_run_that_does_not_exist_is_named() -> None:
    async with opened(double) as kernel:
        with pytest.raises(RunNotFoundError, match="'nothing'"):
            await drive_run(kernel, "nothing")


@pytest.mark.parametrize("concurrency", [0, -1, 1.5, "x", True])
async def test_concurrency_is_a_whole_number(concurrency: Any) -> None:
    async with opened(double) as kernel:
        with pytest.raises(InvalidSettingError, match="concurrency="):
            await drive_run(kernel, "any", concurrency=concurrency)


@pytest.mark.parametrize("timeout", [-1, "5 s", float("nan")])
async def test_a_timeout_is_a_duration(timeout: Any) -> None:
    async with opened(double) as kernel:
        with pytest.raises(InvalidDurationError, match="timeout="):
            await drive_run(kernel, "any", timeout=timeout)
