"""`assert_consistent` passes what kernels leave behind, and names each thing that doesn't fit."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from stagewright import Kernel, RetryPolicy, StageContext, WorkflowRegistry, define_stage, define_workflow
from stagewright.commands import CancelRun, ClaimJobs, ClaimPendingRuns, CreateRun, FlushOutbox
from stagewright.hosting import drive_run, run_job
from stagewright.memory.rows import AnnotationRow, IdempotencyRow, JobRow, OutboxRow
from stagewright.records import AnnotationRecord, ClaimCheck, ErrorRecord, RunRecord, StepOwner, StoredStage
from stagewright.status import Status
from stagewright.testing import (
    CollectingEventSink,
    FakeClock,
    InMemoryBlobStore,
    InMemoryDatabase,
    InMemoryJobTransport,
    InMemoryPersistence,
    InMemoryStepLedger,
    assert_consistent,
)

EPOCH = datetime(2025, 1, 1, tzinfo=UTC)
LOST = ClaimCheck(key="nothing/here", size=1)
BROKEN = ErrorRecord(code="BROKEN", message="broken")


async def work(ctx: StageContext[Any]) -> Any:
    ctx.annotate("seen", ctx.stage_id)
    result = await ctx.step.run("double", lambda: 2 * len(ctx.stage_id))
    if ctx.workflow_input == "fails" and ctx.stage_id == "last":
        raise ValueError("no")
    if ctx.workflow_input == "sleeps":
        await ctx.step.sleep("nap", "1d")
    return "x" * 500 if ctx.stage_id == "left" else result


def staged(id: str) -> Any:
    return define_stage(id, work, input=Any, output=Any, retry=RetryPolicy(2, delay=0))


WORKFLOW = (
    define_workflow("flow", input=Any)
    .pipe(staged("first"))
    .parallel(staged("left"), staged("right"))
    .pipe(staged("last"))
    .build()
)


@dataclass
class Store:
    """A store with a run of every kind, and ways to change what no kernel would."""

    kernel: Kernel
    database: InMemoryDatabase
    runs: dict[str, str]

    def run(self, name: str, **changes: Any) -> None:
        table = self.database.runs
        row = table.get(self.runs[name])
        assert row is not None
        table.write(row.id, replace(row, **changes))

    def stage(self, name: str, stage_id: str, **changes: Any) -> None:
        row = self.stage_row(name, stage_id)
        self.database.stages.write(row.id, replace(row, **changes))

    def stage_row(self, name: str, stage_id: str) -> StoredStage:
        (row,) = self.database.stages.where("stage", (self.runs[name], stage_id)).values()
        return row

    def job(self, name: str, stage_id: str, **changes: Any) -> None:
        key = (self.runs[name], stage_id)
        row = self.database.jobs.get(key)
        assert row is not None
        self.database.jobs.write(key, JobRow(replace(row.record, **changes), row.position))

    def event(self, name: str, place: int, **changes: Any) -> None:
        """Change the event with that sequence, or with -1 the last one."""
        rows = self.database.outbox.where("run", self.runs[name]).values()
        wanted = max(row.record.sequence for row in rows) if place < 0 else place
        (row,) = (row for row in rows if row.record.sequence == wanted)
        self.database.outbox.write(row.record.id, OutboxRow(record=replace(row.record, **changes)))

    def step(self, name: str, stage_id: str, step_id: str, **changes: Any) -> None:
        key = (self.stage_row(name, stage_id).id, step_id)
        row = self.database.steps.get(key)
        assert row is not None
        self.database.steps.write(key, replace(row, **changes))

    def forget(self, table: str, key: Any) -> None:
        getattr(self.database, table).write(key, None)


@asynccontextmanager
async def a_store(*, elsewhere: bool = False) -> AsyncIterator[Store]:
    clock = FakeClock(EPOCH)
    database = InMemoryDatabase(clock)
    kernel = Kernel(
        persistence=InMemoryPersistence(database),
        job_transport=InMemoryJobTransport(InMemoryDatabase(clock) if elsewhere else database),
        blob_store=InMemoryBlobStore(database),
        step_ledger=InMemoryStepLedger(database),
        event_sink=CollectingEventSink(),
        clock=clock,
        registry=WorkflowRegistry([WORKFLOW]),
        spill_threshold_bytes=300,
    )
    runs: dict[str, str] = {}

    async def create(name: str, key: str | None = None) -> str:
        command = CreateRun("flow", name, idempotency_key=key)
        runs[name] = (await kernel.dispatch(command)).run_id
        return runs[name]

    await drive_run(kernel, await create("ends well", key="order-7"))
    await drive_run(kernel, await create("fails"))
    for name in ("sleeps", "runs"):
        await create(name)
        await kernel.dispatch(ClaimPendingRuns("claimer"))
        (job,) = (await kernel.dispatch(ClaimJobs("worker"))).jobs
        if name == "sleeps":
            await run_job(kernel, job)
    await create("is claimed")
    await kernel.dispatch(ClaimPendingRuns("claimer"))
    await kernel.dispatch(CancelRun(await create("is cancelled")))
    await kernel.dispatch(FlushOutbox())
    await create("waits")
    yield Store(kernel, database, runs)


@pytest_asyncio.fixture
async def store() -> AsyncIterator[Store]:
    async with a_store() as store:
        yield store


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_what_a_kernel_leaves_behind_fits_together(elsewhere: bool) -> None:
    async with a_store(elsewhere=elsewhere) as store:
        await assert_consistent(store.kernel)


async def test_looking_changes_nothing(store: Store) -> None:
    before = {
        name: dict(table.all()) for name, table in vars(store.database).items() if hasattr(table, "all")
    }
    await assert_consistent(store.kernel)
    assert before == {name: table.all() for name, table in vars(store.database).items() if name in before}
    assert store.database.locks.is_idle


async def test_a_worker_may_be_lost_after_its_run_was_cancelled(store: Store) -> None:
    """Its job waits for whoever claims it next, and that settles it."""
    await store.kernel.dispatch(CancelRun(store.runs["runs"]))
    job = store.database.jobs.get((store.runs["runs"], "first"))
    assert job is not None
    assert job.record.status is Status.RUNNING
    await store.kernel.ports.job_transport.release_stale(timedelta(seconds=-1))
    await assert_consistent(store.kernel)
    await store.kernel.dispatch(ClaimJobs("worker", limit=10))
    settled = store.database.jobs.get((store.runs["runs"], "first"))
    assert settled is not None
    assert settled.record.status is Status.FAILED


Change = Callable[[Store], None]

FAULTS: list[tuple[str, Change]] = [
    ("SUSPENDED, which no run has", lambda s: s.run("runs", status=Status.SUSPENDED)),
    ("COMPLETED with completed_at=None", lambda s: s.run("ends well", completed_at=None)),
    ("RUNNING and was never started", lambda s: s.run("runs", started_at=None)),
    ("RUNNING and has an output", lambda s: s.run("runs", output=1)),
    ("FAILED with error=None", lambda s: s.run("fails", error=None)),
    ("COMPLETED with error=broken", lambda s: s.run("ends well", error=BROKEN)),
    ("its duration is", lambda s: s.run("ends well", duration=timedelta(days=9))),
    ("FAILED, and its stage 'right' is RUNNING", lambda s: s.stage("fails", "right", status=Status.RUNNING)),
    ("PENDING and has stages", lambda s: s.run("runs", status=Status.PENDING)),
    ("without its stage 'last'", lambda s: s.forget("stages", s.stage_row("ends well", "last").id)),
    (
        "COMPLETED, and its stage 'left' is FAILED",
        lambda s: s.stage("ends well", "left", status=Status.FAILED),
    ),
    ("has attempt 0", lambda s: s.stage("runs", "first", attempt=0)),
    ("'first' is COMPLETED with completed_at=None", lambda s: s.stage("fails", "first", completed_at=None)),
    ("'first' is RUNNING and was never started", lambda s: s.stage("runs", "first", started_at=None)),
    ("'first' is COMPLETED with an error", lambda s: s.stage("fails", "first", error=BROKEN)),
    ("'last' is FAILED without an error", lambda s: s.stage("fails", "last", error=None)),
    ("'first' is RUNNING and has an output", lambda s: s.stage("runs", "first", output=1)),
    ("both inline and in the blob store", lambda s: s.stage("fails", "first", output=1, output_claim=LOST)),
    ("is to be looked at at", lambda s: s.stage("runs", "first", next_poll_at=EPOCH)),
    ("and group 3 has begun", lambda s: s.stage("fails", "left", status=Status.CANCELLED)),
    (
        "wants a job that isn't owed to it, and there is none",
        lambda s: s.forget("jobs", (s.runs["is claimed"], "first")),
    ),
    (
        "wants a job that isn't owed to it, and it is SUSPENDED",
        lambda s: s.stage("sleeps", "first", next_poll_at=None, job_enqueued_at=EPOCH),
    ),
    (
        "nobody has its job: it is COMPLETED",
        lambda s: s.job("runs", "first", status=Status.COMPLETED, locked_at=None, completed_at=EPOCH),
    ),
    (
        "SUSPENDED, and its job has ended",
        lambda s: s.job("sleeps", "first", status=Status.FAILED, completed_at=EPOCH),
    ),
    ("RUNNING under worker None", lambda s: s.job("runs", "first", worker_id=None)),
    ("SUSPENDED and has a lease", lambda s: s.job("sleeps", "first", locked_at=EPOCH)),
    ("COMPLETED with completed_at=None", lambda s: s.job("ends well", "first", completed_at=None)),
    ("after 2 failures of at most 2", lambda s: s.job("runs", "first", failures=2)),
    ("after 3 lost workers of at most 3", lambda s: s.job("sleeps", "first", worker_losses=3, deliveries=9)),
    ("was delivered 1 times, lost 1 workers", lambda s: s.job("runs", "first", worker_losses=1)),
    ("is of workflow 'other'", lambda s: s.job("runs", "first", workflow_id="other")),
    ("is of version 'other'", lambda s: s.job("is claimed", "first", definition_version="other")),
    ("and no such stage", lambda s: s.forget("stages", s.stage_row("fails", "last").id)),
    ("its events are numbered", lambda s: s.event("runs", 2, sequence=9)),
    ("it has no events", lambda s: _forget_events(s, "waits")),
    ("its first event is workflow:started", lambda s: s.event("runs", 1, type="workflow:started")),
    ("0 events tell of an end", lambda s: s.event("is cancelled", -1, type="workflow:started", payload={})),
    (
        "its last end is workflow:failed",
        lambda s: s.event("is cancelled", -1, type="workflow:failed", payload={"error": "x"}),
    ),
    ("after its end it is said stage:started", lambda s: _say_after_the_end(s, "is cancelled")),
    ("no stage:failed tells of it", lambda s: _unsay(s, "fails", "stage:failed")),
    ("both published and given up", lambda s: s.event("runs", 1, dead_lettered_at=EPOCH)),
    ("event 3 is published, and event 2 waits before it", lambda s: s.event("runs", 2, published_at=None)),
    ("its event 1 can't be read", lambda s: s.event("runs", 1, payload={})),
    ("is a sleep and running", lambda s: s.step("sleeps", "first", "nap", status="running")),
    (
        "the step 'double' is failed without an error",
        lambda s: s.step("fails", "first", "double", status="failed", result=None),
    ),
    ("is completed with an error", lambda s: s.step("fails", "first", "double", error=BROKEN)),
    ("is pending and has a result", lambda s: s.step("sleeps", "first", "nap", result=1)),
    ("has its result both", lambda s: s.step("fails", "first", "double", result_claim=LOST)),
    ("is to be tried again at", lambda s: s.step("fails", "first", "double", retry_at=EPOCH)),
    ("has attempt 0 and place 1", lambda s: s.step("fails", "first", "double", attempt=0)),
    ("is of attempt 9, its stage of 1", lambda s: s.step("fails", "first", "double", stage_attempt=9)),
    (
        "is owned by delivery 9",
        lambda s: s.step(
            "sleeps", "first", "double", owner=StepOwner(job_id=_job_id(s, "sleeps"), deliveries=9)
        ),
    ),
    (
        "waits for a step 'nap' that isn't there",
        lambda s: s.forget("steps", (s.stage_row("sleeps", "first").id, "nap")),
    ),
    (
        "its annotation 'seen' belongs to no stage of it",
        lambda s: s.forget("stages", s.stage_row("fails", "last").id),
    ),
    ("annotation ('k', 'once') is there 2 times", lambda s: _annotate_twice(s, "runs")),
    ("the output of its stage 'left' lies under", lambda s: s.stage("fails", "left", output_claim=LOST)),
    ("the artifact 'a' of its stage", lambda s: s.stage("fails", "left", artifacts={"a": LOST})),
    (
        "the result of its step 'double' lies",
        lambda s: s.step("fails", "first", "double", result=None, result_claim=LOST),
    ),
    (
        "the definition of its version",
        lambda s: s.forget("definitions", ("flow", WORKFLOW.definition_version)),
    ),
    ("'order-7', which is still in progress", lambda s: _key(s, completed=False)),
    (
        "'order-7', which answers {'run_id': 'other'}",
        lambda s: _key(s, completed=True, result={"run_id": "other"}),
    ),
]


def _forget_events(store: Store, name: str) -> None:
    for key in store.database.outbox.where("run", store.runs[name]):
        store.forget("outbox", key)


def _say_after_the_end(store: Store, name: str) -> None:
    store.event(name, 1, type="workflow:cancelled", payload={})
    store.event(name, 2, type="stage:started")


def _unsay(store: Store, name: str, kind: str) -> None:
    for row in store.database.outbox.where("run", store.runs[name]).values():
        if row.record.type == kind:
            store.event(name, row.record.sequence, type="stage:started")


def _job_id(store: Store, name: str) -> str:
    row = store.database.jobs.get((store.runs[name], "first"))
    assert row is not None
    return row.record.id


def _annotate_twice(store: Store, name: str) -> None:
    for id in ("a1", "a2"):
        record = AnnotationRecord(
            id=id, run_id=store.runs[name], key="k", value=1, created_at=EPOCH, idempotency_key="once"
        )
        store.database.annotations.write(id, AnnotationRow(record, 1))


def _key(store: Store, **changes: Any) -> None:
    row = store.database.idempotency_keys.get(("order-7", "run.create"))
    assert isinstance(row, IdempotencyRow)
    store.database.idempotency_keys.write((row.key, row.command_type), replace(row, **changes))


@pytest.mark.guarantee("kernel.what-is-left-behind-can-be-checked")
@pytest.mark.parametrize(("words", "change"), FAULTS, ids=[words for words, _ in FAULTS])
async def test_what_does_not_fit_is_named(store: Store, words: str, change: Change) -> None:
    change(store)
    with pytest.raises(AssertionError) as caught:
        await assert_consistent(store.kernel)
    assert words in str(caught.value)


async def test_a_spilled_payload_that_is_gone_is_named(store: Store) -> None:
    key = f"workflow-v2/flow/{store.runs['runs']}/_jobs/first-{'0' * 32}.json"
    store.job("runs", "first", payload={"spilled_payload": {"key": key, "size": 3}})
    with pytest.raises(AssertionError, match="the payload of the job of its stage 'first'"):
        await assert_consistent(store.kernel)


async def test_many_faults_are_counted_and_the_first_shown(store: Store) -> None:
    run = store.database.runs.get(store.runs["waits"])
    assert isinstance(run, RunRecord)
    for number in range(120):
        copy = replace(run, id=f"copy-{number:03}")
        store.database.runs.write(copy.id, copy)
    with pytest.raises(AssertionError, match=r"120 things don't fit together:\n") as caught:
        await assert_consistent(store.kernel)
    lines = str(caught.value).splitlines()
    assert len(lines) == 42
    assert lines[-1] == "… and 80 more"
