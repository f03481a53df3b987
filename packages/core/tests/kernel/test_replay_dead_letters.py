"""`plugin.replayDLQ`: what was given up is offered again when an operator asks for it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Workflow
from stagewright.commands import CreateRun, FlushOutbox, FlushOutboxResult, ReplayDeadLetters
from stagewright.errors import InvalidCommandError
from stagewright.events import Event, WorkflowCreated
from stagewright.plugins import PluginRunner, event_plugin
from stagewright.testing import CollectingEventSink, FakeClock

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
StartRun = Callable[..., Awaitable[str]]


async def echo(ctx: StageContext[Any]) -> Any:
    return ctx.input


@pytest.fixture
def kernel(make_kernel: MakeKernel, flow_of: FlowOf) -> Kernel:
    return make_kernel(flow_of(echo))


async def flush(kernel: Kernel) -> FlushOutboxResult:
    return await kernel.dispatch(FlushOutbox())


async def replay(kernel: Kernel, max_events: int = 100) -> int:
    return (await kernel.dispatch(ReplayDeadLetters(max_events))).replayed


@pytest.fixture
def give_up(sink: CollectingEventSink, clock: FakeClock) -> Callable[[Kernel], Awaitable[None]]:
    """`await give_up(kernel)`: the sink refuses what there is to deliver until all of it is a dead letter."""

    async def refuse(kernel: Kernel) -> None:
        sink.fail_with(ConnectionError("down"))
        while True:
            result = await flush(kernel)
            if not result.failed and not result.dead_lettered:
                break
            clock.advance("10m")
        sink.accept()
        sink.clear()

    return refuse


GiveUp = Callable[[Kernel], Awaitable[None]]


@pytest.mark.guarantee("events.dead-letters-can-be-replayed")
async def test_dead_letters_are_delivered_by_the_next_flush_with_a_new_budget(
    kernel: Kernel, sink: CollectingEventSink, start_run: StartRun, give_up: GiveUp, clock: FakeClock
) -> None:
    run_id = await start_run(kernel)
    await give_up(kernel)
    assert [event.dead_lettered_at is None for event in await kernel.runs.events(run_id)] == [False, False]
    assert await replay(kernel) == 2
    sink.fail_with(ConnectionError("still down"), times=1)
    assert (await flush(kernel)).failed == 2
    head, behind = await kernel.runs.events(run_id)
    assert (head.retry_count, head.last_error) == (1, "ConnectionError: still down")
    assert (behind.retry_count, behind.last_error) == (0, "ConnectionError: down")
    clock.advance("1s")
    assert (await flush(kernel)).published == 2
    assert [(event.type, event.sequence) for event in sink.events] == [
        ("workflow:created", 1),
        ("workflow:started", 2),
    ]
    assert await replay(kernel) == 0


async def test_nothing_is_replayed_where_nothing_was_given_up(kernel: Kernel, start_run: StartRun) -> None:
    await start_run(kernel)
    assert await replay(kernel) == 0
    assert (await flush(kernel)).published == 2
    assert await replay(kernel) == 0


async def test_at_most_so_many_are_replayed_those_given_up_first_first(
    kernel: Kernel, sink: CollectingEventSink, give_up: GiveUp
) -> None:
    runs = []
    for _ in range(3):
        runs.append((await kernel.dispatch(CreateRun("flow"))).run_id)
        await give_up(kernel)
    assert await replay(kernel, 2) == 2
    await flush(kernel)
    assert [event.run_id for event in sink.events] == runs[:2]
    replayed = await kernel.dispatch({"type": "plugin.replayDLQ"})
    assert getattr(replayed, "replayed", None) == 1


async def test_a_replayed_event_comes_after_later_ones_and_says_where_it_belongs(
    kernel: Kernel, sink: CollectingEventSink, start_run: StartRun, clock: FakeClock
) -> None:
    run_id = await start_run(kernel)
    sink.fail_with(ConnectionError("down"), times=3)
    for _ in range(4):
        await flush(kernel)
        clock.advance("10m")
    assert [event.sequence for event in sink.events] == [2]
    assert await replay(kernel) == 1
    await flush(kernel)
    assert [event.sequence for event in sink.events] == [2, 1]
    assert [event.published_at is not None for event in await kernel.runs.events(run_id)] == [True, True]


async def test_who_had_a_dead_letter_already_is_not_given_it_again(
    make_kernel: MakeKernel, flow_of: FlowOf, clock: FakeClock
) -> None:
    counted: dict[str, int] = {"first": 0, "second": 0}
    is_down = True

    @event_plugin("first", on=[WorkflowCreated])
    async def first(event: Event) -> None:
        counted["first"] += 1

    @event_plugin("second", on=[WorkflowCreated])
    async def second(event: Event) -> None:
        if is_down:
            raise ConnectionError("down")
        counted["second"] += 1

    kernel = make_kernel(flow_of(echo), event_sink=PluginRunner([first, second], max_retries=2))
    await kernel.dispatch(CreateRun("flow"))
    for _ in range(2):
        await flush(kernel)
        clock.advance("1m")
    is_down = False
    assert await replay(kernel) == 1
    assert (await flush(kernel)).published == 1
    assert counted == {"first": 1, "second": 1}


async def test_replays_and_flushes_side_by_side_deliver_each_event_once(
    kernel: Kernel, sink: CollectingEventSink, start_run: StartRun, give_up: GiveUp
) -> None:
    runs = [await start_run(kernel, number) for number in range(10)]
    await give_up(kernel)
    replays = [replay(kernel, 3) for _ in range(8)]
    flushes = [flush(kernel) for _ in range(8)]
    answers = await asyncio.gather(*replays, *flushes)
    assert sum(answer for answer in answers if isinstance(answer, int)) <= 20
    await replay(kernel)
    await flush(kernel)
    for run_id in runs:
        assert sorted(event.sequence or 0 for event in sink.events if event.run_id == run_id) == [1, 2]


async def test_a_number_that_makes_no_sense_is_refused(kernel: Kernel) -> None:
    with pytest.raises(InvalidCommandError, match=r"\$\.max_events"):
        await replay(kernel, 0)


@pytest.mark.guarantee("events.dead-letters-can-be-replayed")
async def test_replays_at_the_same_time_share_what_there_is(
    kernel: Kernel, start_run: StartRun, give_up: GiveUp
) -> None:
    for _ in range(3):
        await start_run(kernel)
    await give_up(kernel)
    total = await replay(kernel)
    await give_up(kernel)
    assert total == 6
    answers = await asyncio.gather(*(replay(kernel, 2) for _ in range(6)))
    assert sorted(answers) == [0, 0, 0, 2, 2, 2]
    assert await replay(kernel) == 0
