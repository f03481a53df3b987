"""Whole runs on every database: what the kernel promises of its memory stores holds here unchanged."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stagewright import (
    Kernel,
    NonRetryableError,
    NotReady,
    RetryPolicy,
    StageContext,
    Status,
    Suspend,
    define_stage,
    define_workflow,
)
from stagewright.annotations import Actor
from stagewright.commands import (
    AnnotationInput,
    CancelRun,
    ClaimJobs,
    ClaimPendingRuns,
    CreateRun,
    FlushOutbox,
)
from stagewright.events import Event
from stagewright.hosting import drive_run
from stagewright.hosting.job_runner import run_job
from stagewright.records import AnnotationQuery, RunRecord
from stagewright.testing import CollectingEventSink
from stagewright_persistence_sqlalchemy import Database

MakeKernel = Callable[..., Kernel]
CheckRun = Callable[..., Coroutine[Any, Any, RunRecord]]
DeliverAll = Callable[[Kernel], Awaitable[None]]

SOON = RetryPolicy(3, delay="1ms", jitter=False)
LINEAR = [
    "workflow:created",
    "workflow:started",
    *["stage:started", "stage:completed"] * 3,
    "workflow:completed",
]

STRICT = [
    pytest.param(f"{driver} at repeatable read", marks=pytest.mark.slow) for driver in ("asyncpg", "psycopg")
]
every_driver = pytest.mark.parametrize(
    "way",
    [
        *("sqlite", "asyncpg", "psycopg", "mariadb", "asyncpg named"),
        *(pytest.param(f"{way} named", marks=pytest.mark.wide) for way in ("sqlite", "psycopg", "mariadb")),
        *STRICT,
    ],
    indirect=True,
)


async def add_one(ctx: StageContext[Any]) -> Any:
    return ctx.input + 1


@every_driver
async def test_a_linear_run_is_driven_to_its_end(
    database: Database, make_kernel: MakeKernel, check_run: CheckRun
) -> None:
    workflow = define_workflow("flow", input=Any)
    for number in range(3):
        workflow = workflow.stage(f"s{number}", add_one, input=Any, output=Any)
    kernel = make_kernel(database, workflow.build())
    begun = datetime.now(UTC)
    created = await kernel.dispatch(CreateRun("flow", 1, priority=7))
    seen: list[Event] = []
    await drive_run(kernel, created.run_id, on_event=seen.append)
    run = await check_run(kernel, created.run_id)
    assert [event.type for event in seen] == LINEAR
    assert (run.output, run.priority, run.error) == (4, 7, None)
    assert run.started_at is not None
    assert run.completed_at is not None
    assert begun <= run.created_at <= run.started_at <= run.completed_at <= datetime.now(UTC)
    assert run.duration == run.completed_at - run.started_at
    assert {stage.status for stage in await kernel.runs.stages(run.id)} == {Status.COMPLETED}
    jobs = await kernel.ports.job_transport.get_jobs_by_run(run.id)
    assert [(job.status, job.deliveries, job.worker_id) for job in jobs] == [
        (Status.COMPLETED, 1, "drive")
    ] * 3


@every_driver
async def test_groups_retries_and_everything_a_body_leaves_behind(
    database: Database, make_kernel: MakeKernel, check_run: CheckRun
) -> None:
    async def flaky(ctx: StageContext[Any]) -> Any:
        ctx.log("info", f"{ctx.stage_id} attempt {ctx.attempt}", amount=ctx.input)
        ctx.progress(50, "half")
        if ctx.stage_id == "b" and ctx.attempt < 3:
            raise ValueError(f"attempt {ctx.attempt}")
        ctx.annotate(
            "size", ctx.input, actor=Actor(kind="user", id="u1"), payload={"by": 1.0}, emit_event=True
        )
        await ctx.storage.save("kept", {"n": ctx.input})
        return "x" * 2_000 if ctx.stage_id == "c" else len(ctx.stage_id)

    parallel = [define_stage(name, flaky, input=Any, output=Any, retry=SOON) for name in ("b", "c")]

    async def last(ctx: StageContext[Any]) -> Any:
        return {"b": ctx.input["b"], "c": len(ctx.input["c"])}

    workflow = (
        define_workflow("flow", input=Any).parallel(*parallel).stage("d", last, input=Any, output=Any).build()
    )
    kernel = make_kernel(database, workflow, spill_threshold_bytes=1_000)
    command = CreateRun(
        "flow", 5, annotations=[AnnotationInput(attributes={"origin": "test", "left.out": None})]
    )
    created = await kernel.dispatch(command)
    await drive_run(kernel, created.run_id)
    run = await check_run(kernel, created.run_id)
    assert run.output == {"b": 1, "c": 2_000}
    events = Counter(event.type for event in await kernel.runs.events(run.id))
    wanted = {"stage:retrying": 2, "annotation:created": 2, "stage:progress": 4, "stage:completed": 3}
    assert {kind: events[kind] for kind in wanted} == wanted
    lines = (await kernel.runs.logs(run.id)).items
    texts = [line.message for line in lines if line.stage_id == "b" and line.level == "INFO"]
    assert texts == [f"b attempt {attempt}" for attempt in (1, 2, 3)]
    assert [line.level for line in lines].count("WARN") == 2
    annotations = await kernel.ports.persistence.list_annotations(run.id, AnnotationQuery())
    assert [one.key for one in annotations].count("size") == 2
    of_b = next(one for one in annotations if one.scope_id == "b")
    assert (of_b.attempt, of_b.value, of_b.payload, of_b.actor) == (
        3,
        5,
        {"by": 1.0},
        Actor(kind="user", id="u1"),
    )
    stored = await kernel.ports.persistence.get_stage(run.id, "c")
    assert stored is not None
    assert stored.output_claim is not None
    assert stored.output is None
    assert await kernel.runs.output_of(run.id, "c") == "x" * 2_000


async def test_failures_end_a_run_once_its_budget_is_spent(
    database: Database, make_kernel: MakeKernel, check_run: CheckRun
) -> None:
    bodies: Counter[str] = Counter()

    async def fails(ctx: StageContext[Any]) -> Any:
        bodies[ctx.run_id] += 1
        raise ValueError("no") if ctx.input else NonRetryableError("never")

    workflow = define_workflow("flow", input=Any).stage("s", fails, input=Any, output=Any, retry=SOON).build()
    kernel = make_kernel(database, workflow)
    tried, refused = [(await kernel.dispatch(CreateRun("flow", value))).run_id for value in (True, False)]
    for run_id, times, message in ((tried, 3, "no"), (refused, 1, "never")):
        await drive_run(kernel, run_id)
        run = await check_run(kernel, run_id, (Status.FAILED,))
        assert run.error is not None
        assert message in run.error.message
        assert bodies[run_id] == times
        (job,) = await kernel.ports.job_transport.get_jobs_by_run(run_id)
        assert (job.status, job.failures) == (Status.FAILED, times)
        assert [line.level for line in (await kernel.runs.logs(run_id)).items] == ["WARN"] * (times - 1) + [
            "ERROR"
        ]


async def test_a_cancel_refuses_the_outcome_of_a_running_body(
    database: Database, make_kernel: MakeKernel, check_run: CheckRun, deliver_all: DeliverAll
) -> None:
    inside, go = asyncio.Event(), asyncio.Event()

    async def waits(ctx: StageContext[Any]) -> Any:
        inside.set()
        await go.wait()
        return "too late"

    workflow = define_workflow("flow", input=Any)
    workflow = workflow.stage("s", waits, input=Any, output=Any).stage("t", waits, input=Any, output=Any)
    kernel = make_kernel(database, workflow.build())
    created = await kernel.dispatch(CreateRun("flow"))
    await kernel.dispatch(ClaimPendingRuns("w"))
    (job,) = (await kernel.dispatch(ClaimJobs("w"))).jobs
    body = asyncio.create_task(run_job(kernel, job))
    await inside.wait()
    assert (await kernel.dispatch(CancelRun(created.run_id, reason="enough"))).cancelled
    assert not (await kernel.dispatch(CancelRun(created.run_id))).cancelled
    go.set()
    await body
    await deliver_all(kernel)
    run = await check_run(kernel, created.run_id, (Status.CANCELLED,))
    assert run.output is None
    assert [stage.status for stage in await kernel.runs.stages(run.id)] == [Status.CANCELLED]
    assert (await kernel.dispatch(ClaimJobs("w", limit=5))).jobs == ()


async def test_a_refused_event_waits_and_is_told_in_its_place(
    database: Database, make_kernel: MakeKernel, sink: CollectingEventSink, check_run: CheckRun
) -> None:
    kernel = make_kernel(
        database, define_workflow("flow", input=Any).stage("s", add_one, input=Any, output=Any).build()
    )
    created = await kernel.dispatch(CreateRun("flow", 1))
    other = await kernel.dispatch(CreateRun("flow", 1))
    sink.fail_with(ConnectionError("down"), times=1)
    first = await kernel.dispatch(FlushOutbox())
    assert (first.published, first.failed, first.event_sink_status) == (1, 1, "degraded")
    refused = created.run_id if sink.events[0].run_id == other.run_id else other.run_id
    async with asyncio.timeout(10):
        await drive_run(kernel, created.run_id)
        await drive_run(kernel, other.run_id)
        while not sink.types(refused):
            await asyncio.sleep(0.05)
            await kernel.dispatch(FlushOutbox())
    for run_id in (created.run_id, other.run_id):
        await check_run(kernel, run_id)
    record = (await kernel.runs.events(refused))[0]
    assert (record.retry_count, record.published_at is not None) == (1, True)
    assert record.last_error is not None
    assert "down" in record.last_error


async def test_a_suspended_run_keeps_its_state_and_its_time(
    database: Database, make_kernel: MakeKernel
) -> None:
    async def start(ctx: StageContext[Any]) -> Any:
        return Suspend({"at": 1.0}, poll_interval="1h")

    async def look(state: Any, ctx: StageContext[Any]) -> Any:
        return NotReady()

    waits = define_stage("s", start, input=Any, output=Any, mode="async-batch", check_completion=look)
    kernel = make_kernel(database, define_workflow("flow", input=Any).pipe(waits).build())
    created = await kernel.dispatch(CreateRun("flow", 1))
    await kernel.dispatch(ClaimPendingRuns("w"))
    (job,) = (await kernel.dispatch(ClaimJobs("w"))).jobs
    before = datetime.now(UTC)
    await run_job(kernel, job)
    stage = await kernel.ports.persistence.get_stage(created.run_id, "s")
    assert stage is not None
    assert (stage.status, stage.suspended_state) == (Status.SUSPENDED, {"at": 1.0})
    assert stage.next_poll_at is not None
    assert before <= stage.next_poll_at - timedelta(hours=1) <= datetime.now(UTC)
    (stored,) = await kernel.ports.job_transport.get_jobs_by_run(created.run_id)
    assert (stored.status, stored.due_at, stored.worker_id) == (Status.SUSPENDED, stage.next_poll_at, None)
