"""Redrives at the same time as each other, as a cancel, and as outcomes of workers that nobody waits for any more."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from stagewright import Kernel, NonRetryableError, RetryPolicy, StageContext, Status, Workflow
from stagewright.commands import (
    CancelRun,
    ClaimJobs,
    ExecuteJob,
    ExecuteJobResult,
    FromStage,
    JobRef,
    LastFailure,
    ReapStaleLeases,
    RedriveRun,
    RedriveRunResult,
    Start,
)
from stagewright.errors import AfterCommitError, RunStateError
from stagewright.kernel.commands.job_enqueue_owed import EnqueueOwedJobs
from stagewright.memory import InMemoryBlobStore
from stagewright.records import DequeuedJob, RunRecord
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
Finish = Callable[[Kernel, str], Awaitable[RunRecord]]
StartRun = Callable[..., Awaitable[str]]
TakeJob = Callable[..., Awaitable[DequeuedJob]]
Execute = Callable[..., Coroutine[Any, Any, ExecuteJobResult]]
Told = Callable[[Kernel, str], Awaitable[list[str]]]
HoldAt = Callable[..., tuple[asyncio.Event, asyncio.Event]]

Ctx = StageContext[Any]
BOTH = pytest.mark.parametrize("transport", ["enlisting", "separate"], indirect=True)
ORIGINS = pytest.mark.parametrize("origin", [LastFailure(), Start(), FromStage("s1")], ids=str)


class Gates:
    """A body whose first execution waits for its gate, and ends as it is told to."""

    def __init__(self) -> None:
        self.began, self.go = asyncio.Event(), asyncio.Event()
        self.error: Exception | None = None
        self.calls = 0

    async def __call__(self, ctx: Ctx) -> Any:
        self.calls += 1
        call = self.calls
        if call == 1:
            self.began.set()
            await self.go.wait()
            if self.error is not None:
                raise self.error
        await ctx.storage.save("kept", call)
        return f"of call {call}" + "." * 200


@BOTH
@ORIGINS
@pytest.mark.guarantee("redrives.one-of-several-wins")
async def test_of_several_redrives_one_is_carried_out(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, finish: Finish, told: Told, origin: Any
) -> None:
    calls = 0

    async def body(ctx: Ctx) -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise NonRetryableError("broken")
        return calls

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    await finish(kernel, run_id)
    answers = await asyncio.gather(
        *(kernel.dispatch(RedriveRun(run_id, from_=origin)) for _ in range(6)), return_exceptions=True
    )
    won = [answer for answer in answers if isinstance(answer, RedriveRunResult)]
    lost = [answer for answer in answers if isinstance(answer, RunStateError)]
    assert ([result.redrive_count for result in won], len(lost)) == ([1], 5)
    assert {(error.run_id, error.status) for error in lost} == {(run_id, "RUNNING")}
    run = await finish(kernel, run_id)
    assert (run.status, run.output, run.redrive_count) == (Status.COMPLETED, 2, 1)
    assert (await told(kernel, run_id)).count("workflow:started") == 2


@BOTH
@ORIGINS
@pytest.mark.parametrize("ending", ["result", "failure", "last failure"])
@pytest.mark.guarantee("kernel.late-outcomes-are-refused")
async def test_an_outcome_of_before_does_not_reach_the_stage_that_was_opened_again(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    finish: Finish,
    told: Told,
    blob_store: InMemoryBlobStore,
    origin: Any,
    ending: str,
) -> None:
    body = Gates()
    body.error = {"failure": ValueError("late"), "last failure": NonRetryableError("late")}.get(ending)
    kernel = make_kernel(flow_of(body.__call__), spill_threshold_bytes=10)
    run_id = await start_run(kernel)
    job = await take_job(kernel, "before")
    zombie = asyncio.create_task(execute(kernel, job))
    await body.began.wait()
    await kernel.dispatch(CancelRun(run_id))
    await kernel.dispatch(RedriveRun(run_id, from_=origin))
    (now,) = (await kernel.dispatch(ClaimJobs("after"))).jobs
    before = await kernel.runs.stages(run_id)
    body.go.set()
    late = await zombie
    assert (late.ghost, late.ghost_reason) == (True, "orphan")
    assert await kernel.runs.stages(run_id) == before
    assert not await kernel.ports.job_transport.touch(job.job_id, job.fence)
    result = await execute(kernel, now)
    assert result.output == "of call 2" + "." * 200
    run = await finish(kernel, run_id)
    assert (run.status, run.output) == (Status.COMPLETED, "of call 2" + "." * 200)
    types = await told(kernel, run_id)
    assert types.count("stage:completed") == types.count("workflow:completed") == 1
    assert not {"stage:failed", "stage:retrying"} & set(types)
    outputs = [key async for key in blob_store.list("workflow-v2/") if "/output-" in key]
    assert len(outputs) == 1, "the late output is swept"


@BOTH
async def test_a_delivery_of_before_that_is_begun_late_is_refused(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, take_job: TakeJob, finish: Finish
) -> None:
    async def body(ctx: Ctx) -> int:
        return ctx.attempt

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    old = await take_job(kernel, "before")
    await kernel.dispatch(CancelRun(run_id))
    await kernel.dispatch(RedriveRun(run_id))
    command = ExecuteJob(run_id, "flow", "s1", job=JobRef(old.job_id, old.fence))
    if kernel.ports.transport_enlists:
        assert (await kernel.dispatch(command)).ghost
    else:
        # The transport can't be asked in the transaction; its own answer is that the delivery is superseded.
        assert not await kernel.ports.job_transport.touch(old.job_id, old.fence)
    run = await finish(kernel, run_id)
    assert (run.status, run.redrive_count) == (Status.COMPLETED, 1)


@pytest.mark.guarantee("redrives.late-deeds-spare-the-next-attempt")
@pytest.mark.parametrize("transport", ["separate"], indirect=True)
async def test_a_reaper_that_was_held_up_leaves_the_next_attempt_alone(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    hold_at: HoldAt,
    finish: Finish,
    clock: FakeClock,
) -> None:
    async def echo(ctx: Ctx) -> Any:
        return ctx.attempt

    kernel = make_kernel(flow_of(echo, retry=RetryPolicy(max_worker_losses=1)))
    run_id = await start_run(kernel)
    await take_job(kernel, "lost")
    clock.advance("46s")
    reached, go = hold_at("lock_runs")
    reaping = asyncio.create_task(kernel.dispatch(ReapStaleLeases("45s")))
    await reached.wait()
    assert (await kernel.dispatch(CancelRun(run_id))).cancelled
    await kernel.dispatch(RedriveRun(run_id))
    go.set()
    await reaping
    (stage,) = await kernel.runs.stages(run_id)
    assert (stage.status, stage.attempt, stage.error) == (Status.PENDING, 2, None)
    assert (await finish(kernel, run_id)).output == 2


@pytest.mark.guarantee("redrives.late-deeds-spare-the-next-attempt")
@pytest.mark.parametrize("transport", ["separate"], indirect=True)
async def test_a_job_that_a_late_cancel_takes_from_a_redrive_is_owed(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    hold_at: HoldAt,
    finish: Finish,
    clock: FakeClock,
) -> None:
    async def echo(ctx: Ctx) -> Any:
        return ctx.attempt

    kernel = make_kernel(flow_of(echo))
    run_id = await start_run(kernel)
    reached, go = hold_at("cancel_by_run")
    cancelling = asyncio.create_task(kernel.dispatch(CancelRun(run_id)))
    await reached.wait()
    await kernel.dispatch(RedriveRun(run_id))
    go.set()
    assert (await cancelling).cancelled
    clock.advance("5s")
    assert (await kernel.dispatch(EnqueueOwedJobs())).enqueued == 1
    assert (await finish(kernel, run_id)).output == 2


@pytest.mark.guarantee("redrives.late-deeds-spare-the-next-attempt")
@pytest.mark.parametrize("transport", ["separate"], indirect=True)
async def test_a_job_that_a_late_redrive_takes_from_the_next_one_is_owed(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    hold_at: HoldAt,
    finish: Finish,
    clock: FakeClock,
) -> None:
    async def echo(ctx: Ctx) -> Any:
        return ctx.attempt

    kernel = make_kernel(flow_of(echo, echo))
    run_id = await start_run(kernel)
    await finish(kernel, run_id)
    reached, go = hold_at("delete_by_run_and_stages")
    late = asyncio.create_task(kernel.dispatch(RedriveRun(run_id, from_=Start())))
    await reached.wait()
    clock.advance("5s")
    assert (await kernel.dispatch(EnqueueOwedJobs())).enqueued == 1
    await execute(kernel, await take_job(kernel))
    assert (await kernel.dispatch(CancelRun(run_id))).cancelled
    assert (await kernel.dispatch(RedriveRun(run_id))).from_stage_id == "s2"
    go.set()
    assert (await late).redrive_count == 1
    clock.advance("5s")
    assert (await kernel.dispatch(EnqueueOwedJobs())).enqueued == 1
    assert (await finish(kernel, run_id)).output == 3


@BOTH
async def test_the_budget_of_a_redriven_stage_is_whole(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, finish: Finish
) -> None:
    attempts: list[int] = []

    async def body(ctx: Ctx) -> None:
        attempts.append(ctx.attempt)
        raise ValueError("never")

    kernel = make_kernel(flow_of(body, retry=RetryPolicy(3, delay=0)))
    run_id = await start_run(kernel)
    await finish(kernel, run_id)
    await kernel.dispatch(RedriveRun(run_id))
    assert (await finish(kernel, run_id)).status is Status.FAILED
    assert attempts == [1, 2, 3, 4, 5, 6]


@BOTH
@pytest.mark.guarantee("kernel.cancel-tells-the-truth")
async def test_a_cancel_and_a_redrive_of_one_run_agree_on_what_came_last(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, finish: Finish, told: Told
) -> None:
    async def body(ctx: Ctx) -> int:
        return 1

    kernel = make_kernel(flow_of(body))
    for turn in range(12):
        run_id = await start_run(kernel)
        await finish(kernel, run_id)
        commands: list[Any] = [RedriveRun(run_id, from_=Start()), CancelRun(run_id)]
        redriven, cancel = await asyncio.gather(
            *(asyncio.create_task(_later(kernel, one, n * turn)) for n, one in enumerate(commands))
        )
        assert redriven.redrive_count == 1
        run = await kernel.runs.get(run_id)
        assert run is not None
        assert run.status is (Status.CANCELLED if cancel.cancelled else Status.RUNNING)
        assert ("workflow:cancelled" in await told(kernel, run_id)) is cancel.cancelled
        if cancel.cancelled:
            await kernel.dispatch(RedriveRun(run_id))
        assert (await finish(kernel, run_id)).status is Status.COMPLETED


async def _later(kernel: Kernel, command: Any, turns: int) -> Any:
    for _ in range(turns):
        await asyncio.sleep(0)
    return await kernel.dispatch(command)


@pytest.mark.parametrize("transport", ["separate"], indirect=True)
async def test_a_job_that_could_not_be_enqueued_is_owed(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    finish: Finish,
    fail_at: Callable[..., None],
    clock: FakeClock,
) -> None:
    async def body(ctx: Ctx) -> int:
        return ctx.attempt

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    await finish(kernel, run_id)
    fail_at("enqueue_parallel", error=OSError("the queue is gone"))
    with pytest.raises(AfterCommitError, match="the queue is gone"):
        await kernel.dispatch(RedriveRun(run_id))
    assert (await kernel.dispatch(ClaimJobs("w"))).jobs == ()
    clock.advance("5s")
    await kernel.dispatch(EnqueueOwedJobs())
    assert (await finish(kernel, run_id)).output == 2


@BOTH
async def test_blobs_of_the_next_attempt_outlive_a_slow_sweep(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    finish: Finish,
    hold_at: HoldAt,
    blob_store: InMemoryBlobStore,
) -> None:
    async def body(ctx: Ctx) -> str:
        await ctx.storage.save(f"of-{ctx.attempt}", 1)
        return "x" * 300

    kernel = make_kernel(flow_of(body), spill_threshold_bytes=10)
    run_id = await start_run(kernel)
    await finish(kernel, run_id)
    reached, go = hold_at("blob_store.delete_many")
    redrive = asyncio.create_task(kernel.dispatch(RedriveRun(run_id, from_=Start())))
    await reached.wait()
    if kernel.ports.transport_enlists:
        assert (await finish(kernel, run_id)).output == "x" * 300
    go.set()
    await redrive
    assert (await finish(kernel, run_id)).output == "x" * 300
    kept = [key.rpartition("/")[2] async for key in blob_store.list(f"workflow-v2/flow/{run_id}/s1/storage/")]
    assert kept == ["of-2"]
    assert len([key async for key in blob_store.list("workflow-v2/")]) == 2


async def test_a_blob_store_that_is_gone_does_not_keep_a_run_from_going_on(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    finish: Finish,
    fail_at: Callable[..., None],
) -> None:
    async def body(ctx: Ctx) -> int:
        await ctx.storage.save("kept", 1)
        return ctx.attempt

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    await finish(kernel, run_id)
    for moment in ("blob_store.list", "blob_store.delete_many"):
        fail_at(moment, error=OSError("gone"))
        await kernel.dispatch(RedriveRun(run_id, from_=Start()))
        await finish(kernel, run_id)
    run = await kernel.runs.get(run_id)
    assert run is not None
    assert run.output == 3
