"""Bodies that nobody wants to go on are told, and cut off."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stagewright import (
    Kernel,
    Stage,
    StageContext,
    Status,
    Workflow,
    define_stage,
    define_workflow,
    stage,
)
from stagewright.commands import CancelRun, CreateRun
from stagewright.hosting import wait_for_run
from stagewright.ports import WorkNotifier
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


@pytest.mark.guarantee("hosts.cancellation-is-told")
@pytest.mark.parametrize("pushed", [True, False])
async def test_a_running_body_is_told_of_a_cancel(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, pushed: bool
) -> None:
    inside, told = asyncio.Event(), asyncio.Event()

    async def body(ctx: StageContext[int]) -> int:
        inside.set()
        await ctx.abort.wait()
        assert ctx.abort.reason == "cancelled"
        told.set()
        return 1

    kernel = await opened("memory://", flow(define_stage("body", body, input=int, output=int)))
    if not pushed:

        async def deaf(self: WorkNotifier, timeout: object) -> bool:
            await asyncio.sleep(3600)
            return False

        monkeypatch.setattr(type(kernel.ports.persistence), "wait_for_work", deaf)
        monkeypatch.setattr(type(kernel.ports.persistence), "is_listening", lambda self: False)
    interval = "60s" if pushed else "100ms"
    async with NodeHost(
        kernel, job_heartbeat_interval=interval, stale_lease_threshold="2m", poll_interval="10ms"
    ):
        run_id = await create(kernel)
        await asyncio.wait_for(inside.wait(), 5)
        assert (await kernel.dispatch(CancelRun(run_id))).cancelled
        await asyncio.wait_for(told.wait(), 5)
        assert (await wait_for_run(kernel, run_id, timeout=5)).status is Status.CANCELLED


@pytest.mark.guarantee("hosts.abort-grace")
async def test_a_body_that_ignores_the_cancel_is_cut_off_after_its_grace(
    opened: Opened, eventually: Eventually
) -> None:
    inside, cut = asyncio.Event(), asyncio.Event()

    async def body(ctx: StageContext[int]) -> int:
        inside.set()
        try:
            await asyncio.Event().wait()
        finally:
            cut.set()
        return 1

    kernel = await opened("memory://", flow(define_stage("body", body, input=int, output=int)))
    async with NodeHost(kernel, concurrency=1, abort_grace="50ms") as host:
        run_id = await create(kernel)
        await asyncio.wait_for(inside.wait(), 5)
        await kernel.dispatch(CancelRun(run_id))
        await asyncio.wait_for(cut.wait(), 5)
        await eventually(lambda: host.stats().discarded == 1)
        [job] = await kernel.ports.job_transport.get_jobs_by_run(run_id)
        assert job.status is Status.FAILED
        assert host.stats().executing == 0


@pytest.mark.parametrize("interval", ["50ms", "60s"], ids=["by a heartbeat", "by the end of the run"])
async def test_a_body_whose_lease_somebody_else_took_is_told(
    opened: Opened, eventually: Eventually, interval: str
) -> None:
    inside, reasons = asyncio.Event(), []

    async def body(ctx: StageContext[int]) -> int:
        if inside.is_set():
            return 7
        inside.set()
        await ctx.abort.wait()
        reasons.append(ctx.abort.reason)
        return -1

    kernel = await opened("memory://", flow(define_stage("body", body, input=int, output=int)))
    async with NodeHost(kernel, job_heartbeat_interval=interval, stale_lease_threshold="2m") as host:
        run_id = await create(kernel)
        await asyncio.wait_for(inside.wait(), 5)
        [job] = await kernel.ports.job_transport.get_jobs_by_run(run_id)
        await kernel.ports.job_transport.defer(job.id, kernel.ports.clock.now(), "taken away")
        await eventually(lambda: reasons == ["lease-lost"])
        run = await wait_for_run(kernel, run_id, timeout=20)
    assert (run.status, run.output) == (Status.COMPLETED, 7)
    assert host.stats().discarded == 1
