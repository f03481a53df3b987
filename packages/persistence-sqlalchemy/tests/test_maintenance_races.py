"""Polls, reapers, cancels and workers at once over one database: every run ends once, and nothing waits for ever."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any

import pytest

from stagewright import Kernel, Ready, RetryPolicy, StageContext, Status, Suspend, Workflow, define_workflow
from stagewright.commands import (
    CancelRun,
    ClaimJobs,
    ClaimPendingRuns,
    CreateRun,
    ExecuteJob,
    JobRef,
    PollSuspendedStages,
    ReapStaleLeases,
    ReapStuckRuns,
)
from stagewright.errors import TransientError
from stagewright.kernel.commands.job_enqueue_owed import EnqueueOwedJobs
from stagewright.records import StagePatch
from stagewright_persistence_sqlalchemy import Database
from stagewright_test_support.backend_choice import stores

MakeKernel = Callable[..., Kernel]
PATIENT = RetryPolicy(max_worker_losses=10_000)

pytestmark = pytest.mark.parametrize(
    "way", stores("sqlite", "asyncpg", "psycopg", "mariadb", differ={"mariadb"}), indirect=True
)


async def echo(ctx: StageContext[Any]) -> Any:
    await asyncio.sleep(0.01)
    return ctx.input


def flow(retry: RetryPolicy) -> Workflow:
    options: dict[str, Any] = {"input": Any, "output": Any, "retry": retry}
    return define_workflow("flow", input=Any).stage("a", echo, **options).stage("b", echo, **options).build()


async def suspended(kernel: Kernel, count: int) -> list[str]:
    """Runs whose first stage waits for a moment that has come, as a durable sleep leaves it."""
    runs = [(await kernel.dispatch(CreateRun("flow", number))).run_id for number in range(count)]
    await kernel.dispatch(ClaimPendingRuns("w", max_claims=count))
    ports = kernel.ports
    for job in (await kernel.dispatch(ClaimJobs("w", limit=count))).jobs:
        stage = await ports.persistence.get_stage(job.run_id, "a")
        assert stage is not None
        now = ports.clock.now()
        waits = StagePatch(updated_at=now, status=Status.SUSPENDED, next_poll_at=now, waiting_step_id="nap")
        await ports.persistence.update_stage(stage.id, waits)
        await ports.job_transport.suspend(job.job_id, now, job.fence)
    return runs


async def test_of_many_pollers_one_hands_each_stage_over(database: Database, make_kernel: MakeKernel) -> None:
    kernels = [make_kernel(database, flow(PATIENT)) for _ in range(2)]
    runs = await suspended(kernels[0], 30)
    polls = await asyncio.gather(*(kernels[n % 2].dispatch(PollSuspendedStages()) for n in range(8)))
    polls += await asyncio.gather(*(kernels[n % 2].dispatch(PollSuspendedStages()) for n in range(8)))
    polls.append(await kernels[0].dispatch(PollSuspendedStages(max_checks=99)))
    assert sorted(run_id for poll in polls for run_id in poll.resumed_run_ids) == sorted(runs)
    jobs = (await kernels[0].dispatch(ClaimJobs("w", limit=99))).jobs
    assert sorted(job.run_id for job in jobs) == sorted(runs)
    assert {job.fence.deliveries for job in jobs} == {2}


async def test_of_a_poll_and_a_cancel_the_cancel_has_the_last_word(
    database: Database, make_kernel: MakeKernel
) -> None:
    kernel = make_kernel(database, flow(PATIENT))
    runs = await suspended(kernel, 12)
    polls = [asyncio.create_task(kernel.dispatch(PollSuspendedStages(max_checks=3))) for _ in range(6)]
    cancels = await asyncio.gather(*(kernel.dispatch(CancelRun(run_id)) for run_id in runs))
    await asyncio.gather(*polls)
    assert all(cancel.cancelled for cancel in cancels)
    for run_id in runs:
        assert [stage.status for stage in await kernel.runs.stages(run_id)] == [Status.CANCELLED]
        (job,) = await kernel.ports.job_transport.get_jobs_by_run(run_id)
        assert job.status is Status.CANCELLED
    assert (await kernel.dispatch(PollSuspendedStages())).checked == 0


async def test_of_many_reapers_one_ends_a_run_whose_workers_are_lost(
    database: Database, make_kernel: MakeKernel
) -> None:
    kernel = make_kernel(database, flow(RetryPolicy(max_worker_losses=1)))
    runs = [(await kernel.dispatch(CreateRun("flow", number))).run_id for number in range(9)]
    await kernel.dispatch(ClaimPendingRuns("w"))
    jobs = (await kernel.dispatch(ClaimJobs("lost", limit=9))).jobs
    await asyncio.sleep(0.02)
    reaps = await asyncio.gather(*(kernel.dispatch(ReapStaleLeases("10ms")) for _ in range(6)))
    assert sum(reap.expired for reap in reaps) == 9
    for run_id in runs:
        events = [event.type for event in await kernel.runs.events(run_id)]
        assert events[-2:] == ["stage:failed", "workflow:failed"]
        assert events.count("workflow:failed") == 1
        run = await kernel.runs.get(run_id)
        assert run is not None
        assert run.error is not None
        assert run.error.code == "LEASE_HEARTBEAT_LOST"
        assert "lost" in run.error.message
    for job in jobs:
        late = await kernel.dispatch(
            ExecuteJob(job.run_id, "flow", job.stage_id, job=JobRef(job.job_id, job.fence))
        )
        assert late.ghost


async def test_everything_at_once_ends_every_run_once(
    database: Database,
    make_kernel: MakeKernel,
    work_off: Callable[..., Coroutine[Any, Any, None]],
    deliver_all: Callable[[Kernel], Awaitable[None]],
    check_run: Callable[..., Coroutine[Any, Any, Any]],
) -> None:
    kernels = [make_kernel(database, flow(PATIENT)) for _ in range(2)]
    runs = await suspended(kernels[0], 12)
    over = asyncio.Event()

    async def upkeep(number: int) -> None:
        chance, kernel = Random(number), kernels[number % 2]
        commands = [
            PollSuspendedStages(max_checks=2),
            ReapStaleLeases("200ms"),
            ReapStuckRuns("2s"),
            EnqueueOwedJobs(owed_for="0s"),
        ]
        while not over.is_set():
            try:
                await kernel.dispatch(chance.choice(commands))
            except TransientError:
                continue
            await asyncio.sleep(chance.uniform(0, 0.02))

    async def cancel_some() -> None:
        for run_id in runs[::4]:
            await asyncio.sleep(0.05)
            await kernels[1].dispatch(CancelRun(run_id))

    keepers = [asyncio.create_task(upkeep(number)) for number in range(5)]
    try:
        bears = (TransientError,)
        await asyncio.gather(work_off(kernels[0], runs, workers=4, batch=2, bears=bears), cancel_some())
    finally:
        over.set()
        await asyncio.gather(*keepers)
    await deliver_all(kernels[0])
    for run_id in runs:
        await check_run(kernels[0], run_id, (Status.COMPLETED, Status.CANCELLED))


async def test_a_batch_is_asked_once_for_each_time_it_is_due(
    database: Database, make_kernel: MakeKernel, work_off: Callable[..., Coroutine[Any, Any, None]]
) -> None:
    asked: list[str] = []

    async def submits(ctx: StageContext[Any]) -> Any:
        return Suspend(ctx.input, poll_interval="0s")

    async def check(state: Any, ctx: StageContext[Any]) -> Any:
        asked.append(ctx.run_id)
        await asyncio.sleep(0.01)
        return Ready(state)

    batch = (
        define_workflow("flow", input=Any)
        .stage("a", submits, input=Any, output=Any, mode="async-batch", check_completion=check)
        .stage("b", echo, input=Any, output=Any)
        .build()
    )
    kernels = [make_kernel(database, batch) for _ in range(2)]
    runs = [(await kernels[0].dispatch(CreateRun("flow", number))).run_id for number in range(8)]
    working = asyncio.create_task(work_off(kernels[0], runs, workers=2, bears=(TransientError,)))
    while not working.done():
        await asyncio.gather(*(kernel.dispatch(PollSuspendedStages(max_checks=4)) for kernel in kernels * 2))
        await asyncio.sleep(0.01)
    await working
    assert sorted(asked) == sorted(runs)
    for number, run_id in enumerate(runs):
        run = await kernels[0].runs.get(run_id)
        assert run is not None
        assert (run.status, run.output) == (Status.COMPLETED, number)


async def test_durable_sleeps_end_in_a_job_slot_and_steps_run_once(
    database: Database,
    make_kernel: MakeKernel,
    work_off: Callable[..., Coroutine[Any, Any, None]],
    deliver_all: Callable[[Kernel], Awaitable[None]],
    check_run: Callable[..., Coroutine[Any, Any, Any]],
) -> None:
    charged: list[str] = []

    async def sleeps(ctx: StageContext[Any]) -> Any:
        async def charge() -> str:
            charged.append(ctx.run_id)
            return ctx.run_id

        receipt = await ctx.step.run("charge", charge)
        await ctx.step.sleep("nap", "20ms")
        return receipt

    workflow = define_workflow("flow", input=Any).stage("a", sleeps, input=Any, output=Any).build()
    kernels = [make_kernel(database, workflow) for _ in range(2)]
    runs = [(await kernels[0].dispatch(CreateRun("flow", number))).run_id for number in range(8)]
    working = asyncio.create_task(work_off(kernels[0], runs, workers=3, bears=(TransientError,)))
    while not working.done():
        await asyncio.gather(*(kernel.dispatch(PollSuspendedStages(max_checks=4)) for kernel in kernels * 2))
        await asyncio.sleep(0.01)
    await working
    await deliver_all(kernels[0])
    assert sorted(charged) == sorted(runs)
    for run_id in runs:
        run = await check_run(kernels[0], run_id)
        assert run.output == run_id
        started = [event.type for event in await kernels[0].runs.events(run_id)].count("stage:started")
        assert started == 1
