"""A signal to a step wakes the hosts that wait, whichever process sends it."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Workflow, define_workflow
from stagewright.commands import CreateRun, SignalStep
from stagewright.hosting import wait_for_run
from stagewright_host_node import NodeHost

Opened = Callable[..., Awaitable[Kernel]]
Eventually = Callable[..., Awaitable[None]]


def flow() -> Workflow:
    async def body(ctx: StageContext[Any]) -> Any:
        return await ctx.step.wait_for_signal("go", timeout="1h")

    return define_workflow("w", input=Any).stage("s", body, input=Any, output=Any).build()


async def is_waiting(kernel: Kernel, run_id: str) -> bool:
    return any(stage.status == "SUSPENDED" for stage in await kernel.runs.stages(run_id))


@pytest.mark.parametrize("serves", [True, False])
@pytest.mark.guarantee("hosts.signals-wake-at-once")
async def test_a_signal_wakes_a_waiting_host_at_once(
    url: str, opened: Opened, eventually: Eventually, serves: bool
) -> None:
    kernel = await opened(url, flow())
    # Over memory:// the sender shares the host's kernel; elsewhere it is as another process.
    sender = kernel if url.startswith("memory") else await opened(url, *([flow()] if serves else []))
    async with NodeHost(kernel, orchestration_interval="60s", poll_interval="1s") as host:
        run_id = (await kernel.dispatch(CreateRun("w"))).run_id
        await eventually(lambda: is_waiting(kernel, run_id))
        await eventually(lambda: host.stats().notifications or url.startswith("sqlite"))
        await asyncio.sleep(0.3)
        sent_at = time.monotonic()
        assert (await sender.dispatch(SignalStep(run_id, "s", "go", payload="now"))).delivered
        run = await wait_for_run(kernel, run_id, timeout=20)
        assert run.output == "now"
        assert time.monotonic() - sent_at < 5


async def test_a_signal_before_the_run_is_claimed_is_not_slept_through(url: str, opened: Opened) -> None:
    kernel = await opened(url, flow())
    run_id = (await kernel.dispatch(CreateRun("w"))).run_id
    await kernel.dispatch(SignalStep(run_id, "s", "go", payload="early"))
    async with NodeHost(kernel):
        assert (await wait_for_run(kernel, run_id, timeout=20)).output == "early"
