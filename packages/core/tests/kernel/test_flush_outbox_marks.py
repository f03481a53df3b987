"""When a flush writes down what the sink has accepted: runs together, but never late."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Workflow
from stagewright.commands import FlushOutbox
from stagewright.errors import TransientError
from stagewright.events import Event
from stagewright.testing import FakeClock

StartRun = Callable[..., Awaitable[str]]
MARK = "mark_outbox_events_published"


async def echo(ctx: StageContext[Any]) -> Any:
    return ctx.input


class SlowSink:
    """Takes a while for each event."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.takes = "0s"
        self.accepted: list[Event] = []
        self.hangs_on: str | None = None
        self.hung = asyncio.Event()

    async def emit(self, event: Event) -> None:
        self.clock.advance(self.takes)
        if event.run_id == self.hangs_on:
            self.hung.set()
            await asyncio.Event().wait()
        self.accepted.append(event)


@pytest.fixture
def slow(clock: FakeClock) -> SlowSink:
    return SlowSink(clock)


@pytest.fixture
def kernel(make_kernel: Callable[..., Kernel], flow_of: Callable[..., Workflow], slow: SlowSink) -> Kernel:
    return make_kernel(flow_of(echo), event_sink=slow)


async def test_what_many_runs_had_to_tell_is_marked_together(
    kernel: Kernel, slow: SlowSink, start_run: StartRun, moments: list[str]
) -> None:
    for _ in range(5):
        await start_run(kernel)
    assert (await kernel.dispatch(FlushOutbox())).published == len(slow.accepted) == 10
    assert moments.count(MARK) == 1


@pytest.mark.guarantee("events.accepted-is-soon-marked")
@pytest.mark.parametrize(("takes", "marks"), [("50ms", 3), ("100ms", 5), ("200ms", 10), ("3s", 10)])
async def test_what_a_slow_sink_accepted_is_marked_in_between(
    kernel: Kernel, slow: SlowSink, start_run: StartRun, moments: list[str], takes: str, marks: int
) -> None:
    for _ in range(5):
        await start_run(kernel)
    slow.takes = takes
    assert (await kernel.dispatch(FlushOutbox())).published == 10
    assert moments.count(MARK) == marks


@pytest.mark.guarantee("events.accepted-is-soon-marked")
async def test_a_flush_that_is_cut_off_marks_what_was_accepted(
    kernel: Kernel, slow: SlowSink, start_run: StartRun
) -> None:
    first, second, third = [await start_run(kernel) for _ in range(3)]
    slow.hangs_on = second
    flushing = asyncio.create_task(kernel.dispatch(FlushOutbox()))
    await slow.hung.wait()
    flushing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await flushing
    slow.hangs_on = None
    assert (await kernel.dispatch(FlushOutbox())).published == 4
    told = [(event.run_id, event.sequence) for event in slow.accepted]
    assert sorted(told) == sorted((run_id, number) for run_id in (first, second, third) for number in (1, 2))


async def test_what_could_not_be_marked_is_offered_again_at_once(
    kernel: Kernel, slow: SlowSink, start_run: StartRun, fail_at: Callable[..., None]
) -> None:
    for _ in range(3):
        await start_run(kernel)
    fail_at(MARK, error=TransientError("connection lost"))
    with pytest.raises(TransientError):
        await kernel.dispatch(FlushOutbox())
    assert (await kernel.dispatch(FlushOutbox())).published == 6
    assert len(slow.accepted) == 12
