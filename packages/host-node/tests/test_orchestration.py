"""What is due is done on time, and what a lost worker left is taken up."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stagewright import (
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
from stagewright.commands import CancelRun, ClaimJobs, ClaimPendingRuns, CreateRun
from stagewright.hosting import wait_for_run
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


@pytest.mark.guarantee("hosts.retries-are-on-time")
async def test_a_retry_is_made_when_it_is_due(url: str, opened: Opened, eventually: Eventually) -> None:
    moments: list[float] = []

    async def body(ctx: StageContext[int]) -> int:
        moments.append(time.monotonic())
        if ctx.attempt < 3:
            raise ValueError("not yet")
        return ctx.attempt

    policy = RetryPolicy(max_attempts=3, delay="300ms", factor=1, jitter=False)
    kernel = await opened(url, flow(define_stage("body", body, input=int, output=int, retry=policy)))
    async with NodeHost(kernel, poll_interval="60s", orchestration_interval="60s") as host:
        await eventually(lambda: host.stats().notifications)
        run = await wait_for_run(kernel, await create(kernel), timeout=15)
    assert run.output == 3
    assert host.stats().retried == 2
    for earlier, later in itertools.pairwise(moments):
        assert 0.29 <= later - earlier < 30


@pytest.mark.guarantee("hosts.sleeps-are-on-time")
async def test_a_sleep_ends_within_a_second_of_its_time(
    url: str, opened: Opened, eventually: Eventually
) -> None:
    moments: list[float] = []

    async def nap(ctx: StageContext[int]) -> int:
        await ctx.step.sleep("a while", "700ms")
        moments.append(time.monotonic())
        return ctx.input

    kernel = await opened(url, flow(define_stage("nap", nap, input=int, output=int)))
    async with NodeHost(kernel, poll_interval="60s", orchestration_interval="60s") as host:
        await eventually(lambda: host.stats().notifications)
        began = time.monotonic()
        runs = [await create(kernel, number) for number in range(15)]
        for run_id in runs:
            assert (await wait_for_run(kernel, run_id, timeout=20)).status is Status.COMPLETED
    assert len(moments) == 15
    assert min(moments) - began >= 0.69
    # Far less than the intervals, however slow the machine is.
    assert max(moments) - began < 30
    # On a slow machine a nap may be over before it could suspend its stage.
    assert 1 <= host.stats().suspended <= 15


async def test_a_sleeper_of_a_worker_that_is_gone_is_woken_by_another(opened: Opened) -> None:
    async def nap(ctx: StageContext[int]) -> int:
        await ctx.step.sleep("a while", "300ms")
        return ctx.input

    kernel = await opened("memory://", flow(define_stage("nap", nap, input=int, output=int)))
    host = NodeHost(kernel)
    async with host:
        run_id = await create(kernel)
        async with asyncio.timeout(5):
            while not host.stats().suspended:
                await asyncio.sleep(0.005)
    async with NodeHost(kernel, orchestration_interval="60s"):
        assert (await wait_for_run(kernel, run_id, timeout=5)).status is Status.COMPLETED


@pytest.mark.guarantee("hosts.lost-workers-are-replaced")
async def test_what_a_lost_worker_had_begun_is_begun_anew(url: str, opened: Opened) -> None:
    kernel = await opened(url, flow(double))
    run_id = await create(kernel)
    await kernel.dispatch(ClaimPendingRuns("lost"))
    assert len((await kernel.dispatch(ClaimJobs("lost"))).jobs) == 1
    async with NodeHost(
        kernel,
        stale_lease_threshold="500ms",
        job_heartbeat_interval="100ms",
        orchestration_interval="100ms",
    ):
        run = await wait_for_run(kernel, run_id, timeout=20)
    assert (run.status, run.output) == (Status.COMPLETED, 2)
    [stored] = await kernel.ports.job_transport.get_jobs_by_run(run_id)
    assert (stored.worker_losses, stored.failures, stored.deliveries) == (1, 0, 2)


@pytest.mark.guarantee("hosts.jobs-of-ended-runs-are-settled")
async def test_the_job_that_a_lost_worker_had_of_a_cancelled_run_is_settled(
    url: str, opened: Opened, eventually: Eventually
) -> None:
    kernel = await opened(url, flow(double))
    run_id = await create(kernel)
    await kernel.dispatch(ClaimPendingRuns("gone"))
    assert len((await kernel.dispatch(ClaimJobs("gone"))).jobs) == 1
    assert (await kernel.dispatch(CancelRun(run_id))).cancelled

    async def is_settled() -> bool:
        [job] = await kernel.ports.job_transport.get_jobs_by_run(run_id)
        return job.status not in (Status.PENDING, Status.RUNNING)

    async with NodeHost(
        kernel,
        orchestration_interval="50ms",
        stale_lease_threshold="200ms",
        job_heartbeat_interval="50ms",
    ):
        await eventually(is_settled)
    assert await kernel.ports.persistence.get_run_status(run_id) is Status.CANCELLED


@pytest.mark.guarantee("hosts.retention-is-off-unless-given")
async def test_runs_are_deleted_when_their_retention_is_over(
    url: str, opened: Opened, eventually: Eventually
) -> None:
    kernel = await opened(url, flow(double))
    async with NodeHost(kernel, orchestration_interval="50ms"):
        kept = await create(kernel)
        await wait_for_run(kernel, kept, timeout=15)
        await asyncio.sleep(0.2)
        assert await kernel.runs.get(kept) is not None

    async def is_gone() -> bool:
        return await kernel.runs.get(kept) is None

    retention = {"older_than": 0, "statuses": [Status.COMPLETED]}
    async with NodeHost(kernel, orchestration_interval="50ms", retention=retention) as host:
        assert host.settings.retention is not None
        await eventually(is_gone)
    other = NodeHost.with_settings(kernel, host.settings)
    assert other.settings.retention == host.settings.retention
