"""A cancel in every window of an execution: the answer and the final state always agree."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stagewright import (
    Kernel,
    RetryPolicy,
    StageContext,
    StageResult,
    Status,
    Suspend,
    Workflow,
    define_stage,
    define_workflow,
)
from stagewright.commands import CancelRun, ExecuteJob, ExecuteJobResult, JobRef
from stagewright.definitions import NotReady
from stagewright.memory import InMemoryBlobStore, InMemoryJobTransport, InMemoryPersistence
from stagewright.records import AnnotationQuery, DequeuedJob, RunPatch, RunRecord
from stagewright.runtime.abort import AbortSource
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
StartRun = Callable[..., Awaitable[str]]
TakeJob = Callable[[Kernel], Awaitable[DequeuedJob]]
HoldAt = Callable[..., tuple[asyncio.Event, asyncio.Event]]
Told = Callable[[Kernel, str], Awaitable[list[str]]]
Statuses = Callable[[Kernel, str], Awaitable[dict[str, Status]]]

pytestmark = pytest.mark.parametrize("transport", ["enlisting", "separate"], indirect=True)

AFTER_CANCEL = {
    "stage:completed",
    "stage:failed",
    "stage:retrying",
    "stage:suspended",
    "workflow:completed",
    "workflow:failed",
}


async def completes(ctx: StageContext[Any]) -> Any:
    return StageResult(output="x" * 100, artifacts={"a": 1})


async def fails(ctx: StageContext[Any]) -> Any:
    raise ValueError("no")


async def suspends(ctx: StageContext[Any]) -> Any:
    return Suspend({"id": 1})


async def not_ready(state: Any, ctx: StageContext[Any]) -> NotReady:
    return NotReady()


def command(job: DequeuedJob, **fields: Any) -> ExecuteJob:
    return ExecuteJob(job.run_id, job.workflow_id, job.stage_id, job=JobRef(job.job_id, job.fence), **fields)


def chatty(ending: Callable[..., Any], inside: asyncio.Event, go: asyncio.Event) -> Workflow:
    """A workflow whose first body says something, waits to be let go, and ends in the given way."""

    async def body(ctx: StageContext[Any]) -> Any:
        ctx.annotate("seen", 1, emit_event=True)
        ctx.progress(50)
        ctx.log("info", "inside")
        inside.set()
        await go.wait()
        return await ending(ctx)

    first = define_stage("s1", body, input=Any, output=Any, mode="async-batch", check_completion=not_ready)
    return (
        define_workflow("flow", input=Any).pipe(first).stage("s2", completes, input=Any, output=Any).build()
    )


@pytest.mark.guarantee("kernel.cancelled-runs-stay-cancelled")
@pytest.mark.parametrize("ending", [completes, fails, suspends])
async def test_a_cancel_during_the_body_discards_its_outcome(
    make_kernel: MakeKernel,
    start_run: StartRun,
    take_job: TakeJob,
    told: Told,
    statuses: Statuses,
    persistence: InMemoryPersistence,
    blob_store: InMemoryBlobStore,
    transport: InMemoryJobTransport,
    ending: Callable[..., Any],
) -> None:
    inside, go = asyncio.Event(), asyncio.Event()
    kernel = make_kernel(chatty(ending, inside, go), spill_threshold_bytes=10)
    run_id = await start_run(kernel)
    executing = asyncio.create_task(kernel.dispatch(command(await take_job(kernel))))
    await inside.wait()
    assert (await kernel.dispatch(CancelRun(run_id, reason="enough"))).cancelled
    go.set()
    result = await executing
    assert (result.outcome, result.ghost, result.ghost_reason) == ("failed", True, "orphan")
    assert await statuses(kernel, run_id) == {"s1": Status.CANCELLED}
    story = await told(kernel, run_id)
    assert story[-1] == "workflow:cancelled"
    assert not AFTER_CANCEL & set(story)
    assert not {"stage:progress", "annotation:created"} & set(story)
    assert await persistence.list_annotations(run_id, AnnotationQuery()) == []
    assert [line.message for line in (await kernel.runs.logs(run_id)).items] == ["inside"]
    assert [key async for key in blob_store.list("")] == []
    (job,) = await transport.get_jobs_by_run(run_id)
    assert job.status is Status.RUNNING, "a running job is its worker's to settle"


async def test_a_cancel_before_the_execution_keeps_the_body_from_running(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    statuses: Statuses,
    hold_at: HoldAt,
) -> None:
    async def never(ctx: StageContext[Any]) -> Any:
        pytest.fail("the body ran")

    kernel = make_kernel(flow_of(never))
    run_id = await start_run(kernel)
    job = await take_job(kernel)
    reached, go = hold_at("load_runs")
    executing = asyncio.create_task(kernel.dispatch(command(job)))
    await reached.wait()
    await kernel.dispatch(CancelRun(run_id))
    go.set()
    assert (await executing).ghost_reason == "orphan"
    assert await statuses(kernel, run_id) == {"s1": Status.CANCELLED}


@pytest.mark.guarantee("kernel.cancel-tells-the-truth")
@pytest.mark.parametrize("ending", [completes, fails, suspends])
@pytest.mark.parametrize("nth", range(1, 40))
async def test_a_cancel_at_any_moment_agrees_with_the_final_state(
    make_kernel: MakeKernel,
    start_run: StartRun,
    take_job: TakeJob,
    told: Told,
    statuses: Statuses,
    hold_at: HoldAt,
    blob_store: InMemoryBlobStore,
    persistence: InMemoryPersistence,
    ending: Callable[..., Any],
    nth: int,
) -> None:
    go_at_once = asyncio.Event()
    go_at_once.set()
    workflow = chatty(ending, asyncio.Event(), go_at_once)
    kernel = make_kernel(
        define_workflow("flow", input=Any).pipe(workflow.stages[0]).build(), spill_threshold_bytes=10
    )
    run_id = await start_run(kernel)
    job = await take_job(kernel)
    reached, go = hold_at("*", nth=nth)
    executing = asyncio.create_task(kernel.dispatch(command(job)))
    await asyncio.wait({executing, asyncio.create_task(reached.wait())}, return_when="FIRST_COMPLETED")
    cancelling = asyncio.create_task(kernel.dispatch(CancelRun(run_id)))
    for _ in range(20):
        await asyncio.sleep(0)
    go.set()
    reached.set()
    result, answer = await executing, await cancelling
    run = await kernel.runs.get(run_id)
    assert run is not None
    story = await told(kernel, run_id)
    assert (run.status is Status.CANCELLED) is answer.cancelled
    assert ("workflow:cancelled" in story) is answer.cancelled
    assert [event.sequence for event in await kernel.runs.events(run_id)] == list(range(1, len(story) + 1))
    if answer.cancelled:
        assert story[-1] == "workflow:cancelled"
        assert Status.RUNNING not in (await statuses(kernel, run_id)).values()
        assert Status.PENDING not in (await statuses(kernel, run_id)).values()
        assert Status.SUSPENDED not in (await statuses(kernel, run_id)).values()
    else:
        assert run.status in (Status.COMPLETED, Status.FAILED)
    (stage,) = await persistence.get_stages_by_run(run_id)
    stored = {
        claim.key
        for claim in (*stage.artifacts.values(), *([stage.output_claim] if stage.output_claim else []))
    }
    assert {key async for key in blob_store.list("")} == stored
    assert result.ghost is not bool(AFTER_CANCEL & set(story))


async def test_cancels_and_outcomes_that_race_always_agree(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, take_job: TakeJob, told: Told
) -> None:
    kernel = make_kernel(flow_of(completes))
    ended: set[Status] = set()
    for steps in range(60):
        run_id = await start_run(kernel)
        job = await take_job(kernel)

        async def cancel(run_id: str = run_id, steps: int = steps) -> bool:
            for _ in range(steps):
                await asyncio.sleep(0)
            return (await kernel.dispatch(CancelRun(run_id))).cancelled

        result, cancelled = await asyncio.gather(kernel.dispatch(command(job)), cancel())
        run = await kernel.runs.get(run_id)
        assert run is not None
        assert (run.status is Status.CANCELLED) is cancelled
        assert result.ghost == ("stage:completed" not in await told(kernel, run_id))
        ended.add(run.status)
    assert Status.CANCELLED in ended


async def test_a_cancel_between_retries_ends_the_run_for_good(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Callable[..., Awaitable[ExecuteJobResult]],
    finish: Callable[[Kernel, str], Awaitable[RunRecord]],
    transport: InMemoryJobTransport,
) -> None:
    kernel = make_kernel(flow_of(fails, retry=RetryPolicy(5)))
    run_id = await start_run(kernel)
    assert (await execute(kernel, await take_job(kernel))).will_retry
    assert (await kernel.dispatch(CancelRun(run_id))).cancelled
    (job,) = await transport.get_jobs_by_run(run_id)
    assert job.status is Status.CANCELLED
    assert (await finish(kernel, run_id)).status is Status.CANCELLED


@pytest.mark.parametrize("status", [Status.FAILED, Status.CANCELLED])
@pytest.mark.parametrize("moment", ["before the start", "during the body"])
@pytest.mark.tampers
async def test_a_run_that_ended_in_any_way_takes_no_outcome(
    make_kernel: MakeKernel,
    start_run: StartRun,
    take_job: TakeJob,
    told: Told,
    persistence: InMemoryPersistence,
    clock: FakeClock,
    hold_at: HoldAt,
    status: Status,
    moment: str,
) -> None:
    inside, go = asyncio.Event(), asyncio.Event()
    kernel = make_kernel(chatty(completes, inside, go))
    run_id = await start_run(kernel)
    job = await take_job(kernel)
    early = moment == "before the start" and not kernel.ports.transport_enlists
    reached, proceed = hold_at("begin") if early else (inside, go)
    executing = asyncio.create_task(kernel.dispatch(command(job)))
    await reached.wait()
    await persistence.update_run(run_id, RunPatch(updated_at=clock.now(), status=status))
    proceed.set()
    go.set()
    result = await executing
    assert (result.ghost, result.ghost_reason) == (True, "orphan")
    assert "stage:completed" not in await told(kernel, run_id)
    assert ("stage:started" in await told(kernel, run_id)) is not early


async def test_a_stage_that_ended_meanwhile_is_not_started_again(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, statuses: Statuses, hold_at: HoldAt
) -> None:
    calls: list[int] = []

    async def count(ctx: StageContext[Any]) -> int:
        calls.append(ctx.attempt)
        return 1

    kernel = make_kernel(flow_of(count))
    run_id = await start_run(kernel)
    reached, go = hold_at("begin")
    late = asyncio.create_task(kernel.dispatch(ExecuteJob(run_id, "flow", "s1")))
    await reached.wait()
    assert (await kernel.dispatch(ExecuteJob(run_id, "flow", "s1"))).outcome == "completed"
    go.set()
    assert (await late).ghost_reason == "orphan"
    assert await statuses(kernel, run_id) == {"s1": Status.COMPLETED}
    assert calls == [1]


# The abort signal


@pytest.mark.guarantee("kernel.aborted-outcomes-are-discarded")
@pytest.mark.parametrize(
    ("reason", "ghost"), [("cancelled", "orphan"), ("lease-lost", "race"), ("shutdown", "race")]
)
async def test_an_outcome_that_comes_after_the_abort_signal_is_discarded(
    make_kernel: MakeKernel,
    start_run: StartRun,
    take_job: TakeJob,
    statuses: Statuses,
    blob_store: InMemoryBlobStore,
    reason: Any,
    ghost: str,
) -> None:
    inside, go, abort = asyncio.Event(), asyncio.Event(), AbortSource()
    kernel = make_kernel(chatty(completes, inside, go), spill_threshold_bytes=10)
    run_id = await start_run(kernel)
    executing = asyncio.create_task(kernel.dispatch(command(await take_job(kernel), abort=abort)))
    await inside.wait()
    abort.set(reason)
    go.set()
    result = await executing
    assert (result.outcome, result.ghost, result.ghost_reason) == ("failed", True, ghost)
    assert reason in str(result.error)
    assert await statuses(kernel, run_id) == {"s1": Status.RUNNING}
    assert [line.message for line in (await kernel.runs.logs(run_id)).items] == ["inside"]
    assert [key async for key in blob_store.list("")] == []


async def test_a_body_sees_the_signal_it_was_started_with(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, take_job: TakeJob
) -> None:
    abort = AbortSource()

    async def body(ctx: StageContext[Any]) -> Any:
        assert not ctx.abort.is_set
        abort.set("shutdown")
        assert (ctx.abort.is_set, ctx.abort.reason) == (True, "shutdown")
        await ctx.abort.wait()
        ctx.abort.raise_if_set()

    kernel = make_kernel(flow_of(body))
    await start_run(kernel)
    result = await kernel.dispatch(command(await take_job(kernel), abort=abort))
    assert (result.ghost, result.ghost_reason) == (True, "race")


async def test_a_signal_that_is_set_in_time_but_never_is_changes_nothing(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, take_job: TakeJob
) -> None:
    kernel = make_kernel(flow_of(completes))
    await start_run(kernel)
    assert (
        await kernel.dispatch(command(await take_job(kernel), abort=AbortSource()))
    ).outcome == "completed"
