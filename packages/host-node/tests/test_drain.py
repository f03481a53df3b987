"""Stopping: what may end ends, the rest is handed back at once, and nobody waits longer than was said."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from stagewright import (
    BlockingStageContext,
    Kernel,
    Stage,
    StageContext,
    Status,
    define_stage,
    define_workflow,
)
from stagewright.commands import ClaimJobs, ClaimPendingRuns, CreateRun
from stagewright.hosting import wait_for_run
from stagewright.kernel.command import Command
from stagewright.testing import CollectingEventSink
from stagewright_host_node import NodeHost

Opened = Callable[..., Awaitable[Kernel]]
Eventually = Callable[..., Awaitable[None]]


async def one_stage(opened: Opened, url: str, stage: Stage[Any, Any, Any], **options: Any) -> Kernel:
    return await opened(url, define_workflow("w", input=int).pipe(stage).build(), **options)


async def create(kernel: Kernel) -> str:
    return (await kernel.dispatch(CreateRun("w", 1))).run_id


@pytest.mark.guarantee("hosts.stop-finishes-what-runs")
async def test_what_runs_ends_and_what_waits_stays_claimable(url: str, opened: Opened) -> None:
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def body(ctx: StageContext[int]) -> int:
        inside.set()
        await go_on.wait()
        return 5

    sink = CollectingEventSink()
    kernel = await one_stage(opened, url, define_stage("body", body, input=int, output=int), event_sink=sink)
    host = NodeHost(kernel, concurrency=1, shutdown_timeout="10s")
    await host.start()
    first = await create(kernel)
    await asyncio.wait_for(inside.wait(), 10)
    second = await create(kernel)
    stopping = asyncio.create_task(host.stop())
    await asyncio.sleep(0.05)
    assert host.stats().is_draining
    assert not host.health().ready
    third = await create(kernel)
    go_on.set()
    await asyncio.wait_for(stopping, 5)
    statuses = [await kernel.ports.persistence.get_run_status(run_id) for run_id in (first, third)]
    assert statuses == [Status.COMPLETED, Status.PENDING]
    for job in await kernel.ports.job_transport.get_jobs_by_run(second):
        assert (job.status, job.deliveries) == (Status.PENDING, 0)
    assert "workflow:completed" in [event.type for event in sink.events if event.run_id == first]


@pytest.mark.guarantee("hosts.handed-back-at-once")
async def test_what_does_not_end_in_time_is_handed_back_at_once_and_spends_nothing(
    url: str, opened: Opened
) -> None:
    inside, bodies = asyncio.Event(), []

    async def body(ctx: StageContext[int]) -> int:
        bodies.append(ctx.attempt)
        if len(bodies) == 1:
            inside.set()
            await asyncio.Event().wait()
        return 5

    kernel = await one_stage(opened, url, define_stage("body", body, input=int, output=int))
    host = NodeHost(kernel, shutdown_timeout="100ms")
    await host.start()
    run_id = await create(kernel)
    await asyncio.wait_for(inside.wait(), 10)
    began = time.monotonic()
    await host.stop()
    assert time.monotonic() - began < 1.1
    [job] = await kernel.ports.job_transport.get_jobs_by_run(run_id)
    assert (job.status, job.failures, job.worker_losses, job.interruptions) == (Status.PENDING, 0, 0, 1)
    async with NodeHost(kernel):
        run = await wait_for_run(kernel, run_id, timeout=10)
    assert (run.status, run.output) == (Status.COMPLETED, 5)


async def test_a_body_in_a_thread_is_told_and_its_job_handed_back(opened: Opened) -> None:
    inside, told = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def body(ctx: BlockingStageContext[int]) -> int:
        loop.call_soon_threadsafe(inside.set)
        while not ctx.abort.is_set:
            time.sleep(0.005)
        assert ctx.abort.reason == "shutdown"
        loop.call_soon_threadsafe(told.set)
        return 1

    kernel = await one_stage(opened, "memory://", define_stage("body", body, input=int, output=int))
    host = NodeHost(kernel, shutdown_timeout=0)
    await host.start()
    run_id = await create(kernel)
    await asyncio.wait_for(inside.wait(), 10)
    await host.stop()
    await asyncio.wait_for(told.wait(), 5)
    [job] = await kernel.ports.job_transport.get_jobs_by_run(run_id)
    assert (job.status, job.interruptions) == (Status.PENDING, 1)


async def test_an_idle_host_stops_at_once(opened: Opened, eventually: Eventually) -> None:
    async def body(ctx: StageContext[int]) -> int:
        return 1

    kernel = await one_stage(opened, "memory://", define_stage("body", body, input=int, output=int))
    host = NodeHost(kernel, shutdown_timeout="60s", poll_interval="60s", orchestration_interval="60s")
    await host.start()
    await asyncio.sleep(0.05)
    began = time.monotonic()
    await host.stop()
    assert time.monotonic() - began < 1


async def test_every_caller_of_stop_waits_for_the_same_end(opened: Opened) -> None:
    inside = asyncio.Event()

    async def body(ctx: StageContext[int]) -> int:
        inside.set()
        await asyncio.sleep(0.3)
        return 1

    kernel = await one_stage(opened, "memory://", define_stage("body", body, input=int, output=int))
    host = NodeHost(kernel)
    await host.start()
    run_id = await create(kernel)
    await asyncio.wait_for(inside.wait(), 10)

    async def stop() -> Status | None:
        await host.stop()
        return await kernel.ports.persistence.get_run_status(run_id)

    assert set(await asyncio.gather(stop(), stop(), stop())) == {Status.COMPLETED}


async def test_a_caller_who_gives_up_waiting_does_not_end_the_drain(opened: Opened) -> None:
    inside = asyncio.Event()

    async def body(ctx: StageContext[int]) -> int:
        inside.set()
        await asyncio.sleep(0.2)
        return 1

    kernel = await one_stage(opened, "memory://", define_stage("body", body, input=int, output=int))
    host = NodeHost(kernel)
    await host.start()
    run_id = await create(kernel)
    await asyncio.wait_for(inside.wait(), 10)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(host.stop(), 0.01)
    await host.stop()
    assert await kernel.ports.persistence.get_run_status(run_id) is Status.COMPLETED


@pytest.mark.parametrize("hands_over", [True, False])
async def test_a_job_that_is_claimed_while_the_host_stops_is_handed_back(
    opened: Opened, eventually: Eventually, hands_over: bool
) -> None:
    claimed, answer = asyncio.Event(), asyncio.Event()
    bodies: list[int] = []

    async def body(ctx: StageContext[int]) -> int:
        bodies.append(1)
        return 1

    async def slow_claim(command: Command[Any], call_next: Callable[[Command[Any]], Awaitable[Any]]) -> Any:
        if isinstance(command, ClaimPendingRuns) and not hands_over:
            command = replace(command, max_jobs=0)
        result = await call_next(command)
        if isinstance(command, ClaimJobs | ClaimPendingRuns) and result.jobs:
            claimed.set()
            await answer.wait()
        return result

    stage = define_stage("body", body, input=int, output=int)
    kernel = await one_stage(opened, "memory://", stage, middleware=[slow_claim])
    host = NodeHost(kernel)
    await host.start()
    run_id = await create(kernel)
    await asyncio.wait_for(claimed.wait(), 10)
    stopping = asyncio.create_task(host.stop())
    await asyncio.sleep(0.05)
    answer.set()
    await asyncio.wait_for(stopping, 5)
    assert bodies == []
    [job] = await kernel.ports.job_transport.get_jobs_by_run(run_id)
    assert (job.status, job.failures, job.worker_losses) == (Status.PENDING, 0, 0)


@pytest.mark.guarantee("hosts.handed-back-at-once")
@pytest.mark.parametrize("url", ["memory", "postgres"], indirect=True)
async def test_others_hear_at_once_of_a_job_that_was_claimed_too_late(url: str, opened: Opened) -> None:
    claimed, answer = asyncio.Event(), asyncio.Event()

    async def body(ctx: StageContext[int]) -> int:
        return 7

    async def slow_claim(command: Command[Any], call_next: Callable[[Command[Any]], Awaitable[Any]]) -> Any:
        result = await call_next(command)
        took = isinstance(command, ClaimJobs | ClaimPendingRuns) and result.jobs
        if took and not claimed.is_set():
            claimed.set()
            await answer.wait()
        return result

    stage = define_stage("body", body, input=int, output=int)
    kernel = await one_stage(opened, url, stage, middleware=[slow_claim])
    leaving = NodeHost(kernel)
    await leaving.start()
    run_id = await create(kernel)
    await asyncio.wait_for(claimed.wait(), 10)
    other = kernel if url.startswith("memory") else await one_stage(opened, url, stage)
    async with NodeHost(other, orchestration_interval="60s", poll_interval="60s") as staying:
        while not staying.stats().notifications:
            await asyncio.sleep(0.01)
        stopping = asyncio.create_task(leaving.stop())
        await asyncio.sleep(0.5)
        answer.set()
        await asyncio.wait_for(stopping, 5)
        run = await wait_for_run(other, run_id, timeout=3)
    assert run.output == 7
    [job] = await kernel.ports.job_transport.get_jobs_by_run(run_id)
    assert (job.failures, job.worker_losses, job.interruptions, job.deliveries) == (0, 0, 1, 2)
