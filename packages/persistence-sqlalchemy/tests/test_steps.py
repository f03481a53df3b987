"""Durable steps over a database: replays, takeovers, races of two processes, and values, as in memory."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

from stagewright import Kernel, RetryPolicy, StageContext, Status, StepRun, define_workflow
from stagewright.commands import (
    ClaimJobs,
    ClaimPendingRuns,
    CreateRun,
    ExecuteJob,
    ExecuteJobResult,
    JobRef,
    PollSuspendedStages,
)
from stagewright.records import AnnotationQuery, DequeuedJob, RunRecord
from stagewright.status import TERMINAL_RUN_STATUSES
from stagewright_persistence_sqlalchemy import Database, SqlAlchemyJobTransport

OpenDatabase = Callable[..., Database]
MakeKernel = Callable[..., Kernel]
Eventually = Callable[..., Awaitable[None]]

Ctx = StageContext[Any]


class Receipt(BaseModel):
    total: Decimal
    paid_at: datetime
    raw: bytes
    tags: tuple[str, ...]


RECEIPT = Receipt(
    total=Decimal("1.10"),
    paid_at=datetime(2025, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    raw=b"\xff\x00",
    tags=("a", "b"),
)


def flow_of(body: Callable[[Ctx], Awaitable[Any]]) -> Any:
    builder = define_workflow("flow", input=Any)
    return builder.stage("s", body, input=Any, output=Any, retry=RetryPolicy(3, 100, delay=0)).build()


async def start(kernel: Kernel) -> str:
    created = await kernel.dispatch(CreateRun("flow"))
    await kernel.dispatch(ClaimPendingRuns("claimer"))
    return created.run_id


async def take(kernel: Kernel) -> DequeuedJob:
    (job,) = (await kernel.dispatch(ClaimJobs("worker"))).jobs
    return job


async def execute(kernel: Kernel, job: DequeuedJob) -> ExecuteJobResult:
    reference = JobRef(job.job_id, job.fence)
    return await kernel.dispatch(ExecuteJob(job.run_id, job.workflow_id, job.stage_id, job=reference))


async def finish(kernel: Kernel, run_id: str) -> RunRecord:
    """Work a run off in this process."""
    async with asyncio.timeout(60):
        while True:
            run = await kernel.runs.get(run_id)
            assert run is not None
            if run.status in TERMINAL_RUN_STATUSES:
                return run
            await kernel.dispatch(PollSuspendedStages())
            for job in (await kernel.dispatch(ClaimJobs("worker", limit=10))).jobs:
                await execute(kernel, job)
            await asyncio.sleep(0.005)


async def lose_worker(database: Database) -> None:
    await SqlAlchemyJobTransport(database).release_stale(timedelta(0))


@pytest.mark.guarantee("steps.results-keep-value-and-type")
async def test_steps_replay_sleep_and_retry(database: Database, make_kernel: MakeKernel) -> None:
    calls: Counter[str] = Counter()
    seen: list[Any] = []

    async def pay() -> Receipt:
        calls["pay"] += 1
        return RECEIPT

    def flaky(run: StepRun) -> str:
        calls["flaky"] += 1
        if run.attempt < 3:
            raise ValueError("not yet")
        return run.external_key

    async def body(ctx: Ctx) -> Any:
        seen.append(await ctx.step.run("pay", pay))
        key, _ = await asyncio.gather(
            ctx.step.run("flaky", flaky, retries=2, retry_delay="10ms", backoff=2),
            ctx.step.sleep("pause", "50ms"),
        )
        return key

    kernel = make_kernel(database, flow_of(body), spill_threshold_bytes=40)
    run_id = await start(kernel)
    run = await finish(kernel, run_id)
    assert run.status is Status.COMPLETED
    assert calls == {"pay": 1, "flaky": 3}
    assert len(seen) > 1
    assert all(receipt == RECEIPT and type(receipt) is Receipt for receipt in seen)
    steps = {step.step_id: step for step in await kernel.runs.steps(run_id)}
    assert {name: (step.kind, step.status, step.attempt) for name, step in steps.items()} == {
        "pay": ("run", "completed", 1),
        "flaky": ("run", "completed", 3),
        "pause": ("sleep", "completed", 1),
    }
    assert steps["pay"].result_claim is not None, "a large result is spilled"
    assert run.output == steps["flaky"].external_key


@pytest.mark.guarantee("steps.a-lost-workers-step-is-taken-over")
async def test_a_step_is_taken_over_and_the_first_outcome_stands(
    database: Database, make_kernel: MakeKernel, eventually: Eventually
) -> None:
    endings: list[asyncio.Future[str]] = []
    runs: list[StepRun] = []

    async def body(ctx: Ctx) -> Any:
        async def fn(run: StepRun) -> str:
            runs.append(run)
            endings.append(asyncio.get_running_loop().create_future())
            return await endings[-1]

        return await ctx.step.run("a", fn)

    kernel = make_kernel(database, flow_of(body))
    run_id = await start(kernel)
    frozen = asyncio.create_task(execute(kernel, await take(kernel)))
    await eventually(lambda: len(endings) == 1)
    await lose_worker(database)
    again = asyncio.create_task(execute(kernel, await take(kernel)))
    await eventually(lambda: len(endings) == 2)
    assert [(run.attempt, run.is_reclaim) for run in runs] == [(1, False), (2, True)]
    assert runs[0].external_key == runs[1].external_key
    endings[0].set_result("first")
    assert (await frozen).ghost
    endings[1].set_result("second")
    assert (await again).output == "first"
    (note,) = await kernel.ports.persistence.list_annotations(run_id, AnnotationQuery())
    assert (note.key, note.value) == ("step.outcome-conflict", "completed")


async def test_of_many_executions_that_meet_a_void_lease_one_takes_the_step(
    database: Database, make_kernel: MakeKernel, open_database: OpenDatabase, url: str
) -> None:
    """Explicit leases that have ended are raced for by executions of several processes."""
    calls: list[int] = []

    async def body(ctx: Ctx) -> Any:
        async def fn(run: StepRun) -> int:
            calls.append(run.attempt)
            await asyncio.sleep(0.05)
            return run.attempt

        return await ctx.step.run("a", fn, lease="10m", heartbeat="5m")

    kernels = [make_kernel(database, flow_of(body))]
    kernels += [make_kernel(open_database(url), flow_of(body)) for _ in range(2)]
    run_id = await start(kernels[0])
    job = await take(kernels[0])
    results = await asyncio.gather(*(execute(kernel, job) for kernel in kernels for _ in range(2)))
    assert calls == [1]
    assert {result.outcome for result in results} <= {"completed", "suspended", "failed"}
    (step,) = await kernels[0].runs.steps(run_id)
    assert (step.status, step.result) == ("completed", 1)


@pytest.mark.guarantee("steps.a-crash-repeats-one-execution-at-most")
async def test_workers_that_are_lost_again_and_again_finish_all_the_same(
    database: Database, make_kernel: MakeKernel, eventually: Eventually
) -> None:
    """Each step's first execution is lost in the middle; finished steps are never executed again."""
    calls: Counter[str] = Counter()
    reclaimed: dict[str, bool] = {}
    stuck = asyncio.Event()

    async def body(ctx: Ctx) -> Any:
        async def fn(run: StepRun) -> str:
            calls[run.step_id] += 1
            if run.attempt == 1:
                stuck.set()
                await asyncio.Event().wait()
            reclaimed[run.step_id] = run.is_reclaim
            return run.step_id

        return [await ctx.step.run(f"n{number}", fn) for number in range(4)]

    kernel = make_kernel(database, flow_of(body))
    run_id = await start(kernel)
    frozen: list[asyncio.Task[ExecuteJobResult]] = []
    for _ in range(4):
        stuck.clear()
        frozen.append(asyncio.create_task(execute(kernel, await take(kernel))))
        await stuck.wait()
        await lose_worker(database)
    result = await execute(kernel, await take(kernel))
    assert result.output == ["n0", "n1", "n2", "n3"]
    assert calls == {f"n{number}": 2 for number in range(4)}
    assert reclaimed == {f"n{number}": True for number in range(4)}
    for task in frozen:
        task.cancel()
    await asyncio.gather(*frozen, return_exceptions=True)
    steps = await kernel.runs.steps(run_id)
    assert [(step.status, step.attempt) for step in steps] == [("completed", 2)] * 4
    run = await kernel.runs.get(run_id)
    assert run is not None
    assert run.status is Status.COMPLETED


async def test_many_steps_at_once_are_each_executed_once(database: Database, make_kernel: MakeKernel) -> None:
    calls: Counter[int] = Counter()

    async def body(ctx: Ctx) -> Any:
        async def one(number: int) -> int:
            calls[number] += 1
            return number

        async def all_of() -> list[int]:
            return list(
                await asyncio.gather(
                    *(ctx.step.run(f"n{n}", lambda n=n: one(n), returns=int) for n in range(40))
                )
            )

        kept = await all_of()
        await ctx.step.sleep("pause", "10ms")
        return sum(kept)

    kernel = make_kernel(database, flow_of(body))
    run = await finish(kernel, await start(kernel))
    assert run.output == sum(range(40))
    assert calls == dict.fromkeys(range(40), 1)
