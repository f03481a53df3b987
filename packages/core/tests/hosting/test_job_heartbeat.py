"""One job with its heartbeat, on the event loop."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Status, define_stage, define_workflow, open_kernel
from stagewright.commands import CancelRun, ClaimJobs, ClaimPendingRuns, CreateRun, HeartbeatJob
from stagewright.errors import TransientError
from stagewright.hosting import HOST_DEFAULTS, HostSettings, execute_job_with_heartbeat
from stagewright.kernel.command import Command
from stagewright.records import DequeuedJob

FAST = HOST_DEFAULTS.having({"job_heartbeat_interval": "20ms", "abort_grace": "50ms"})
Body = Callable[[StageContext[int]], Awaitable[int]]


class World:
    """A kernel with one stage, and the job of a run that was claimed."""

    def __init__(self, kernel: Kernel, job: DequeuedJob) -> None:
        self.kernel = kernel
        self.job = job

    def execute(self, options: HostSettings = FAST) -> "asyncio.Task[Any]":
        return asyncio.create_task(execute_job_with_heartbeat(self.kernel, self.job, options))

    async def stored(self) -> Any:
        [job] = await self.kernel.ports.job_transport.get_jobs_by_run(self.job.run_id)
        return job


async def world(body: Body, stack: Any, **options: Any) -> World:
    stage = define_stage("body", body, input=int, output=int)
    workflow = define_workflow("w", input=int).pipe(stage).build()
    kernel = await stack.enter_async_context(open_kernel(workflow, "memory://", **options))
    await kernel.dispatch(CreateRun("w", 1))
    await kernel.dispatch(ClaimPendingRuns("w"))
    [job] = (await kernel.dispatch(ClaimJobs("w"))).jobs
    return World(kernel, job)


async def test_the_lease_is_renewed_while_the_body_runs(stack: Any) -> None:
    go_on = asyncio.Event()

    async def body(ctx: StageContext[int]) -> int:
        await go_on.wait()
        return 5

    one = await world(body, stack)
    before = (await one.stored()).locked_at
    executing = one.execute()
    async with asyncio.timeout(5):
        while (await one.stored()).locked_at < before + timedelta(milliseconds=50):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    go_on.set()
    result = await executing
    assert (result.outcome, result.output) == ("completed", 5)
    assert (await one.stored()).status is Status.COMPLETED


async def test_a_beat_that_fails_is_no_end(stack: Any) -> None:
    beats: list[str] = []
    fourth = asyncio.Event()

    async def failing(command: Command[Any], call_next: Callable[[Command[Any]], Awaitable[Any]]) -> Any:
        if isinstance(command, HeartbeatJob):
            beats.append("beat")
            if len(beats) == 4:
                fourth.set()
            if len(beats) < 3:
                raise TransientError("away")
        return await call_next(command)

    async def body(ctx: StageContext[int]) -> int:
        async with asyncio.timeout(5):
            await fourth.wait()
        return 5

    one = await world(body, stack, middleware=[failing])
    assert (await one.execute()).outcome == "completed"


@pytest.mark.parametrize("listens", [True, False])
async def test_a_cancelled_body_is_told_and_then_cut_off(stack: Any, listens: bool) -> None:
    seen: list[str | None] = []

    async def body(ctx: StageContext[int]) -> int:
        await ctx.abort.wait()
        seen.append(ctx.abort.reason)
        if not listens:
            try:
                await asyncio.Event().wait()
            finally:
                seen.append("cut off")
        return 5

    one = await world(body, stack)
    executing = one.execute()
    await one.kernel.dispatch(CancelRun(one.job.run_id))
    result = await asyncio.wait_for(executing, 5)
    assert (result.ghost, result.ghost_reason) == (True, "orphan")
    assert seen == (["cancelled"] if listens else ["cancelled", "cut off"])
    assert (await one.stored()).status is Status.FAILED


async def test_a_body_that_lost_its_lease_is_told_and_its_outcome_dropped(stack: Any) -> None:
    async def body(ctx: StageContext[int]) -> int:
        await ctx.abort.wait()
        assert ctx.abort.reason == "lease-lost"
        return 5

    one = await world(body, stack)
    executing = one.execute()
    await one.kernel.ports.job_transport.defer(one.job.job_id, one.kernel.ports.clock.now(), "taken")
    result = await asyncio.wait_for(executing, 5)
    assert (result.ghost, result.ghost_reason) == (True, "race")
    stored = await one.stored()
    assert (stored.status, stored.failures, stored.interruptions) == (Status.PENDING, 0, 1)


async def test_a_caller_that_is_cancelled_hands_the_job_back(stack: Any) -> None:
    inside = asyncio.Event()

    async def body(ctx: StageContext[int]) -> int:
        inside.set()
        await asyncio.Event().wait()
        return 5

    one = await world(body, stack)
    executing = one.execute()
    await asyncio.wait_for(inside.wait(), 5)
    executing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await executing
    stored = await one.stored()
    assert (stored.status, stored.failures, stored.worker_losses, stored.interruptions) == (
        Status.PENDING,
        0,
        0,
        1,
    )


async def test_a_body_that_refuses_to_be_cancelled_is_left_alone(
    stack: Any, caplog: pytest.LogCaptureFixture
) -> None:
    released, ended = asyncio.Event(), asyncio.Event()

    async def body(ctx: StageContext[int]) -> int:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue
        ended.set()
        return 5

    one = await world(body, stack)
    executing = one.execute()
    await asyncio.sleep(0.01)
    await one.kernel.dispatch(CancelRun(one.job.run_id))
    result = await asyncio.wait_for(executing, 5)
    assert result.ghost
    assert any("left to itself" in line for line in caplog.messages)
    released.set()
    await asyncio.wait_for(ended.wait(), 5)
    run = await one.kernel.runs.get(one.job.run_id)
    assert run is not None
    assert run.status is Status.CANCELLED
