"""`job.execute` when all goes well: its three phases, what a body is given, and how a run is moved on."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from stagewright import (
    BlockingStageContext,
    Kernel,
    StageContext,
    StageResult,
    Status,
    Workflow,
    define_stage,
    define_workflow,
    open_kernel,
    stage,
)
from stagewright.commands import CreateRun, ExecuteJob, ExecuteJobResult, JobRef
from stagewright.errors import InvalidCommandError, RunNotFoundError, UnknownStageError, UnknownWorkflowError
from stagewright.hosting.drive import drive_run
from stagewright.memory import InMemoryBlobStore, InMemoryJobTransport, InMemoryPersistence
from stagewright.plugins import PluginSet
from stagewright.records import DequeuedJob, RunRecord
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
StartRun = Callable[..., Awaitable[str]]
TakeJob = Callable[[Kernel], Awaitable[DequeuedJob]]
Execute = Callable[..., Awaitable[ExecuteJobResult]]
Finish = Callable[[Kernel, str], Awaitable[RunRecord]]
Told = Callable[[Kernel, str], Awaitable[list[str]]]

pytestmark = pytest.mark.parametrize("transport", ["enlisting", "separate"], indirect=True)


class Order(BaseModel):
    amounts: list[float]


class PriceConfig(BaseModel):
    factor: float = 1.0


class Priced(BaseModel):
    total: float


@stage("price")
async def price(ctx: StageContext[Order, PriceConfig]) -> Priced:
    return Priced(total=sum(ctx.input.amounts) * ctx.config.factor)


@stage("label")
def label(ctx: BlockingStageContext[Priced]) -> str:
    return f"{ctx.input.total:.2f}"


@stage("double")
async def double(ctx: StageContext[Priced]) -> Priced:
    return Priced(total=ctx.input.total * 2)


@stage("report", dependencies=[price])
async def report(ctx: StageContext[dict[str, Any]]) -> list[Any]:
    assert isinstance(ctx.workflow_input, Order)
    return [ctx.input, ctx.require(price).total, ctx.optional("missing"), sorted(ctx.outputs)]


ORDERS = define_workflow("orders", input=Order).pipe(price).parallel(label, double).pipe(report).build()


@pytest.mark.guarantee("kernel.groups-run-in-order")
async def test_a_run_goes_through_its_groups_to_its_output(
    make_kernel: MakeKernel, start_run: StartRun, finish: Finish, clock: FakeClock
) -> None:
    kernel = make_kernel(ORDERS)
    config = {"price": {"factor": 2}}
    run_id = await start_run(kernel, {"amounts": [1, 2.5]}, workflow_id="orders", config=config)
    run = await finish(kernel, run_id)
    assert run.status is Status.COMPLETED
    assert run.output == [
        {"label": "7.00", "double": {"total": 14.0}},
        7.0,
        None,
        ["double", "label", "price"],
    ]
    assert (run.error, run.completed_at, run.duration) == (None, clock.now(), timedelta(0))
    assert [await kernel.runs.output_of(run_id, one) for one in ("price", "label")] == [
        {"total": 7.0},
        "7.00",
    ]
    stages = await kernel.runs.stages(run_id)
    assert [(one.stage_id, one.execution_group, one.stage_number) for one in stages] == [
        ("price", 1, 1),
        ("label", 2, 2),
        ("double", 2, 3),
        ("report", 3, 4),
    ]
    assert {(one.status, one.attempt, one.error) for one in stages} == {(Status.COMPLETED, 1, None)}


async def test_the_events_of_a_run_tell_its_story_in_order(
    make_kernel: MakeKernel, start_run: StartRun, finish: Finish, told: Told, clock: FakeClock
) -> None:
    kernel = make_kernel(ORDERS)
    run_id = await start_run(kernel, {"amounts": [1]}, workflow_id="orders")
    await finish(kernel, run_id)
    story = await told(kernel, run_id)
    assert story[:5] == [
        "workflow:created",
        "workflow:started",
        "stage:started",
        "stage:completed",
        "stage:started",
    ]
    assert story[-3:] == ["stage:started", "stage:completed", "workflow:completed"]
    assert story.count("stage:started") == story.count("stage:completed") == 4
    events = await kernel.runs.events(run_id)
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert events[-1].payload["output"] == (await kernel.runs.output_of(run_id, "report"))


async def test_the_last_group_gives_the_output_by_stage_when_it_is_parallel(
    make_kernel: MakeKernel, start_run: StartRun, finish: Finish
) -> None:
    workflow = define_workflow("orders", input=Order).pipe(price).parallel(label, double).build()
    kernel = make_kernel(workflow)
    run = await finish(kernel, await start_run(kernel, {"amounts": [1]}, workflow_id="orders"))
    assert run.output == {"label": "1.00", "double": {"total": 2.0}}


@pytest.mark.guarantee("kernel.started-before-the-body-runs")
async def test_the_stage_is_running_for_everybody_while_its_body_runs_and_no_transaction_is_open(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    told: Told,
    persistence: InMemoryPersistence,
) -> None:
    seen: list[Any] = []

    async def look(ctx: StageContext[Any]) -> int:
        (record,) = await kernel.runs.stages(ctx.run_id)
        seen.append((record.status, record.id == ctx.stage_record_id, await told(kernel, ctx.run_id)))
        seen.append(persistence.database.locks.is_idle)
        return 1

    kernel = make_kernel(flow_of(look))
    await start_run(kernel)
    result = await execute(kernel, await take_job(kernel))
    assert result == ExecuteJobResult(outcome="completed", output=1)
    assert seen == [(Status.RUNNING, True, ["workflow:created", "workflow:started", "stage:started"]), True]


async def test_a_context_says_where_it_runs(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, finish: Finish
) -> None:
    seen: list[Any] = []

    async def look(ctx: StageContext[Any]) -> None:
        seen.append((ctx.workflow_id, ctx.stage_id, ctx.stage_name, ctx.stage_number, ctx.attempt))
        seen.append((ctx.run_id, ctx.definition_version, ctx.resume_state, ctx.abort.is_set))

    workflow = flow_of(look)
    kernel = make_kernel(workflow)
    run_id = await start_run(kernel)
    await finish(kernel, run_id)
    assert seen == [("flow", "s1", "s1", 1, 1), (run_id, workflow.definition_version, None, False)]


@pytest.mark.guarantee("kernel.outcome-and-next-group-commit-together")
async def test_the_job_is_settled_with_the_outcome(
    make_kernel: MakeKernel,
    start_run: StartRun,
    take_job: TakeJob,
    transport: InMemoryJobTransport,
    clock: FakeClock,
) -> None:
    kernel = make_kernel(ORDERS)
    run_id = await start_run(kernel, {"amounts": [1]}, workflow_id="orders")
    job = await take_job(kernel)
    clock.advance("4s")
    await kernel.dispatch(ExecuteJob(run_id, "orders", "price", job=JobRef(job.job_id, job.fence)))
    jobs = {one.stage_id: one.status for one in await transport.get_jobs_by_run(run_id)}
    assert jobs.pop("price") is Status.COMPLETED
    enlists = kernel.ports.transport_enlists
    assert jobs == {"label": Status.PENDING, "double": Status.PENDING}
    (price_record, *_) = await kernel.runs.stages(run_id)
    assert price_record.completed_at == clock.now()
    assert price_record.duration == (timedelta(seconds=4) if enlists else timedelta(0))


async def test_metrics_are_kept_and_added_up(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, finish: Finish
) -> None:
    async def measured(ctx: StageContext[Any]) -> StageResult[int]:
        return StageResult(output=1, metrics={"total_cost": 0.25, "total_tokens": 100, "note": ["x"]})

    kernel = make_kernel(flow_of(measured, measured))
    run = await finish(kernel, await start_run(kernel))
    assert (str(run.total_cost), run.total_tokens) == ("0.50", 200)
    (first, _) = await kernel.runs.stages(run.id)
    assert first.metrics == {"total_cost": 0.25, "total_tokens": 100, "note": ["x"]}


async def test_artifacts_are_stored_beside_the_output(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    finish: Finish,
    persistence: InMemoryPersistence,
    blob_store: InMemoryBlobStore,
) -> None:
    async def making(ctx: StageContext[Any]) -> StageResult[int]:
        return StageResult(output=1, artifacts={"a/b ü.json": {"rows": [1]}, "plain": "text"})

    kernel = make_kernel(flow_of(making))
    run_id = await start_run(kernel)
    await finish(kernel, run_id)
    (record,) = await persistence.get_stages_by_run(run_id)
    assert set(record.artifacts) == {"a/b ü.json", "plain"}
    claim = record.artifacts["a/b ü.json"]
    assert await blob_store.get(claim.key) == b'{"rows":[1]}'
    assert claim.size == len(b'{"rows":[1]}')
    assert claim.key.startswith(f"workflow-v2/flow/{run_id}/s1/artifacts/a%2Fb%20%C3%BC.json")


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"run_id": "unknown"}, RunNotFoundError),
        ({"workflow_id": "unknown"}, UnknownWorkflowError),
        ({"stage_id": "unknown"}, UnknownStageError),
        ({"workflow_id": "other"}, InvalidCommandError),
    ],
)
async def test_what_nobody_can_execute_is_an_error_and_writes_nothing(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    contents: Callable[[], dict[str, object]],
    fields: dict[str, Any],
    kind: type[Exception],
) -> None:
    async def never(ctx: StageContext[Any]) -> None:
        pytest.fail("the body ran")

    kernel = make_kernel(flow_of(never), flow_of(never, id="other"))
    names: dict[str, Any] = {
        "run_id": await start_run(kernel),
        "workflow_id": "flow",
        "stage_id": "s1",
    } | fields
    before = contents()
    with pytest.raises(kind):
        await kernel.dispatch(ExecuteJob(**names))
    assert contents() == before


@pytest.mark.guarantee("kernel.siblings-advance-once")
async def test_siblings_that_finish_at_once_move_the_run_on_once(
    make_kernel: MakeKernel,
    start_run: StartRun,
    execute: Execute,
    finish: Finish,
    told: Told,
    transport: InMemoryJobTransport,
) -> None:
    together = asyncio.Barrier(5)

    async def meet(ctx: StageContext[Any]) -> str:
        await together.wait()
        return ctx.stage_id

    async def join(ctx: StageContext[Any]) -> Any:
        return ctx.input

    siblings = [define_stage(f"p{number}", meet, input=Any, output=str) for number in range(5)]
    workflow = (
        define_workflow("flow", input=None)
        .parallel(*siblings)
        .stage("join", join, input=Any, output=Any)
        .build()
    )
    kernel = make_kernel(workflow)
    run_id = await start_run(kernel)
    run = await finish(kernel, run_id)
    assert run.output == {f"p{number}": f"p{number}" for number in range(5)}
    story = await told(kernel, run_id)
    assert story.count("stage:started") == 6
    assert story.count("workflow:completed") == 1
    assert len(await transport.get_jobs_by_run(run_id)) == 6


async def test_many_runs_at_once_each_come_to_their_end(
    make_kernel: MakeKernel, start_run: StartRun, finish: Finish
) -> None:
    kernel = make_kernel(ORDERS)
    runs = [await start_run(kernel, {"amounts": [n]}, workflow_id="orders") for n in range(20)]
    ended = await asyncio.gather(*(finish(kernel, run_id) for run_id in runs))
    assert [run.output[1] for run in ended if isinstance(run.output, list)] == [float(n) for n in range(20)]


@pytest.mark.parametrize("spill_threshold_bytes", [0, 65_536])
async def test_open_kernel_and_drive_run_a_workflow(transport: object, spill_threshold_bytes: int) -> None:
    seen: list[str] = []
    async with open_kernel(
        ORDERS, "memory://", plugins=PluginSet(), spill_threshold_bytes=spill_threshold_bytes
    ) as kernel:
        created = await kernel.dispatch(CreateRun("orders", {"amounts": [3]}))
        run = await drive_run(kernel, created.run_id, on_event=lambda event: seen.append(event.type))
    assert run.status is Status.COMPLETED
    assert (seen[0], seen[-1], len(seen)) == ("workflow:created", "workflow:completed", 11)


async def test_all_events_of_an_execution_share_their_cause(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, take_job: TakeJob
) -> None:
    async def body(ctx: StageContext[Any]) -> Any:
        return 1

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    command = ExecuteJob(run_id, "flow", "s1", idempotency_key="k")
    await take_job(kernel)
    await kernel.dispatch(command)
    of_stage = [event for event in await kernel.runs.events(run_id) if event.type == "stage:completed"]
    assert {event.causation_id for event in of_stage} == {"k"}
