"""Runs that ended long ago are deleted with everything of them, also when the purge is cut short anywhere."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from stagewright import Kernel, KernelServices, NonRetryableError, StageContext, Status, Workflow
from stagewright.annotations import AnnotationInput
from stagewright.commands import (
    CancelRun,
    ClaimPendingRuns,
    CreateRun,
    FlushOutbox,
    PurgeRuns,
    PurgeRunsResult,
    RedriveRun,
    RedriveRunResult,
    SignalStep,
    Start,
)
from stagewright.errors import AfterCommitError, InvalidCommandError, RunNotFoundError, RunStateError
from stagewright.memory import (
    InMemoryAICallLogger,
    InMemoryBlobStore,
    InMemoryDatabase,
    InMemoryJobTransport,
    InMemoryStepLedger,
)
from stagewright.ports import AICallTotals
from stagewright.records import RunRecord
from stagewright.testing import CollectingEventSink, FakeClock

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
Finish = Callable[[Kernel, str], Awaitable[RunRecord]]
StartRun = Callable[..., Awaitable[str]]
Contents = Callable[[], dict[str, object]]
FailAt = Callable[..., None]

Ctx = StageContext[Any]
BOTH = pytest.mark.parametrize("transport", ["enlisting", "separate"], indirect=True)


class Crash(BaseException):
    """From here on nothing of the process is left."""


class Calls(InMemoryAICallLogger):
    """A log of model calls by topic."""

    def __init__(self) -> None:
        super().__init__()
        self.by_topic: Counter[str] = Counter()

    async def get_stats(self, topic: str) -> AICallTotals:
        return AICallTotals(calls=self.by_topic[topic])

    async def delete_calls(self, topic: str) -> None:
        await asyncio.sleep(0)
        for known in [known for known in self.by_topic if known == topic or known.startswith(f"{topic}.")]:
            del self.by_topic[known]


class Body:
    """It leaves something everywhere."""

    def __init__(self, calls: Calls) -> None:
        self.done: Counter[str] = Counter()
        self.calls = calls
        self.broken = False

    async def __call__(self, ctx: Ctx) -> Any:
        self.calls.by_topic[f"workflow.{ctx.run_id}.stage.{ctx.stage_id}"] += 1
        await ctx.storage.save("kept", "of the body")
        ctx.log("info", "working")
        ctx.annotate("decision.outcome", "yes")
        self.done["body"] += 1
        await ctx.step.run("large", self._step)
        if self.broken:
            raise NonRetryableError("broken")
        return "x" * 300

    def _step(self) -> str:
        self.done["step"] += 1
        return "y" * 300


@pytest.fixture(params=["enlisting", "separate"])
def ledger(
    request: pytest.FixtureRequest, clock: FakeClock, database: InMemoryDatabase
) -> InMemoryStepLedger:
    return InMemoryStepLedger(database if request.param == "enlisting" else InMemoryDatabase(clock))


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture
def body(calls: Calls) -> Body:
    return Body(calls)


@pytest.fixture
def kernel(make_kernel: MakeKernel, flow_of: FlowOf, body: Body, calls: Calls) -> Kernel:
    services = KernelServices(ai_logger=calls)
    return make_kernel(flow_of(body.__call__, body.__call__), services=services, spill_threshold_bytes=100)


@pytest.fixture
def end_run(kernel: Kernel, start_run: StartRun, finish: Finish) -> Callable[..., Awaitable[str]]:
    """`await end_run(key=None)`: a run that has ended and whose events are delivered."""

    async def end(key: str | None = None) -> str:
        run_id = await start_run(kernel, idempotency_key=key, annotations=_said())
        await kernel.dispatch(SignalStep(run_id, "s1", "nobody asks", payload="z" * 300))
        await finish(kernel, run_id)
        await kernel.dispatch(FlushOutbox(max_events=1_000))
        return run_id

    return end


@pytest.fixture
def everything(
    contents: Contents,
    ledger: InMemoryStepLedger,
    transport: InMemoryJobTransport,
    calls: Calls,
    database: InMemoryDatabase,
) -> Contents:
    """Everything that is kept anywhere, but for definitions."""

    def read() -> dict[str, object]:
        kept = contents() | {
            "steps": ledger.database.steps.all(),
            "jobs": transport.database.jobs.all(),
            "model calls": dict(calls.by_topic),
            "event sequences": database.event_sequences.all(),
            "tombstones": database.tombstones.all(),
        }
        del kept["definitions"]
        return kept

    return read


def is_empty(kept: dict[str, object]) -> bool:
    return all(not rows for rows in kept.values())


def ended_by(clock: FakeClock) -> PurgeRuns:
    return PurgeRuns(clock.now())


@BOTH
@pytest.mark.guarantee("purges.nothing-is-left")
async def test_nothing_of_a_purged_run_is_left(
    kernel: Kernel, end_run: Any, everything: Contents, clock: FakeClock, finish: Finish, body: Body
) -> None:
    body.broken = True
    run_id = await end_run("order-7")
    body.broken = False
    await kernel.dispatch(RedriveRun(run_id, from_=Start(), idempotency_key="again"))
    await finish(kernel, run_id)
    await kernel.dispatch(FlushOutbox(max_events=1_000))
    empty = [name for name, rows in everything().items() if not rows]
    assert empty == ["tombstones"], "the run has left something everywhere"
    events = len(await kernel.runs.events(run_id))
    assert events
    assert await kernel.dispatch(ended_by(clock)) == PurgeRunsResult(1, (run_id,))
    assert is_empty(everything()), everything()
    assert await kernel.dispatch(FlushOutbox()) == await kernel.dispatch(FlushOutbox())
    assert await kernel.dispatch(ended_by(clock)) == PurgeRunsResult(0, ())


async def test_only_what_ended_by_then_is_purged_the_first_to_end_first(
    kernel: Kernel, end_run: Any, clock: FakeClock, start_run: StartRun
) -> None:
    runs = []
    for _ in range(4):
        runs.append(await end_run())
        clock.advance("1h")
    running = await start_run(kernel)
    pending = (await kernel.dispatch(CreateRun("flow"))).run_id
    ended = [run.completed_at for id in runs if (run := await kernel.runs.get(id))]
    boundary = ended[2]
    assert boundary is not None
    assert (await kernel.dispatch(PurgeRuns(boundary, limit=1))).run_ids == (runs[0],)
    just_before = boundary - timedelta(microseconds=1)
    assert (await kernel.dispatch(PurgeRuns(just_before))).run_ids == (runs[1],)
    assert (await kernel.dispatch(PurgeRuns(boundary))).run_ids == (runs[2],)
    clock.advance("365d")
    assert (await kernel.dispatch(PurgeRuns(clock.now()))).run_ids == (runs[3],)
    left = await kernel.runs.list()
    assert {run.id for run in left.items} == {running, pending}


async def test_only_the_statuses_asked_for_are_purged(
    kernel: Kernel, end_run: Any, clock: FakeClock, start_run: StartRun, body: Body
) -> None:
    completed = await end_run()
    body.broken = True
    failed = await end_run()
    cancelled = await start_run(kernel)
    await kernel.dispatch(CancelRun(cancelled))
    await kernel.dispatch(FlushOutbox(max_events=1_000))
    command = {"type": "run.purge", "older_than": clock.now().isoformat(), "statuses": ["FAILED"]}
    assert await kernel.dispatch(command) == PurgeRunsResult(1, (failed,))
    assert set((await kernel.dispatch(ended_by(clock))).run_ids) == {completed, cancelled}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("limit", 0),
        ("limit", -1),
        ("limit", float("nan")),
        ("limit", True),
        ("older_than", datetime(2031, 1, 1)),  # noqa: DTZ001  # a naive time is what is refused
        ("older_than", "yesterday"),
        ("older_than", 30),
        ("older_than", 1_700_000_000.5),
        ("older_than", "1700000000"),
        ("older_than", timedelta(days=30)),
        ("older_than", "2031-01-01"),
        ("limit", 10**30),
        ("limit", 1_000_001),
        ("older_than", None),
        ("statuses", ["RUNNING"]),
        ("statuses", ["COMPLETED", "PENDING"]),
        ("statuses", ["done"]),
    ],
)
async def test_a_purge_that_makes_no_sense_is_refused(
    kernel: Kernel, end_run: Any, clock: FakeClock, everything: Contents, field: str, value: object
) -> None:
    await end_run()
    before = everything()
    command = {"type": "run.purge", "older_than": clock.now(), field: value}
    with pytest.raises(InvalidCommandError, match=rf"\$\.{field}"):
        await kernel.dispatch(command)
    assert everything() == before


@pytest.mark.guarantee("purges.untold-runs-stay")
async def test_a_run_of_which_not_all_is_told_is_left_alone(
    kernel: Kernel,
    end_run: Any,
    clock: FakeClock,
    start_run: StartRun,
    finish: Finish,
    sink: CollectingEventSink,
) -> None:
    told = await end_run()
    sink.fail_with(ConnectionError("refused"))
    untold = await start_run(kernel)
    await finish(kernel, untold)
    assert (await kernel.dispatch(ended_by(clock))).run_ids == (told,)
    for _ in range(3):
        await kernel.dispatch(FlushOutbox(max_events=1_000))
        assert (await kernel.dispatch(ended_by(clock))).run_ids == ()
        clock.advance("10m")
    sink.accept()
    await kernel.dispatch(FlushOutbox(max_events=1_000))
    dead = [event for event in await kernel.runs.events(untold) if event.dead_lettered_at is not None]
    assert dead, "dead letters hold nothing back"
    assert (await kernel.dispatch(ended_by(clock))).run_ids == (untold,)


async def test_an_untold_run_takes_no_place_of_the_limit(
    kernel: Kernel, end_run: Any, clock: FakeClock, start_run: StartRun, finish: Finish
) -> None:
    untold = await start_run(kernel)
    await kernel.dispatch(CancelRun(untold))
    clock.advance("1s")
    run_id = (await kernel.dispatch(CreateRun("flow"))).run_id
    await kernel.dispatch(ClaimPendingRuns("w"))
    await finish(kernel, run_id)
    for event in await kernel.runs.events(run_id):
        token = event.id
        (claimed,) = [
            one
            for one in await kernel.ports.persistence.claim_unpublished_outbox_events(
                1_000, token=token, now=clock.now(), claimed_until=clock.now() + timedelta(minutes=1)
            )
            if one.id == event.id
        ]
        await kernel.ports.persistence.mark_outbox_events_published(
            [claimed.id], token=token, now=clock.now()
        )
        clock.advance("1m")
    assert (await kernel.dispatch(PurgeRuns(clock.now(), limit=1))).run_ids == (run_id,)
    assert (await kernel.dispatch(PurgeRuns(clock.now(), limit=1))).run_ids == ()
    assert await kernel.runs.get(untold) is not None


@BOTH
@pytest.mark.guarantee("purges.cut-short-is-finished-by-the-next")
async def test_a_purge_that_is_cut_short_at_any_call_is_finished_by_the_next(
    kernel: Kernel,
    end_run: Any,
    everything: Contents,
    clock: FakeClock,
    fail_at: FailAt,
    forget_cues: Callable[[], None],
    moments: list[str],
    body: Body,
    finish: Finish,
) -> None:
    await end_run("order-7")
    start = len(moments)
    await kernel.dispatch(ended_by(clock))
    length = len(moments) - start
    assert is_empty(everything())
    for nth in range(1, length + 1):
        run_id = await end_run("order-7")
        before = everything()
        done = dict(body.done)
        fail_at("*", nth=nth, error=Crash())
        with pytest.raises(Crash):
            await kernel.dispatch(ended_by(clock))
        forget_cues()
        run = await kernel.runs.get(run_id)
        if run is None:
            assert await kernel.runs.stages(run_id) == []
            assert (await kernel.dispatch(CancelRun(run_id))).cancelled is False
        else:
            assert run.status is Status.COMPLETED
            assert everything() == before, f"call {nth}: {moments[start + nth - 1]}"
        again = await kernel.dispatch(CreateRun("flow", idempotency_key="order-7", annotations=_said()))
        assert (again.run_id == run_id) is (run is not None)
        if run is None:
            assert (await finish(kernel, again.run_id)).output == "x" * 300
            assert body.done == {"body": done["body"] + 2, "step": done["step"] + 2}
            await kernel.dispatch(FlushOutbox(max_events=1_000))
        await kernel.dispatch(ended_by(clock))
        assert is_empty(everything()), f"call {nth}"


@pytest.mark.parametrize("moment", ["blob_store.list", "blob_store.delete_many"])
@pytest.mark.guarantee("purges.one-that-fails-keeps-no-other")
async def test_what_can_not_be_deleted_is_told_and_tried_again(
    kernel: Kernel, end_run: Any, everything: Contents, clock: FakeClock, fail_at: FailAt, moment: str
) -> None:
    first, second = await end_run(), await end_run()
    fail_at(moment, error=OSError("the bucket is gone"))
    with pytest.raises(AfterCommitError, match="1 of 2 follow-ups failed: OSError: the bucket is gone"):
        await kernel.dispatch(ended_by(clock))
    assert await kernel.runs.get(first) is None
    assert await kernel.runs.get(second) is None
    assert await kernel.dispatch(ended_by(clock)) == PurgeRunsResult(1, (first,))
    assert is_empty(everything())


async def test_two_purges_share_the_work_and_each_run_is_told_once(
    kernel: Kernel, end_run: Any, everything: Contents, clock: FakeClock
) -> None:
    runs = [await end_run() for _ in range(4)]
    results = await asyncio.gather(*(kernel.dispatch(ended_by(clock)) for _ in range(3)))
    assert sorted(run_id for result in results for run_id in result.run_ids) == sorted(runs)
    assert is_empty(everything())


@BOTH
@pytest.mark.guarantee("purges.a-redrive-or-a-purge")
async def test_of_a_redrive_and_a_purge_one_has_the_run(
    kernel: Kernel, end_run: Any, everything: Contents, clock: FakeClock, finish: Finish
) -> None:
    outcomes = Counter[str]()
    for turns in range(14):
        run_id = await end_run()
        answers: tuple[Any, Any] = await asyncio.gather(
            asyncio.create_task(_later(kernel, RedriveRun(run_id, from_=Start()), turns)),
            asyncio.create_task(_later(kernel, ended_by(clock), 7)),
            return_exceptions=True,
        )
        redrive, purge = answers
        if isinstance(redrive, RedriveRunResult):
            outcomes["redriven"] += 1
            assert purge == PurgeRunsResult(0, ())
            run = await finish(kernel, run_id)
            assert (run.status, run.output) == (Status.COMPLETED, "x" * 300)
            await kernel.dispatch(FlushOutbox(max_events=1_000))
            assert (await kernel.dispatch(ended_by(clock))).run_ids == (run_id,)
        else:
            outcomes["purged"] += 1
            assert isinstance(redrive, RunNotFoundError | RunStateError)
            assert purge == PurgeRunsResult(1, (run_id,))
        assert is_empty(everything())
    assert outcomes.keys() == {"redriven", "purged"}


async def _later(kernel: Kernel, command: Any, turns: int) -> Any:
    for _ in range(turns):
        await asyncio.sleep(0)
    return await kernel.dispatch(command)


async def test_a_run_that_was_redriven_after_it_was_listed_is_skipped(
    kernel: Kernel, end_run: Any, clock: FakeClock, hold_at: Any, finish: Finish
) -> None:
    run_id = await end_run()
    reached, go = hold_at("begin")
    purge = asyncio.create_task(kernel.dispatch(ended_by(clock)))
    await reached.wait()
    await kernel.dispatch(RedriveRun(run_id))
    go.set()
    assert await purge == PurgeRunsResult(0, ())
    assert (await finish(kernel, run_id)).status is Status.COMPLETED


async def test_other_runs_keep_what_is_theirs(
    kernel: Kernel, end_run: Any, clock: FakeClock, blob_store: InMemoryBlobStore, finish: Finish
) -> None:
    gone = await end_run("a")
    clock.advance("1d")
    stays = await end_run("b")
    keys = [key async for key in blob_store.list(f"workflow-v2/flow/{stays}/")]
    assert (await kernel.dispatch(PurgeRuns(clock.now() - timedelta(hours=1)))).run_ids == (gone,)
    assert [key async for key in blob_store.list("workflow-v2/")] == keys
    assert (
        await kernel.dispatch(CreateRun("flow", idempotency_key="b", annotations=_said()))
    ).run_id == stays
    await kernel.dispatch(RedriveRun(stays))
    assert (await finish(kernel, stays)).output == "x" * 300


def _said() -> tuple[AnnotationInput, ...]:
    return (AnnotationInput(attributes={"trigger.reason": "test"}),)
