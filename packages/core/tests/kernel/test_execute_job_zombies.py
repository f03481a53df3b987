"""A worker that is believed lost and finishes after all: one outcome is kept, and the run always comes to its end."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from stagewright import Kernel, RetryPolicy, StageContext, Status, Workflow
from stagewright.commands import ClaimJobs, ExecuteJob, ExecuteJobResult, JobRef
from stagewright.memory import InMemoryBlobStore, InMemoryJobTransport, InMemoryPersistence
from stagewright.records import AnnotationQuery, DequeuedJob, RunRecord
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
StartRun = Callable[..., Awaitable[str]]
TakeJob = Callable[..., Awaitable[DequeuedJob]]
Finish = Callable[[Kernel, str], Awaitable[RunRecord]]
Told = Callable[[Kernel, str], Awaitable[list[str]]]

pytestmark = pytest.mark.parametrize("transport", ["enlisting", "separate"], indirect=True)


class Deliveries:
    """A body that each invocation of leaves only when it is told to, with what it is told."""

    def __init__(self) -> None:
        self.attempts: list[int] = []
        self.waiting: list[asyncio.Future[object]] = []
        self._more = asyncio.Condition()

    async def body(self, ctx: StageContext[Any]) -> Any:
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        async with self._more:
            self.attempts.append(ctx.attempt)
            self.waiting.append(future)
            self._more.notify_all()
        ctx.annotate("from", len(self.waiting), emit_event=True)
        ctx.log("info", f"delivery {len(self.waiting)}")
        return await future

    async def entered(self, count: int) -> None:
        async with self._more:
            await self._more.wait_for(lambda: len(self.waiting) >= count)


def command(job: DequeuedJob) -> ExecuteJob:
    return ExecuteJob(job.run_id, job.workflow_id, job.stage_id, job=JobRef(job.job_id, job.fence))


async def after(ctx: StageContext[Any]) -> Any:
    return ["after", ctx.input]


@pytest.fixture
def deliveries() -> Deliveries:
    return Deliveries()


Zombie = tuple[Kernel, str, "asyncio.Task[ExecuteJobResult]", "asyncio.Task[ExecuteJobResult]"]


@pytest.fixture
async def zombie(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    transport: InMemoryJobTransport,
    clock: FakeClock,
    deliveries: Deliveries,
) -> Zombie:
    """One stage delivered twice: both bodies run, the first delivery has lost its lease."""
    kernel = make_kernel(
        flow_of(deliveries.body, after, retry=RetryPolicy(jitter=False)), spill_threshold_bytes=4
    )
    run_id = await start_run(kernel)
    first = asyncio.create_task(kernel.dispatch(command(await take_job(kernel, "lost"))))
    await deliveries.entered(1)
    clock.advance("1m")
    await transport.release_stale(timedelta(seconds=45))
    second = asyncio.create_task(kernel.dispatch(command(await take_job(kernel, "next"))))
    await deliveries.entered(2)
    return kernel, run_id, first, second


def assert_discarded(result: ExecuteJobResult) -> None:
    assert (result.outcome, result.ghost, result.ghost_reason) == ("failed", True, "orphan")


@pytest.mark.guarantee("kernel.late-outcomes-are-refused")
async def test_the_late_success_of_a_lost_worker_is_refused(
    zombie: Zombie,
    deliveries: Deliveries,
    finish: Finish,
    told: Told,
    persistence: InMemoryPersistence,
    blob_store: InMemoryBlobStore,
) -> None:
    kernel, run_id, first, second = zombie
    deliveries.waiting[0].set_result("zombie")
    assert_discarded(await first)
    deliveries.waiting[1].set_result("owner")
    assert (await second).output == "owner"
    run = await finish(kernel, run_id)
    assert run.output == ["after", "owner"]
    assert (await told(kernel, run_id)).count("stage:completed") == 2
    assert (await told(kernel, run_id)).count("annotation:created") == 1
    rows = await persistence.list_annotations(run_id, AnnotationQuery())
    assert [row.value for row in rows] == [2]
    lines = (await kernel.runs.logs(run_id)).items
    assert {"delivery 1", "delivery 2"} <= {line.message for line in lines}
    stages = await persistence.get_stages_by_run(run_id)
    kept = {stage.output_claim.key for stage in stages if stage.output_claim is not None}
    assert {key async for key in blob_store.list("")} == kept


async def test_the_late_success_of_a_lost_worker_after_the_owners_is_refused(
    zombie: Zombie, deliveries: Deliveries, finish: Finish
) -> None:
    kernel, run_id, first, second = zombie
    deliveries.waiting[1].set_result("owner")
    assert (await second).output == "owner"
    deliveries.waiting[0].set_result("zombie")
    assert_discarded(await first)
    assert (await finish(kernel, run_id)).output == ["after", "owner"]


@pytest.mark.parametrize("zombie_first", [True, False])
async def test_the_late_failure_of_a_lost_worker_costs_nothing(
    zombie: Zombie, deliveries: Deliveries, finish: Finish, told: Told, zombie_first: bool
) -> None:
    kernel, run_id, first, second = zombie
    for index in (0, 1) if zombie_first else (1, 0):
        if index == 0:
            deliveries.waiting[0].set_exception(ValueError("late"))
            assert_discarded(await first)
        else:
            deliveries.waiting[1].set_result("owner")
            assert (await second).outcome == "completed"
    run = await finish(kernel, run_id)
    assert (run.status, run.output) == (Status.COMPLETED, ["after", "owner"])
    assert "stage:retrying" not in await told(kernel, run_id)


async def test_the_owners_failure_is_retried_whatever_the_lost_worker_does(
    zombie: Zombie, deliveries: Deliveries, clock: FakeClock, told: Told, take_job: TakeJob
) -> None:
    kernel, run_id, first, second = zombie
    deliveries.waiting[1].set_exception(ValueError("honest"))
    failed = await second
    assert (failed.outcome, failed.will_retry) == ("failed", True)
    deliveries.waiting[0].set_result("zombie")
    assert_discarded(await first)
    clock.advance("1m")
    third = asyncio.create_task(kernel.dispatch(command(await take_job(kernel))))
    await deliveries.entered(3)
    deliveries.waiting[2].set_result("third time")
    assert (await third).output == "third time"
    assert deliveries.attempts == sorted(deliveries.attempts)
    assert deliveries.attempts[2] > deliveries.attempts[1]
    assert (await told(kernel, run_id)).count("stage:retrying") == 1


async def test_the_late_outcome_of_an_earlier_attempt_is_refused_while_the_next_one_runs(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    deliveries: Deliveries,
    transport: InMemoryJobTransport,
    clock: FakeClock,
    finish: Finish,
) -> None:
    kernel = make_kernel(flow_of(deliveries.body))
    run_id = await start_run(kernel)
    direct = asyncio.create_task(kernel.dispatch(ExecuteJob(run_id, "flow", "s1")))
    await deliveries.entered(1)
    owner = asyncio.create_task(kernel.dispatch(command(await take_job(kernel))))
    await deliveries.entered(2)
    deliveries.waiting[1].set_exception(ValueError("again"))
    assert (await owner).will_retry
    deliveries.waiting[0].set_result("of attempt one")
    assert_discarded(await direct)
    clock.advance("1m")
    assert len((await kernel.dispatch(ClaimJobs("w"))).jobs) == 1


async def test_the_attempt_only_ever_rises(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, finish: Finish
) -> None:
    attempts: list[int] = []

    async def third_time(ctx: StageContext[Any]) -> str:
        attempts.append(ctx.attempt)
        if len(attempts) < 3:
            raise ValueError("not yet")
        return "done"

    kernel = make_kernel(flow_of(third_time))
    run = await finish(kernel, await start_run(kernel))
    assert (run.output, attempts) == ("done", [1, 2, 3])
    (stage,) = await kernel.runs.stages(run.id)
    assert (stage.attempt, stage.error) == (3, None)
