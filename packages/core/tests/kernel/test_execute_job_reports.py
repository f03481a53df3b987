"""What a body says on its way: progress, annotations and log lines, written with the outcome."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from stagewright import (
    Kernel,
    NonRetryableError,
    RetryPolicy,
    StageContext,
    Suspend,
    Workflow,
    define_workflow,
)
from stagewright.annotations import Actor, TypedKey, typed_key
from stagewright.commands import ExecuteJobResult
from stagewright.definitions import NotReady
from stagewright.errors import ValueNotSerializableError
from stagewright.json_values import Json
from stagewright.memory import InMemoryPersistence
from stagewright.records import AnnotationQuery, DequeuedJob, RunRecord
from stagewright.runtime import local_executor

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
StartRun = Callable[..., Awaitable[str]]
TakeJob = Callable[[Kernel], Awaitable[DequeuedJob]]
Execute = Callable[..., Coroutine[Any, Any, ExecuteJobResult]]
Finish = Callable[[Kernel, str], Awaitable[RunRecord]]
Told = Callable[[Kernel, str], Awaitable[list[str]]]

pytestmark = pytest.mark.parametrize("transport", ["enlisting", "separate"], indirect=True)

CONFIDENCE: TypedKey[float] = typed_key("decision.confidence")


def talk(ctx: StageContext[Any]) -> None:
    ctx.annotate("first", 1, emit_event=True)
    ctx.progress(10, "reading", rows=5)
    ctx.annotate(CONFIDENCE, 0.5, actor=Actor(kind="model", id="m", version="2"), payload={"why": ["x"]})
    values: dict[str, Json] = {"second": "b", "dropped": None, "third": [3]}
    ctx.annotate_many(values, emit_event=True)
    ctx.progress(90.5)
    ctx.log("warning", "careful", left=3)


async def completes(ctx: StageContext[Any]) -> Any:
    talk(ctx)
    return "done"


async def retries(ctx: StageContext[Any]) -> Any:
    talk(ctx)
    raise ValueError("again")


async def fails(ctx: StageContext[Any]) -> Any:
    talk(ctx)
    raise NonRetryableError("over")


async def suspends(ctx: StageContext[Any]) -> Any:
    talk(ctx)
    return Suspend({"batch": 7}, poll_interval="2m", max_wait="1h")


async def not_ready(state: Any, ctx: StageContext[Any]) -> NotReady:
    return NotReady()


def batch(body: Callable[..., Any]) -> Workflow:
    return (
        define_workflow("flow", input=Any)
        .stage("s1", body, input=Any, output=Any, mode="async-batch", check_completion=not_ready)
        .build()
    )


@pytest.mark.guarantee("events.progress-outcome-annotations-in-order")
@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        (completes, ["stage:completed"]),
        (retries, ["stage:retrying"]),
        (fails, ["stage:failed"]),
        (suspends, ["stage:suspended", "workflow:suspended"]),
    ],
)
async def test_progress_comes_before_the_outcome_and_annotations_after_it(
    make_kernel: MakeKernel,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    told: Told,
    persistence: InMemoryPersistence,
    body: Callable[..., Any],
    outcome: list[str],
) -> None:
    kernel = make_kernel(batch(body))
    run_id = await start_run(kernel)
    await execute(kernel, await take_job(kernel))
    story = await told(kernel, run_id)
    expected = ["stage:progress", "stage:progress", *outcome, *["annotation:created"] * 3]
    start = story.index("stage:started") + 1
    assert story[start : start + len(expected)] == expected
    assert set(story[start + len(expected) :]) <= {"workflow:completed", "workflow:failed"}
    rows = await persistence.list_annotations(run_id, AnnotationQuery())
    values = {row.key: row.value for row in rows}
    assert values == {"first": 1, "decision.confidence": 0.5, "second": "b", "third": [3]}
    (stage,) = await kernel.runs.stages(run_id)
    for row in rows:
        assert (row.scope, row.scope_id, row.stage_record_id, row.attempt) == ("stage", "s1", stage.id, 1)
    typed = next(row for row in rows if row.key == "decision.confidence")
    assert (typed.actor, typed.payload) == (Actor(kind="model", id="m", version="2"), {"why": ["x"]})


async def test_progress_says_how_far_and_with_which_details(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, finish: Finish
) -> None:
    kernel = make_kernel(flow_of(completes))
    run_id = await start_run(kernel)
    await finish(kernel, run_id)
    first, second = [
        event.payload for event in await kernel.runs.events(run_id) if event.type == "stage:progress"
    ]
    assert (first["progress"], first["message"], first["details"]) == (10, "reading", {"rows": 5})
    assert (second["progress"], second["message"], second["details"]) == (90.5, "", None)


async def test_each_attempts_annotations_name_their_attempt(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    finish: Finish,
    persistence: InMemoryPersistence,
) -> None:
    kernel = make_kernel(flow_of(retries, retry=RetryPolicy(3)))
    run_id = await start_run(kernel)
    await finish(kernel, run_id)
    rows = await persistence.list_annotations(run_id, AnnotationQuery(key="first"))
    assert [row.attempt for row in rows] == [1, 2, 3]


async def test_log_lines_stand_before_the_engines_own(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, take_job: TakeJob, execute: Execute
) -> None:
    kernel = make_kernel(flow_of(fails))
    run_id = await start_run(kernel)
    await execute(kernel, await take_job(kernel))
    own, engines = (await kernel.runs.logs(run_id)).items
    assert (own.level, own.message, own.fields, own.stage_id) == ("WARN", "careful", {"left": 3}, "s1")
    assert engines.level == "ERROR"
    assert "attempt 1 of stage 's1' failed: NonRetryableError: over" in engines.message
    (stage,) = await kernel.runs.stages(run_id)
    assert own.stage_record_id == engines.stage_record_id == stage.id


async def test_nothing_a_body_said_is_kept_of_an_outcome_that_could_not_be_written(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    persistence: InMemoryPersistence,
    told: Told,
    fail_at: Callable[..., None],
) -> None:
    kernel = make_kernel(flow_of(completes))
    run_id = await start_run(kernel)
    job = await take_job(kernel)
    fail_at("append_annotations", error=ConnectionError("gone"))
    with pytest.raises(ConnectionError):
        await execute(kernel, job)
    assert await persistence.list_annotations(run_id, AnnotationQuery()) == []
    assert "stage:progress" not in await told(kernel, run_id)


@pytest.mark.parametrize(
    "say",
    [
        lambda ctx: ctx.annotate("k", 1, actor=Actor(kind="user", id="nul\x00")),
        lambda ctx: ctx.annotate("nul\x00", 1),
        lambda ctx: ctx.annotate("k", object()),
        lambda ctx: ctx.annotate("k", 1, payload={"a": float("nan")}),
        lambda ctx: ctx.annotate_many({"k": 1, "l": "\ud800"}),
        lambda ctx: ctx.progress(float("nan")),
        lambda ctx: ctx.log("loud", "x"),
    ],
)
async def test_what_can_not_be_said_is_an_error_in_the_body(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    say: Callable[[StageContext[Any]], None],
) -> None:
    async def body(ctx: StageContext[Any]) -> str:
        try:
            say(ctx)
        except ValueError:
            return "refused"
        except ValueNotSerializableError:
            return "refused"
        return "taken"

    kernel = make_kernel(flow_of(body))
    await start_run(kernel)
    assert (await execute(kernel, await take_job(kernel))).output == "refused"


async def test_a_value_that_the_body_changes_later_is_kept_as_it_was_said(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    finish: Finish,
    persistence: InMemoryPersistence,
) -> None:
    async def body(ctx: StageContext[Any]) -> int:
        value: list[Any] = [1]
        ctx.annotate("k", value)
        value.append(object())
        return 1

    kernel = make_kernel(flow_of(body))
    run = await finish(kernel, await start_run(kernel))
    (row,) = await persistence.list_annotations(run.id, AnnotationQuery())
    assert (run.output, row.value) == (1, [1])


@pytest.mark.guarantee("kernel.logs-are-written-while-the-body-runs")
async def test_log_lines_can_be_read_while_the_body_still_runs(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    hold_at: Callable[..., tuple[asyncio.Event, asyncio.Event]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_executor, "_LOG_INTERVAL", 0.0)
    go = asyncio.Event()

    async def body(ctx: StageContext[Any]) -> Any:
        ctx.log("info", "early")
        await go.wait()
        ctx.log("info", "late")
        return 1

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    job = await take_job(kernel)
    written, proceed = hold_at("append_logs")
    executing = asyncio.create_task(execute(kernel, job))
    await written.wait()
    proceed.set()
    for _ in range(20):
        await asyncio.sleep(0)
    assert [line.message for line in (await kernel.runs.logs(run_id)).items] == ["early"]
    go.set()
    await executing
    assert [line.message for line in (await kernel.runs.logs(run_id)).items] == ["early", "late"]
