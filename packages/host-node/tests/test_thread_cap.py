"""Plain bodies that time out: their threads are counted, and what they return is refused."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stagewright import (
    BlockingStageContext,
    Kernel,
    RetryPolicy,
    Stage,
    StageContext,
    Status,
    Workflow,
    define_stage,
    define_workflow,
    stage,
)
from stagewright.commands import CreateRun
from stagewright.hosting import wait_for_run
from stagewright.runtime.local_executor import LocalExecutor
from stagewright_host_node import NodeHost

Opened = Callable[..., Awaitable[Kernel]]
Eventually = Callable[..., Awaitable[None]]


def flow(*stages: Stage[Any, Any, Any]) -> Workflow:
    builder = define_workflow("w", input=int)
    for one in stages:
        builder = builder.pipe(one)
    return builder.build()


@stage("double")
async def double(ctx: StageContext[int]) -> int:
    return ctx.input * 2


async def create(kernel: Kernel, number: int = 1) -> str:
    return (await kernel.dispatch(CreateRun("w", number))).run_id


@pytest.mark.guarantee("hosts.abandoned-threads-are-capped")
async def test_bodies_that_time_out_in_threads_do_not_pile_up(
    opened: Opened, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    release, late = threading.Event(), []

    def body(ctx: BlockingStageContext[int]) -> int:
        release.wait(30)
        late.append(ctx.run_id)
        return ctx.input

    stage = define_stage(
        "stuck", body, input=int, output=int, timeout="20ms", retry=RetryPolicy(max_attempts=1)
    )
    kernel = await opened("memory://", flow(stage), executor=LocalExecutor(abandoned_threads_cap=5))
    try:
        async with NodeHost(kernel, concurrency=2) as host:
            runs = [await create(kernel, number) for number in range(20)]
            await eventually(lambda: host.health().problems)
            assert "threads still run bodies" in host.health().problems[0]
            assert host.stats().abandoned_threads == 5
            await asyncio.sleep(0.1)
            assert host.stats().abandoned_threads == 5
            assert [line for line in caplog.messages if "no more work is claimed" in line]
            release.set()
            for run_id in runs:
                run = await wait_for_run(kernel, run_id, timeout=20)
                assert run.status in (Status.FAILED, Status.COMPLETED)
            await eventually(lambda: host.health().ready)
    finally:
        release.set()


@pytest.mark.guarantee("hosts.abandoned-threads-are-capped")
async def test_fifty_bodies_that_time_out_leave_no_more_threads_than_the_cap(
    opened: Opened, eventually: Eventually
) -> None:
    release, most = threading.Event(), 0

    def body(ctx: BlockingStageContext[int]) -> int:
        if ctx.attempt == 1:
            release.wait(30)
        return ctx.attempt

    # On a busy machine a body that returns at once may take longer than its time too.
    policy = RetryPolicy(max_attempts=20, delay=0)
    stage = define_stage("stuck", body, input=int, output=int, timeout="500ms", retry=policy)
    kernel = await opened("memory://", flow(stage), executor=LocalExecutor(abandoned_threads_cap=10))
    before = threading.active_count()
    try:
        async with NodeHost(kernel, concurrency=8) as host:
            runs = [await create(kernel, number) for number in range(50)]

            def is_hindered() -> bool:
                nonlocal most
                most = max(most, threading.active_count() - before)
                return bool(host.health().problems)

            await eventually(is_hindered)
            for _ in range(50):
                assert is_hindered()
                assert host.stats().abandoned_threads <= 10
                await asyncio.sleep(0.01)
            # Beside those that nobody waits for there are the host's own two and none that executes.
            assert most <= 10 + 3
            release.set()
            ended = [await wait_for_run(kernel, run_id, timeout=20) for run_id in runs]
            assert {run.status for run in ended} == {Status.COMPLETED}
            # What was begun before the release timed out, and nothing that it returned late counts.
            assert sum(run.output != 1 for run in ended) >= 10
        await eventually(lambda: threading.active_count() <= before + 1)
    finally:
        release.set()


async def test_plain_bodies_in_all_slots_are_no_obstacle(opened: Opened) -> None:
    together = threading.Barrier(6, timeout=10)

    def body(ctx: BlockingStageContext[int]) -> int:
        together.wait()
        return ctx.input

    stage = define_stage("busy", body, input=int, output=int)
    kernel = await opened("memory://", flow(stage), executor=LocalExecutor(abandoned_threads_cap=2))
    async with NodeHost(kernel, concurrency=6):
        runs = [await create(kernel, number) for number in range(6)]
        for run_id in runs:
            assert (await wait_for_run(kernel, run_id, timeout=10)).status is Status.COMPLETED


async def test_a_late_result_of_a_thread_that_timed_out_changes_nothing(
    opened: Opened, eventually: Eventually
) -> None:
    returned = threading.Event()

    def body(ctx: BlockingStageContext[int]) -> int:
        if ctx.attempt == 1:
            time.sleep(0.4)
            returned.set()
            return -1
        return ctx.attempt

    policy = RetryPolicy(max_attempts=2, delay=0)
    stage = define_stage("slow", body, input=int, output=int, timeout="100ms", retry=policy)
    kernel = await opened("memory://", flow(stage))
    async with NodeHost(kernel):
        run = await wait_for_run(kernel, await create(kernel), timeout=10)
        assert run.output == 2
        await eventually(returned.is_set)
        await asyncio.sleep(0.05)
        again = await kernel.runs.get(run.id)
        assert again == run
