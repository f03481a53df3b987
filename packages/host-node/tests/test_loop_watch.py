"""Blocked event loops: the lease holds, and who blocks is named."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from stagewright import BlockingStageContext, Kernel, StageContext, define_stage, define_workflow
from stagewright.commands import CreateRun
from stagewright.hosting import wait_for_run
from stagewright_host_node import NodeHost
from stagewright_host_node.loop_watch import LoopWatch

Opened = Callable[..., Awaitable[Kernel]]
Eventually = Callable[..., Awaitable[None]]


def spin(seconds: float, *, until: Callable[[], bool] = lambda: False) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not until():
        sum(range(1_000))


@pytest.mark.guarantee("hosts.blockers-are-named")
@pytest.mark.parametrize("in_a_task_of_its_own", [False, True])
async def test_a_body_that_blocks_the_loop_is_named_with_its_line(
    opened: Opened, eventually: Eventually, caplog: pytest.LogCaptureFixture, in_a_task_of_its_own: bool
) -> None:
    async def blocks() -> None:
        spin(20, until=lambda: any("so far" in line for line in caplog.messages))

    async def body(ctx: StageContext[int]) -> int:
        if in_a_task_of_its_own:
            await asyncio.create_task(blocks())
        else:
            await blocks()
        return 1

    stage = define_stage("crunch", body, input=int, output=int)
    kernel = await opened("memory://", define_workflow("w", input=int).pipe(stage).build())
    async with NodeHost(kernel) as host:
        run = await wait_for_run(kernel, (await kernel.dispatch(CreateRun("w", 1))).run_id, timeout=40)
        await eventually(lambda: host.stats().longest_block.total_seconds() > 1)
        assert host.stats().longest_block.total_seconds() < 20
    [so_far] = [line for line in caplog.messages if "so far" in line]
    [after] = [
        line for line in caplog.messages if "blocked the event loop for" in line and "so far" not in line
    ]
    for line in (so_far, after):
        assert f"stage 'crunch' of run {run.id}" in line
        assert "test_loop_watch.py" in line
        assert "in spin" in line or "blocks" in line


async def test_code_outside_of_stages_is_named_as_such(
    eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    watch = LoopWatch(patience=0.2)
    watch.start()
    await asyncio.sleep(0.2)
    spin(0.8)
    await eventually(lambda: watch.longest_block > 0.2)
    watch.stop()
    assert any("code outside of any stage" in line for line in caplog.messages)


async def test_a_plain_body_blocks_nothing(opened: Opened, caplog: pytest.LogCaptureFixture) -> None:
    def body(ctx: BlockingStageContext[int]) -> int:
        time.sleep(1.5)
        return 1

    stage = define_stage("sleepy", body, input=int, output=int)
    kernel = await opened("memory://", define_workflow("w", input=int).pipe(stage).build())
    gaps: list[float] = []

    async def tick() -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            gaps.append(time.monotonic() - before)

    ticking = asyncio.create_task(tick())
    async with NodeHost(kernel):
        await wait_for_run(kernel, (await kernel.dispatch(CreateRun("w", 1))).run_id, timeout=20)
    ticking.cancel()
    assert max(gaps) < 1
    assert not [line for line in caplog.messages if "blocked" in line]


@pytest.mark.guarantee("hosts.blockers-are-named")
async def test_who_comes_after_a_block_is_not_taken_for_who_blocked(
    eventually: Eventually, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, looks = LoopWatch(patience=0.2), 0

    def who() -> str:
        nonlocal looks
        looks += 1
        if looks == 1:
            return "the blocker"
        # This look is so slow that the loop goes on meanwhile.
        until = time.monotonic() + 5
        while watch.blocked_for and time.monotonic() < until:
            time.sleep(0.001)
        return "a bystander"

    monkeypatch.setattr(watch, "_who", who)
    watch.start()
    await asyncio.sleep(0.2)
    spin(0.8)
    await eventually(lambda: watch.longest_block > 0.2)
    watch.stop()
    assert looks >= 2
    assert [line for line in caplog.messages if "the blocker blocked the event loop" in line]
    assert not [line for line in caplog.messages if "bystander" in line]
