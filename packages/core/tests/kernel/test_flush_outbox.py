"""`outbox.flush`: each run's events in order, at least once, refusals bounded, and no run waits for its sink."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Status, Workflow
from stagewright.commands import CreateRun, FlushOutbox, FlushOutboxResult
from stagewright.errors import PartialDeliveryError
from stagewright.events import Event, WorkflowCompleted
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


class Sink:
    """Refuses the events of some runs, or of some types."""

    max_retries = 3

    def __init__(self) -> None:
        self.refuses: set[str] = set()
        self.accepted: list[Event] = []
        self.offered: list[Event] = []

    async def emit(self, event: Event) -> None:
        self.offered.append(event)
        if self.refuses & {event.run_id, event.type}:
            raise ConnectionError(f"no {event.type}")
        self.accepted.append(event)

    def sequences(self, run_id: str) -> list[int | None]:
        return [event.sequence for event in self.accepted if event.run_id == run_id]


@pytest.fixture
def picky() -> Sink:
    return Sink()


@pytest.fixture
def picky_kernel(make_kernel: MakeKernel, flow_of: FlowOf, picky: Sink) -> Kernel:
    return make_kernel(flow_of(echo), event_sink=picky)


async def test_nothing_to_do_is_healthy(kernel: Kernel) -> None:
    assert await flush(kernel) == FlushOutboxResult()
    assert FlushOutboxResult().event_sink_status == "healthy"


@pytest.mark.guarantee("events.in-order-per-run")
async def test_each_runs_events_come_in_order_without_a_gap(
    kernel: Kernel, sink: CollectingEventSink, start_run: StartRun, finish: Finish
) -> None:
    runs = [await start_run(kernel, n) for n in range(5)]
    await asyncio.gather(*(finish(kernel, run_id) for run_id in runs))
    total = sum([len(await kernel.runs.events(run_id)) for run_id in runs])
    assert (await flush(kernel)).published == total
    for run_id in runs:
        sequences = [event.sequence for event in sink.events if event.run_id == run_id]
        assert sequences == list(range(1, len(sequences) + 1))
    assert len({event.event_id for event in sink.events}) == total
    assert (await flush(kernel)).published == 0


async def test_events_come_as_their_classes_with_times_as_times(
    kernel: Kernel, sink: CollectingEventSink, start_run: StartRun, finish: Finish, clock: FakeClock
) -> None:
    await finish(kernel, await start_run(kernel, {"a": 1}))
    await flush(kernel)
    (completed,) = sink.by_type(WorkflowCompleted)
    assert (completed.timestamp, completed.duration, completed.output) == (
        clock.now(),
        timedelta(0),
        {"a": 1},
    )
    stored = await kernel.runs.events(completed.run_id)
    assert [event.event_id for event in sink.events] == [record.id for record in stored]
    assert {record.published_at for record in stored} == {clock.now()}


async def test_a_flush_takes_at_most_what_it_is_told(kernel: Kernel, sink: CollectingEventSink) -> None:
    for _ in range(7):
        await kernel.dispatch(CreateRun("flow"))
    assert [(await flush(kernel, 3)).published for _ in range(4)] == [3, 3, 1, 0]


async def test_a_hundred_at_a_time_unless_told_otherwise(kernel: Kernel) -> None:
    for _ in range(101):
        await kernel.dispatch(CreateRun("flow"))
    assert [(await kernel.dispatch(FlushOutbox())).published for _ in range(2)] == [100, 1]


# Refusals


@pytest.mark.guarantee("events.a-refusal-stops-its-run-only")
async def test_a_refused_event_holds_back_its_run_and_no_other(
    picky_kernel: Kernel, picky: Sink, start_run: StartRun, clock: FakeClock
) -> None:
    first, second, third = [await start_run(picky_kernel) for _ in range(3)]
    picky.refuses = {second}
    result = await flush(picky_kernel)
    assert result == FlushOutboxResult(
        published=4,
        failed=2,
        event_sink_status="degraded",
        event_sink_error="ConnectionError: no workflow:created",
    )
    assert picky.sequences(first) == picky.sequences(third) == [1, 2]
    assert [event.type for event in picky.offered if event.run_id == second] == ["workflow:created"]
    head, behind = await picky_kernel.runs.events(second)
    assert (head.retry_count, head.last_error) == (1, "ConnectionError: no workflow:created")
    assert (behind.retry_count, behind.last_error) == (0, None)
    picky.refuses = set()
    clock.advance("1s")
    assert (await flush(picky_kernel)).published == 2
    assert picky.sequences(second) == [1, 2]


async def test_what_was_accepted_before_the_refusal_is_not_offered_again(
    picky_kernel: Kernel, picky: Sink, start_run: StartRun, clock: FakeClock
) -> None:
    run_id = await start_run(picky_kernel)
    picky.refuses = {"workflow:started"}
    assert ((await flush(picky_kernel)).published, picky.sequences(run_id)) == (1, [1])
    picky.refuses = set()
    clock.advance("1s")
    result = await flush(picky_kernel)
    assert (result.published, result.event_sink_status, result.event_sink_error) == (1, "healthy", None)
    assert picky.sequences(run_id) == [1, 2]


@pytest.mark.guarantee("events.refusals-back-off")
async def test_a_refused_event_waits_longer_each_time_and_is_given_up_in_the_end(
    make_kernel: MakeKernel, flow_of: FlowOf, clock: FakeClock
) -> None:
    sink = CollectingEventSink(max_retries=4)
    sink.fail_with(RuntimeError("no"))
    kernel = make_kernel(flow_of(echo), event_sink=sink)
    run_id = (await kernel.dispatch(CreateRun("flow"))).run_id
    for pause in (1, 2, 4):
        assert (await flush(kernel)).failed == 1
        clock.advance(pause - 0.001)
        assert await flush(kernel) == FlushOutboxResult(), "too early"
        clock.advance(0.001)
    last = await flush(kernel)
    assert (last.failed, last.dead_lettered, last.event_sink_status) == (0, 1, "degraded")
    (record,) = await kernel.runs.events(run_id)
    assert (record.retry_count, record.last_error, record.last_error_at) == (
        4,
        "RuntimeError: no",
        clock.now(),
    )
    assert (record.dead_lettered_at, record.published_at) == (clock.now(), None)
    clock.advance("1d")
    sink.accept()
    assert await flush(kernel) == FlushOutboxResult()


async def test_a_sink_without_a_budget_has_three_refusals(
    make_kernel: MakeKernel, flow_of: FlowOf, clock: FakeClock
) -> None:
    class Plain:
        async def emit(self, event: Event) -> None:
            raise RuntimeError("no")

    kernel = make_kernel(flow_of(echo), event_sink=Plain())
    await kernel.dispatch(CreateRun("flow"))
    results = []
    for _ in range(4):
        result = await flush(kernel)
        results.append((result.failed, result.dead_lettered))
        clock.advance("10m")
    assert results == [(1, 0), (1, 0), (0, 1), (0, 0)]


async def test_after_a_dead_letter_the_runs_later_events_flow(
    picky_kernel: Kernel, picky: Sink, start_run: StartRun, clock: FakeClock
) -> None:
    run_id = await start_run(picky_kernel)
    picky.refuses = {"workflow:created"}
    for _ in range(3):
        await flush(picky_kernel)
        clock.advance("10m")
    assert (await flush(picky_kernel)).published == 1
    assert picky.sequences(run_id) == [2]


@pytest.mark.guarantee("events.a-stuck-run-starves-no-other")
async def test_a_run_whose_events_are_refused_does_not_fill_every_flush(
    picky_kernel: Kernel, picky: Sink, start_run: StartRun, clock: FakeClock
) -> None:
    stuck = await start_run(picky_kernel)
    picky.refuses = {stuck}
    assert (await flush(picky_kernel, 1)).failed == 1
    others = [await start_run(picky_kernel) for _ in range(2)]
    assert (await flush(picky_kernel, 2)).published == 2
    assert (await flush(picky_kernel, 2)).published == 2
    assert {event.run_id for event in picky.accepted} == set(others)


@pytest.mark.guarantee("events.partial-delivery-repeats-the-rest")
async def test_who_accepted_an_event_is_named_the_next_time(
    make_kernel: MakeKernel, flow_of: FlowOf, clock: FakeClock
) -> None:
    seen: list[frozenset[str]] = []

    class Fan:
        async def emit(self, event: Event) -> None:
            seen.append(event.delivered_to)
            if len(seen) < 3:
                raise PartialDeliveryError(frozenset({f"plugin-{len(seen)}"}), "one is down")

    kernel = make_kernel(flow_of(echo), event_sink=Fan())
    run_id = (await kernel.dispatch(CreateRun("flow"))).run_id
    for _ in range(3):
        await flush(kernel)
        clock.advance("1m")
    assert seen == [frozenset(), {"plugin-1"}, {"plugin-1", "plugin-2"}]
    (record,) = await kernel.runs.events(run_id)
    assert record.published_at is not None


@pytest.mark.parametrize(
    "error",
    [
        ValueError("nul\x00"),
        ExceptionGroup("g", [ValueError("x")]),
        PartialDeliveryError(["a"], "a list"),  # type: ignore[arg-type]  # as untyped code may raise it
    ],
)
async def test_whatever_a_sink_raises_is_kept_in_words(
    make_kernel: MakeKernel, flow_of: FlowOf, error: Exception
) -> None:
    sink = CollectingEventSink()
    sink.fail_with(error)
    kernel = make_kernel(flow_of(echo), event_sink=sink)
    run_id = (await kernel.dispatch(CreateRun("flow"))).run_id
    assert (await flush(kernel)).failed == 1
    (record,) = await kernel.runs.events(run_id)
    assert record.last_error is not None
    assert "\x00" not in record.last_error


@pytest.mark.guarantee("events.sinks-never-delay-runs")
async def test_runs_end_while_the_sink_refuses_everything(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, finish: Finish
) -> None:
    sink = CollectingEventSink()
    sink.fail_with(RuntimeError("no"))
    kernel = make_kernel(flow_of(echo, echo), event_sink=sink)
    run_id = await start_run(kernel)
    await flush(kernel)
    assert (await finish(kernel, run_id)).status is Status.COMPLETED
