"""`outbox.flush` and sinks that never answer, or that raise what usually ends a process."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Workflow
from stagewright.commands import CreateRun, FlushOutbox, FlushOutboxResult
from stagewright.errors import DeliveryTimeoutError, InvalidDurationError, InvalidSettingError
from stagewright.events import Event
from stagewright.plugins import Plugin, PluginRunner
from stagewright.testing import CollectingEventSink, FakeClock

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
StartRun = Callable[..., Awaitable[str]]

LIMIT = timedelta(milliseconds=20)
SILENT = "DeliveryTimeoutError: the event was not accepted within 0.02 s"


async def echo(ctx: StageContext[Any]) -> Any:
    return ctx.input


async def flush(kernel: Kernel) -> FlushOutboxResult:
    return await kernel.dispatch(FlushOutbox())


class Sink:
    """Hangs on the events of some runs, or of some types."""

    delivery_timeout = LIMIT

    def __init__(self) -> None:
        self.hangs: set[str] = set()
        self.refuses: set[str] = set()
        self.offered: list[Event] = []
        self.accepted: list[Event] = []

    async def emit(self, event: Event) -> None:
        self.offered.append(event)
        if self.hangs & {event.run_id, event.type}:
            await asyncio.Event().wait()
        if event.run_id in self.refuses:
            raise RuntimeError("no")
        self.accepted.append(event)

    def sequences(self, run_id: str) -> list[int | None]:
        return [event.sequence for event in self.accepted if event.run_id == run_id]


@pytest.fixture
def hanging() -> Sink:
    return Sink()


@pytest.fixture
def kernel(make_kernel: MakeKernel, flow_of: FlowOf, hanging: Sink) -> Kernel:
    return make_kernel(flow_of(echo), event_sink=hanging)


@pytest.mark.guarantee("events.a-hanging-sink-has-refused")
async def test_an_event_on_which_the_sink_hangs_holds_back_its_run_and_no_other(
    kernel: Kernel, hanging: Sink, start_run: StartRun, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, third = [await start_run(kernel) for _ in range(3)]
    hanging.hangs = {second}
    result = await flush(kernel)
    assert result == FlushOutboxResult(
        published=4, failed=2, event_sink_status="degraded", event_sink_error=SILENT
    )
    assert hanging.sequences(first) == hanging.sequences(third) == [1, 2]
    head, behind = await kernel.runs.events(second)
    assert (head.retry_count, head.last_error, behind.retry_count) == (1, SILENT, 0)
    assert any(second in line and SILENT in line for line in caplog.messages)
    hanging.hangs = set()
    clock.advance("1s")
    assert (await flush(kernel)).published == 2
    assert hanging.sequences(second) == [1, 2]


@pytest.mark.guarantee("events.a-hanging-sink-has-refused")
async def test_an_event_on_which_the_sink_always_hangs_is_given_up_and_the_later_ones_flow(
    kernel: Kernel, hanging: Sink, start_run: StartRun, clock: FakeClock
) -> None:
    run_id = await start_run(kernel)
    hanging.hangs = {"workflow:created"}
    results = []
    for _ in range(4):
        result = await flush(kernel)
        results.append((result.published, result.failed, result.dead_lettered))
        clock.advance("1m")
    assert results == [(0, 2, 0), (0, 2, 0), (0, 1, 1), (1, 0, 0)]
    assert hanging.sequences(run_id) == [2]


async def test_a_sink_that_answers_nothing_at_all_ends_the_flush_and_the_rest_is_given_back_at_once(
    kernel: Kernel, hanging: Sink
) -> None:
    runs = [(await kernel.dispatch(CreateRun("flow"))).run_id for _ in range(5)]
    hanging.hangs = {"workflow:created"}
    assert (await flush(kernel)).failed == 3
    assert [event.run_id for event in hanging.offered] == runs[:3]
    hanging.hangs = set()
    assert (await flush(kernel)).published == 2
    assert [event.run_id for event in hanging.accepted] == runs[3:]


@pytest.mark.parametrize("answer", ["accepts", "refuses"])
async def test_a_sink_that_answers_now_and_then_is_offered_everything(
    kernel: Kernel, hanging: Sink, answer: str
) -> None:
    runs = [(await kernel.dispatch(CreateRun("flow"))).run_id for _ in range(8)]
    hanging.hangs = set(runs[::2])
    hanging.refuses = set(runs[1::2]) if answer == "refuses" else set()
    await flush(kernel)
    assert [event.run_id for event in hanging.offered] == runs


async def test_events_without_an_answer_come_again_after_there_was_time_for_others(
    make_kernel: MakeKernel, flow_of: FlowOf, clock: FakeClock
) -> None:
    class Stuck(CollectingEventSink):
        delivery_timeout = "10s"

        async def emit(self, event: Event) -> None:
            clock.advance("2s")
            raise DeliveryTimeoutError(2)

    kernel = make_kernel(flow_of(echo), event_sink=Stuck())
    await kernel.dispatch(CreateRun("flow"))
    assert (await flush(kernel)).failed == 1
    clock.advance("5.9s")
    assert (await flush(kernel)).failed == 0, "too early"
    clock.advance("0.1s")
    assert (await flush(kernel)).failed == 1


async def test_a_plugin_that_hangs_is_named_and_does_not_keep_events_from_those_after_it(
    make_kernel: MakeKernel, flow_of: FlowOf, clock: FakeClock
) -> None:
    seen: list[str] = []

    async def note(event: Event) -> None:
        seen.append(event.run_id)

    plugins = [
        Plugin(id, None, ["workflow:created"], handle) for id, handle in (("stuck", _hang), ("next", note))
    ]
    kernel = make_kernel(flow_of(echo), event_sink=PluginRunner(plugins, timeout=LIMIT))
    run_id = (await kernel.dispatch(CreateRun("flow"))).run_id
    for _ in range(2):
        result = await flush(kernel)
        assert result.event_sink_error == f"PartialDeliveryError: plugin 'stuck' failed: {SILENT}"
        clock.advance("1m")
    assert seen == [run_id], "who has the event isn't given it again"


async def _hang(event: Event) -> None:
    await asyncio.Event().wait()


@pytest.mark.guarantee("events.a-slow-flush-keeps-its-claims")
async def test_a_slow_sink_does_not_cost_a_flush_the_runs_at_its_end(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, clock: FakeClock
) -> None:
    other = make_kernel(flow_of(echo))
    taken: list[int] = []

    class Slow:
        async def emit(self, event: Event) -> None:
            clock.advance("30s")
            taken.append((await flush(other)).published)

    kernel = make_kernel(flow_of(echo), event_sink=Slow())
    for _ in range(5):
        await start_run(kernel)
    assert (await flush(kernel)).published == 10
    assert taken == [0] * 10, "the claims held while the sink was slow"


class _Quits(BaseException):
    pass


@pytest.mark.guarantee("events.whatever-is-raised-is-a-refusal")
@pytest.mark.parametrize(
    ("error", "described"),
    [
        (SystemExit(3), "SystemExit: 3"),
        (GeneratorExit("over"), "GeneratorExit: over"),
        (_Quits("quits"), "_Quits: quits"),
        (asyncio.CancelledError(), "RuntimeError: it was cancelled from within"),
    ],
)
@pytest.mark.parametrize("in_a_plugin", [False, True])
async def test_whatever_a_sink_raises_is_a_refusal(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    error: BaseException,
    described: str,
    in_a_plugin: bool,
) -> None:
    accepted: list[Event] = []

    async def emit(event: Event) -> None:
        if event.run_id == first:
            raise error
        accepted.append(event)

    types = ["workflow:created", "workflow:started"]
    kernel = make_kernel(
        flow_of(echo),
        event_sink=PluginRunner([Plugin("p", None, types, emit)]) if in_a_plugin else _Emitting(emit),
    )
    first, _ = [await start_run(kernel) for _ in range(2)]
    result = await flush(kernel)
    assert (result.published, result.failed, result.event_sink_status) == (2, 2, "degraded")
    assert len(accepted) == 2
    head, _ = await kernel.runs.events(first)
    assert head.retry_count == 1
    assert str(head.last_error).endswith(described)


class _Emitting:
    def __init__(self, emit: Callable[[Event], Awaitable[None]]) -> None:
        self._emit = emit

    async def emit(self, event: Event) -> None:
        await self._emit(event)


@pytest.mark.parametrize(("budget", "offers"), [(0, 1), (1, 1), (2, 2), (3, 3)])
async def test_a_budget_counts_refusals_and_zero_is_one(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    clock: FakeClock,
    caplog: pytest.LogCaptureFixture,
    budget: int,
    offers: int,
) -> None:
    sink = CollectingEventSink(max_retries=budget)
    sink.fail_with(RuntimeError("no"))
    kernel = make_kernel(flow_of(echo), event_sink=sink)
    await kernel.dispatch(CreateRun("flow"))
    for _ in range(5):
        await flush(kernel)
        clock.advance("10m")
    assert len(sink.refused) == offers
    (line,) = [line for line in caplog.messages if "given up" in line]
    assert f"after {offers} {'refusal' if offers == 1 else 'refusals'}: " in line


@pytest.mark.parametrize("budget", ["3", -1, True, 1.5, None])
def test_a_sinks_budget_that_is_no_number_is_refused(
    make_kernel: MakeKernel, flow_of: FlowOf, budget: Any
) -> None:
    sink = CollectingEventSink()
    sink.max_retries = budget
    with pytest.raises(InvalidSettingError, match="max_retries.* must be a whole number, zero or more"):
        make_kernel(flow_of(echo), event_sink=sink)


@pytest.mark.parametrize("limit", ["soon", 0, -1, None])
def test_a_sinks_limit_that_is_no_time_is_refused(
    make_kernel: MakeKernel, flow_of: FlowOf, limit: Any
) -> None:
    sink = Sink()
    sink.delivery_timeout = limit
    with pytest.raises(InvalidDurationError, match="delivery_timeout"):
        make_kernel(flow_of(echo), event_sink=sink)
