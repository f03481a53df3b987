"""Ticks that are asked for in the middle of a tick."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from stagewright import BlockingStageContext, StageContext, define_workflow, stage
from stagewright.errors import HarnessBusyError
from stagewright.events import Event
from stagewright.testing import Harness


@stage("add")
async def add(ctx: StageContext[int]) -> int:
    return ctx.input + 1


other = define_workflow("other", input=int).pipe(add).build()


@pytest.mark.parametrize(
    "ask",
    [
        lambda harness, run_id: harness.tick(),
        lambda harness, run_id: harness.finish(run_id),
        lambda harness, run_id: harness.run("other", 1),
        lambda harness, run_id: harness.run("inside", 1),
        lambda harness, run_id: harness.tick_until(lambda: False),
    ],
    ids=["tick", "finish", "run", "run-itself", "tick_until"],
)
@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.guarantee("testing.a-tick-inside-a-tick-is-refused")
async def test_a_body_that_ticks_its_own_harness_is_refused(
    ask: Callable[[Harness, str], Awaitable[object]], plain: bool
) -> None:
    @stage("ask")
    async def body(ctx: StageContext[int]) -> None:
        await ask(harness, ctx.run_id)

    @stage("ask")
    def plain_body(ctx: BlockingStageContext[int]) -> None:
        async def go() -> None:
            await ask(harness, ctx.run_id)

        asyncio.run(go())

    inside = define_workflow("inside", input=int).pipe(plain_body if plain else body).build()
    harness = Harness([inside, other])
    result = await asyncio.wait_for(harness.run("inside", 1), 60)
    assert str(result.error).startswith(
        "HarnessBusyError: the harness is in the middle of a tick: what runs in it"
    )
    assert (await harness.run("other", 1)).output == 2


async def test_a_body_may_use_another_harness_and_signal_and_start_in_its_own() -> None:
    @stage("ask")
    async def body(ctx: StageContext[int]) -> int:
        await harness.signal(ctx.run_id, "ask", "go", 3)
        await harness.start("other", 1)
        inner = await Harness(other).run("other", ctx.input)
        return await ctx.step.wait_for_signal("go", timeout="1d", returns=int) + int(str(inner.output))

    harness = Harness([define_workflow("inside", input=int).pipe(body).build(), other])
    assert (await asyncio.wait_for(harness.run("inside", 1), 60)).output == 5


async def test_a_task_that_outlives_its_tick_may_tick_then() -> None:
    late: list[asyncio.Task[None]] = []
    over = asyncio.Event()

    async def tick_later() -> None:
        await over.wait()
        await harness.tick()

    @stage("leave")
    async def leave(ctx: StageContext[int]) -> None:
        late.append(asyncio.create_task(tick_later()))

    harness = Harness(define_workflow("w", input=int).pipe(leave).build())
    (await harness.run("w", 1)).assert_status("COMPLETED")
    over.set()
    await asyncio.wait_for(late[0], 60)


async def test_an_event_sink_that_ticks_is_refused() -> None:
    refused: list[HarnessBusyError] = []

    class Sink:
        async def emit(self, event: Event) -> None:
            try:
                await harness.tick()
            except HarnessBusyError as error:
                refused.append(error)

    harness = Harness(other, event_sink=Sink())
    await harness.start("other", 1)
    await asyncio.wait_for(harness.tick(), 60)
    assert refused


async def test_a_second_loop_is_refused_while_the_first_is_in_a_tick() -> None:
    began, goes_on = threading.Event(), asyncio.Event()

    @stage("hold")
    async def hold(ctx: StageContext[int]) -> None:
        began.set()
        await goes_on.wait()

    harness = Harness(define_workflow("w", input=int).pipe(hold).build())
    running = asyncio.create_task(harness.run("w", 1))
    assert await asyncio.to_thread(began.wait, 60)
    with pytest.raises(HarnessBusyError, match="another event loop"):
        await asyncio.to_thread(lambda: asyncio.run(harness.tick()))
    goes_on.set()
    (await running).assert_status("COMPLETED")


def test_a_loop_that_ended_in_the_middle_of_a_tick_is_no_hindrance() -> None:
    began = asyncio.Event()

    @stage("hang")
    async def hang(ctx: StageContext[int]) -> None:
        if not began.is_set():
            began.set()
            await asyncio.Event().wait()

    harness = Harness([define_workflow("w", input=int).pipe(hang).build(), other])

    async def leave_in_the_middle() -> None:
        running = asyncio.create_task(harness.run("w", 1))
        await began.wait()
        running.cancel()

    asyncio.run(leave_in_the_middle())
    asyncio.run(harness.run("other", 1)).assert_status("COMPLETED")
