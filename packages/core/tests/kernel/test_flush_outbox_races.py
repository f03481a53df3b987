"""Several flushers, slow ones and lost ones: each run's events in order, and none is ever skipped."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Workflow
from stagewright.commands import CancelRun, CreateRun, FlushOutbox, FlushOutboxResult
from stagewright.errors import TransientError
from stagewright.events import Event
from stagewright.memory import InMemoryPersistence
from stagewright.records import RunRecord
from stagewright.testing import CollectingEventSink, FakeClock

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
StartRun = Callable[..., Awaitable[str]]
Finish = Callable[[Kernel, str], Awaitable[RunRecord]]


async def echo(ctx: StageContext[Any]) -> Any:
    ctx.progress(50)
    return ctx.input


@pytest.fixture
def kernel(make_kernel: MakeKernel, flow_of: FlowOf) -> Kernel:
    return make_kernel(flow_of(echo))


async def flush(kernel: Kernel, max_events: int = 100) -> FlushOutboxResult:
    return await kernel.dispatch(FlushOutbox(max_events))


class SlowSink:
    """Holds each emit of the first flusher until it is let go."""

    def __init__(self) -> None:
        self.inside, self.go = asyncio.Event(), asyncio.Event()
        self.events: list[Event] = []

    async def emit(self, event: Event) -> None:
        if not self.inside.is_set():
            self.inside.set()
            await self.go.wait()
        self.events.append(event)


@pytest.mark.guarantee("events.two-flushers-deliver-once")
async def test_concurrent_flushers_deliver_each_event_once(
    kernel: Kernel, sink: CollectingEventSink, start_run: StartRun, finish: Finish
) -> None:
    runs = [await start_run(kernel, n) for n in range(12)]
    await asyncio.gather(*(finish(kernel, run_id) for run_id in runs))
    for _ in range(30):
        results = await asyncio.gather(*(flush(kernel, 5) for _ in range(4)))
        if not any(result.published for result in results):
            break
    assert set(Counter(event.event_id for event in sink.events).values()) == {1}
    for run_id in runs:
        sequences = [event.sequence for event in sink.events if event.run_id == run_id]
        assert sequences == [record.sequence for record in await kernel.runs.events(run_id)]


@pytest.mark.guarantee("events.at-least-once")
async def test_a_flusher_that_is_too_slow_loses_its_claim_and_nothing_is_lost(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, clock: FakeClock
) -> None:
    sink = SlowSink()
    kernel = make_kernel(flow_of(echo), event_sink=sink)
    run_id = await start_run(kernel)
    slow = asyncio.create_task(flush(kernel))
    await sink.inside.wait()
    clock.advance("59s")
    assert (await flush(kernel)).published == 0, "the claim still holds"
    clock.advance("1s")
    assert (await flush(kernel)).published == 2
    sink.go.set()
    assert (await slow).published == 0
    assert [event.sequence for event in sink.events] == [1, 2, 1]
    assert {record.published_at is not None for record in await kernel.runs.events(run_id)} == {True}


async def test_a_slow_flusher_that_is_still_in_time_keeps_its_claim(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, clock: FakeClock
) -> None:
    sink = SlowSink()
    kernel = make_kernel(flow_of(echo), event_sink=sink)
    for _ in range(3):
        await start_run(kernel)
    slow = asyncio.create_task(flush(kernel))
    await sink.inside.wait()
    clock.advance("59s")
    sink.go.set()
    assert (await slow).published == 6
    assert len(sink.events) == 6


@pytest.mark.parametrize("nth", [1, 2, 3])
async def test_a_cancelled_flusher_gives_its_claims_back_at_once(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, nth: int
) -> None:
    inside = asyncio.Event()
    events: list[Event] = []

    class Hanging:
        async def emit(self, event: Event) -> None:
            if len(events) == nth - 1 and not inside.is_set():
                inside.set()
                await asyncio.Event().wait()
            events.append(event)

    kernel = make_kernel(flow_of(echo), event_sink=Hanging())
    runs = [await start_run(kernel) for _ in range(2)]
    flushing = asyncio.create_task(flush(kernel))
    await inside.wait()
    flushing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await flushing
    assert (await flush(kernel)).published == 4 - (nth - 1)
    for run_id in runs:
        assert [event.sequence for event in events if event.run_id == run_id] == [1, 2]


@pytest.mark.guarantee("events.at-least-once")
@pytest.mark.parametrize("answers", ["in time", "never", "with an error"])
async def test_a_flusher_that_is_cancelled_while_it_claims_keeps_nothing(
    kernel: Kernel, sink: CollectingEventSink, monkeypatch: pytest.MonkeyPatch, clock: FakeClock, answers: str
) -> None:
    await kernel.dispatch(CreateRun("flow"))
    claim = kernel.ports.persistence.claim_unpublished_outbox_events
    committed, told = asyncio.Event(), asyncio.Event()

    async def slow_claim(*args: Any, **options: Any) -> Any:
        events = await claim(*args, **options)
        committed.set()
        await told.wait()
        if answers == "with an error":
            raise TransientError("connection lost")
        return events

    with monkeypatch.context() as patched:
        patched.setattr(kernel.ports.persistence, "claim_unpublished_outbox_events", slow_claim)
        flushing = asyncio.create_task(flush(kernel))
        await committed.wait()
        flushing.cancel()
        if answers != "never":
            told.set()
        with pytest.raises(asyncio.CancelledError):
            await flushing
    if answers != "in time":
        assert (await flush(kernel)).published == 0, "nobody could know whether it was claimed"
        clock.advance("60s")
    assert (await flush(kernel)).published == 1
    assert [event.sequence for event in sink.events] == [1]


@pytest.mark.parametrize("moment", ["mark_outbox_events_published", "record_outbox_failure"])
async def test_a_flusher_that_dies_after_the_sink_accepted_delivers_again(
    kernel: Kernel, sink: CollectingEventSink, clock: FakeClock, fail_at: Callable[..., None], moment: str
) -> None:
    await kernel.dispatch(CreateRun("flow"))
    if moment == "record_outbox_failure":
        sink.fail_with(RuntimeError("no"))
    fail_at(moment, error=TransientError("connection lost"))
    fail_at("release_outbox_events", error=TransientError("connection lost"))
    with pytest.raises(TransientError):
        await flush(kernel)
    sink.accept()
    assert (await flush(kernel)).published == 0, "claimed by the one that died"
    clock.advance("60s")
    assert (await flush(kernel)).published == 1
    assert [event.sequence for event in [*sink.refused, *sink.events]] == [1, 1]


@pytest.mark.guarantee("events.slow-transactions-skip-nothing")
@pytest.mark.parametrize("rolls_back", [False, True])
async def test_an_event_whose_transaction_was_slow_is_not_skipped(
    kernel: Kernel,
    sink: CollectingEventSink,
    hold_at: Callable[..., tuple[asyncio.Event, asyncio.Event]],
    fail_at: Callable[..., None],
    rolls_back: bool,
) -> None:
    first = (await kernel.dispatch(CreateRun("flow"))).run_id
    await flush(kernel)
    reached, go = hold_at("commit")
    slow = asyncio.create_task(kernel.dispatch(CreateRun("flow")))
    await reached.wait()
    quick = (await kernel.dispatch(CreateRun("flow"))).run_id
    assert (await flush(kernel)).published == 1
    if rolls_back:
        slow.cancel()
    go.set()
    await asyncio.wait([slow])
    later = (await kernel.dispatch(CreateRun("flow"))).run_id
    expected = {first, quick, later} | (set() if rolls_back else {slow.result().run_id})
    assert (await flush(kernel)).published == len(expected) - 2
    assert {event.run_id for event in sink.events} == expected


async def test_events_of_commands_that_race_have_no_gap(
    kernel: Kernel,
    sink: CollectingEventSink,
    start_run: StartRun,
    finish: Finish,
    persistence: InMemoryPersistence,
) -> None:
    run_id = await start_run(kernel)

    async def cancel() -> None:
        await kernel.dispatch(CancelRun(run_id))

    await asyncio.gather(finish(kernel, run_id), cancel(), flush(kernel), flush(kernel))
    await flush(kernel)
    sequences = [event.sequence for event in sink.events if event.run_id == run_id]
    assert sequences == list(range(1, len(sequences) + 1))
