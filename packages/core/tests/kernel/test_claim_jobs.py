"""`job.claim`: who gets which job, and that its stage is running for everybody from that moment."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Status, Workflow
from stagewright.commands import CancelRun, ClaimJobs, ClaimPendingRuns, CreateRun, ExecuteJob, JobRef
from stagewright.memory import InMemoryJobTransport
from stagewright.records import DequeuedJob, ServedDefinition
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
StartRun = Callable[..., Awaitable[str]]
Told = Callable[[Kernel, str], Awaitable[list[str]]]
Statuses = Callable[[Kernel, str], Awaitable[dict[str, Status]]]
HoldAt = Callable[..., tuple[asyncio.Event, asyncio.Event]]

on_both = pytest.mark.parametrize("transport", ["enlisting", "separate"], indirect=True)


async def echo(ctx: StageContext[Any]) -> Any:
    return ctx.input


@pytest.fixture
def kernel(make_kernel: MakeKernel, flow_of: FlowOf) -> Kernel:
    return make_kernel(flow_of(echo, echo))


async def claim(kernel: Kernel, worker_id: str = "w", **fields: Any) -> tuple[DequeuedJob, ...]:
    return (await kernel.dispatch(ClaimJobs(worker_id, **fields))).jobs


@on_both
async def test_a_claimed_job_says_all_that_its_execution_needs(
    kernel: Kernel, start_run: StartRun, transport: InMemoryJobTransport, clock: FakeClock
) -> None:
    run_id = await start_run(kernel, priority=7)
    clock.advance("3s")
    (job,) = await claim(kernel, "worker-1")
    (record,) = await transport.get_jobs_by_run(run_id)
    assert (job.job_id, job.run_id, job.workflow_id, job.stage_id) == (record.id, run_id, "flow", "s1")
    assert (job.fence.started_at, job.fence.deliveries) == (clock.now(), 1)
    assert (job.priority, job.failures, job.max_attempts) == (7, 0, 3)
    assert (record.status, record.worker_id, record.locked_at) == (Status.RUNNING, "worker-1", clock.now())


@pytest.mark.guarantee("kernel.claiming-starts-the-stage")
async def test_with_an_enlisting_transport_the_stage_starts_with_the_claim(
    kernel: Kernel, start_run: StartRun, statuses: Statuses, told: Told, clock: FakeClock
) -> None:
    run_id = await start_run(kernel)
    clock.advance("3s")
    await claim(kernel)
    assert await statuses(kernel, run_id) == {"s1": Status.RUNNING}
    (stage,) = await kernel.runs.stages(run_id)
    assert (stage.started_at, stage.attempt) == (clock.now(), 1)
    assert await told(kernel, run_id) == ["workflow:created", "workflow:started", "stage:started"]


@pytest.mark.parametrize("transport", ["separate"], indirect=True)
async def test_with_another_transport_the_claim_leaves_the_stage_to_the_execution(
    kernel: Kernel, start_run: StartRun, statuses: Statuses, told: Told
) -> None:
    run_id = await start_run(kernel)
    await claim(kernel)
    assert await statuses(kernel, run_id) == {"s1": Status.PENDING}
    assert "stage:started" not in await told(kernel, run_id)


@on_both
async def test_one_job_unless_told_otherwise_the_urgent_first(kernel: Kernel, start_run: StartRun) -> None:
    runs = [await start_run(kernel, priority=priority) for priority in (1, 9, 1, 5)]
    assert await claim(kernel, limit=0) == ()
    assert [job.run_id for job in await claim(kernel)] == [runs[1]]
    assert [job.run_id for job in await claim(kernel, limit=2)] == [runs[3], runs[0]]
    assert [job.run_id for job in await claim(kernel, limit=5)] == [runs[2]]
    assert await claim(kernel, limit=5) == ()


@on_both
async def test_only_jobs_of_served_versions_are_taken(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun
) -> None:
    old, new = make_kernel(flow_of(echo)), make_kernel(flow_of(echo, echo))
    run_id = await start_run(old)
    assert await claim(new) == ()
    assert await claim(new, serves=[]) == ()
    assert await claim(new, serves=[ServedDefinition("flow", "another")]) == ()
    assert [job.run_id for job in await claim(old)] == [run_id]


async def test_serves_all_takes_what_the_registry_does_not_have(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun
) -> None:
    run_id = await start_run(make_kernel(flow_of(echo)))
    stranger = make_kernel(flow_of(echo, id="other"))
    assert [job.run_id for job in await claim(stranger, serves="all")] == [run_id]


@pytest.mark.guarantee("kernel.each-job-is-delivered-once")
@on_both
async def test_concurrent_claimers_never_share_a_job(kernel: Kernel, told: Told) -> None:
    runs = [(await kernel.dispatch(CreateRun("flow"))).run_id for _ in range(100)]
    while (await kernel.dispatch(ClaimPendingRuns("w", max_claims=50))).claimed:
        pass
    taken: list[DequeuedJob] = []

    async def claimer(name: str) -> None:
        while jobs := await claim(kernel, name, limit=3):
            taken.extend(jobs)

    await asyncio.gather(*(claimer(f"w{number}") for number in range(8)))
    assert sorted(job.run_id for job in taken) == sorted(runs)
    assert {job.fence.deliveries for job in taken} == {1}
    for run_id in runs:
        assert (await told(kernel, run_id)).count("stage:started") <= 1


async def test_a_claim_that_rolls_back_leaves_job_and_stage_as_they_were(
    kernel: Kernel,
    start_run: StartRun,
    transport: InMemoryJobTransport,
    statuses: Statuses,
    fail_at: Callable[..., None],
) -> None:
    run_id = await start_run(kernel)
    fail_at("commit", error=OSError("gone"))
    with pytest.raises(OSError, match="gone"):
        await claim(kernel)
    (record,) = await transport.get_jobs_by_run(run_id)
    assert (record.status, record.deliveries) == (Status.PENDING, 0)
    assert await statuses(kernel, run_id) == {"s1": Status.PENDING}
    (job,) = await claim(kernel)
    assert job.fence.deliveries == 1


async def test_a_cancel_that_comes_between_taking_and_starting_wins(
    kernel: Kernel,
    start_run: StartRun,
    transport: InMemoryJobTransport,
    statuses: Statuses,
    hold_at: HoldAt,
    told: Told,
) -> None:
    run_id = await start_run(kernel)
    reached, go = hold_at("load_runs")
    claiming = asyncio.create_task(claim(kernel))
    await reached.wait()
    assert (await kernel.dispatch(CancelRun(run_id))).cancelled
    go.set()
    assert await claiming == ()
    assert await statuses(kernel, run_id) == {"s1": Status.CANCELLED}
    (record,) = await transport.get_jobs_by_run(run_id)
    assert record.status in (Status.FAILED, Status.CANCELLED)
    assert "stage:started" not in await told(kernel, run_id)


async def test_a_cancel_that_waits_for_a_claim_finds_the_stage_running(
    kernel: Kernel, start_run: StartRun, statuses: Statuses, hold_at: HoldAt
) -> None:
    run_id = await start_run(kernel)
    reached, go = hold_at("commit")
    claiming = asyncio.create_task(claim(kernel))
    await reached.wait()
    cancelling = asyncio.create_task(kernel.dispatch(CancelRun(run_id)))
    go.set()
    (job,) = await claiming
    assert (await cancelling).cancelled
    assert await statuses(kernel, run_id) == {"s1": Status.CANCELLED}
    result = await kernel.dispatch(ExecuteJob(run_id, "flow", "s1", job=JobRef(job.job_id, job.fence)))
    assert (result.ghost, result.ghost_reason) == (True, "orphan")


async def test_a_job_whose_stage_is_done_is_settled_and_not_given_out(
    kernel: Kernel, start_run: StartRun, transport: InMemoryJobTransport
) -> None:
    run_id = await start_run(kernel)
    assert (await kernel.dispatch(ExecuteJob(run_id, "flow", "s1"))).outcome == "completed"
    assert await claim(kernel) == ()
    (record,) = await transport.get_jobs_by_run(run_id)
    assert record.status is Status.COMPLETED


async def test_a_redelivered_job_keeps_its_attempt_and_gets_another_fence(
    kernel: Kernel, start_run: StartRun, transport: InMemoryJobTransport, clock: FakeClock
) -> None:
    run_id = await start_run(kernel)
    (first,) = await claim(kernel, "lost")
    clock.advance("1m")
    await transport.release_stale(clock.advance("1s") - clock.now())
    (second,) = await claim(kernel, "next")
    assert (second.job_id, second.worker_losses, second.fence.deliveries) == (first.job_id, 1, 2)
    (stage,) = await kernel.runs.stages(run_id)
    assert (stage.status, stage.attempt, stage.started_at) == (Status.RUNNING, 1, clock.now())
