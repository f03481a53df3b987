"""`run.claimPending`: which runs are set going, in which order, by whom, and what becomes of those that can't be."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from stagewright import (
    Kernel,
    StageContext,
    Status,
    Workflow,
    WorkflowRegistry,
    define_stage,
    define_workflow,
)
from stagewright.commands import ClaimJobs, ClaimPendingRuns, CreateRun
from stagewright.errors import TransientError
from stagewright.memory import InMemoryJobTransport, InMemoryPersistence
from stagewright.records import RunRecord, ServedDefinition, StoredStage
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
HoldAt = Callable[..., tuple[asyncio.Event, asyncio.Event]]
Told = Callable[[Kernel, str], Awaitable[list[str]]]

pytestmark = pytest.mark.parametrize("transport", ["enlisting", "separate"], indirect=True)


async def echo(ctx: StageContext[Any]) -> Any:
    return ctx.input


@pytest.fixture
def kernel(make_kernel: MakeKernel, flow_of: FlowOf) -> Kernel:
    return make_kernel(flow_of(echo, echo))


async def create(kernel: Kernel, workflow_id: str = "flow", **fields: Any) -> str:
    return (await kernel.dispatch(CreateRun(workflow_id, **fields))).run_id


async def claim(kernel: Kernel, **fields: Any) -> list[str]:
    return [run.run_id for run in (await kernel.dispatch(ClaimPendingRuns("w", **fields))).claimed]


async def read(kernel: Kernel, run_id: str) -> RunRecord:
    run = await kernel.runs.get(run_id)
    assert run is not None
    return run


async def test_a_claimed_run_is_running_with_its_first_group_open(
    kernel: Kernel, transport: InMemoryJobTransport, clock: FakeClock, told: Told
) -> None:
    run_id = await create(kernel, priority=8, config={"s1": {}})
    clock.advance("5s")
    (claimed,) = (await kernel.dispatch(ClaimPendingRuns("w"))).claimed
    run = await read(kernel, run_id)
    assert (run.status, run.started_at, run.version) == (Status.RUNNING, clock.now(), 2)
    (stage,) = await kernel.runs.stages(run_id)
    assert (stage.stage_id, stage.status, stage.attempt) == ("s1", Status.PENDING, 1)
    assert (stage.execution_group, stage.stage_number, stage.stage_name) == (1, 1, "s1")
    (job,) = await transport.get_jobs_by_run(run_id)
    assert claimed.job_ids == (job.id,)
    assert (claimed.run_id, claimed.workflow_id) == (run_id, "flow")
    assert (job.status, job.stage_id, job.priority) == (Status.PENDING, "s1", 8)
    assert (job.payload, job.definition_version) == ({"config": {}}, run.definition_version)
    assert (job.max_attempts, job.max_worker_losses, job.deliveries) == (3, 3, 0)
    assert await told(kernel, run_id) == ["workflow:created", "workflow:started"]


async def test_every_stage_of_a_parallel_first_group_gets_a_job(
    make_kernel: MakeKernel, transport: InMemoryJobTransport
) -> None:
    stages = [define_stage(name, echo, input=Any, output=Any) for name in ("b", "a", "c")]
    kernel = make_kernel(define_workflow("flow", input=None).parallel(*stages).build())
    run_id = await create(kernel)
    (claimed,) = (await kernel.dispatch(ClaimPendingRuns("w"))).claimed
    jobs = {job.id: job.stage_id for job in await transport.get_jobs_by_run(run_id)}
    assert [jobs[job_id] for job_id in claimed.job_ids] == ["b", "a", "c"]
    assert [(stage.stage_id, stage.stage_number) for stage in await kernel.runs.stages(run_id)] == [
        ("b", 1),
        ("a", 2),
        ("c", 3),
    ]


async def test_higher_priority_goes_first_then_the_older(kernel: Kernel, clock: FakeClock) -> None:
    created: list[str] = []
    for priority in (5, 9, 5, -3, 9):
        created.append(await create(kernel, priority=priority))
        clock.advance("1s")
    assert await claim(kernel) == [created[index] for index in (1, 4, 0, 2, 3)]


async def test_at_most_ten_at_a_time_unless_told_otherwise(kernel: Kernel) -> None:
    created = [await create(kernel) for _ in range(14)]
    assert await claim(kernel, max_claims=0) == []
    assert await claim(kernel) == created[:10]
    assert await claim(kernel, max_claims=3) == created[10:13]
    assert await claim(kernel, max_claims=3) == created[13:]
    assert await claim(kernel) == []


# What a claimer serves


@pytest.mark.guarantee("kernel.unserved-runs-wait")
async def test_a_run_of_another_version_waits_for_a_build_that_serves_it(
    make_kernel: MakeKernel, flow_of: FlowOf
) -> None:
    old, new = make_kernel(flow_of(echo)), make_kernel(flow_of(echo, echo))
    run_id = await create(old)
    assert await claim(new) == []
    assert (await read(new, run_id)).status is Status.PENDING
    assert await claim(old) == [run_id]


async def test_serves_takes_a_list_an_empty_list_or_everything(
    make_kernel: MakeKernel, flow_of: FlowOf
) -> None:
    one, two = flow_of(echo), flow_of(echo, id="two")
    kernel = make_kernel(one, two)
    first, second = await create(kernel), await create(kernel, "two")
    assert await claim(kernel, serves=[]) == []
    assert await claim(kernel, serves=[ServedDefinition("flow", "no such version")]) == []
    assert await claim(kernel, serves=(ServedDefinition("two", two.definition_version),)) == [second]
    assert await claim(kernel, serves="all") == [first]


async def test_versions_are_compared_together_with_their_workflow(make_kernel: MakeKernel) -> None:
    def versioned(id: str, version: str) -> Workflow:
        return (
            define_workflow(id, input=None).stage("s", echo, input=Any, output=Any).version(version).build()
        )

    kernel = make_kernel(versioned("a", "1"), versioned("b", "2"))
    await create(kernel, "a")
    await create(kernel, "b")
    assert await claim(kernel, serves=[ServedDefinition("a", "2"), ServedDefinition("b", "1")]) == []


async def test_the_registry_of_the_moment_decides(make_kernel: MakeKernel, flow_of: FlowOf) -> None:
    workflows: list[Workflow] = []
    registry = SimpleNamespace(get=lambda id: WorkflowRegistry(workflows).get(id), list=lambda: workflows)
    kernel = make_kernel(registry=registry)
    run_id = await create(make_kernel(flow_of(echo)))
    assert await claim(kernel) == []
    workflows.append(flow_of(echo))
    assert await claim(kernel) == [run_id]


@pytest.mark.guarantee("kernel.a-missing-workflow-fails-its-run")
@pytest.mark.parametrize("serves", [None, "all"])
async def test_an_unfiltered_claim_fails_runs_whose_workflow_is_missing(
    make_kernel: MakeKernel, flow_of: FlowOf, told: Told, clock: FakeClock, serves: Any
) -> None:
    everything = make_kernel(flow_of(echo), flow_of(echo, id="gone"))
    lost, kept = await create(everything, "gone", priority=9), await create(everything)
    only = SimpleNamespace(get=WorkflowRegistry([flow_of(echo)]).get)
    kernel = make_kernel(registry=only) if serves is None else make_kernel(flow_of(echo))
    assert await claim(kernel, serves=serves) == [kept]
    run = await read(kernel, lost)
    assert run.status is Status.FAILED
    assert run.error is not None
    assert (run.error.code, run.completed_at, run.output) == ("WORKFLOW_NOT_FOUND", clock.now(), None)
    assert "'gone'" in run.error.message
    assert "'w'" in run.error.message
    assert await told(kernel, lost) == ["workflow:created", "workflow:failed"]
    (line,) = (await kernel.runs.logs(lost, level="ERROR")).items
    assert line.message == run.error.message


# A run that can't be started


class BrokenStart(InMemoryPersistence):
    """Refuses the stages of the runs it is told of."""

    broken: frozenset[str] = frozenset()
    error: Exception = RuntimeError("disk full\x00")

    async def create_stage(self, stage: StoredStage) -> None:
        if stage.run_id in self.broken:
            raise self.error
        await super().create_stage(stage)


@pytest.fixture
def store(persistence: InMemoryPersistence) -> BrokenStart:
    return BrokenStart(persistence.database)


@pytest.mark.guarantee("kernel.one-bad-run-blocks-no-other")
async def test_a_run_that_can_not_be_started_fails_alone(
    make_kernel: MakeKernel, flow_of: FlowOf, store: BrokenStart, transport: InMemoryJobTransport, told: Told
) -> None:
    kernel = make_kernel(flow_of(echo), persistence=store)
    runs = [await create(kernel) for _ in range(5)]
    store.broken = frozenset({runs[1], runs[3]})
    assert await claim(kernel) == [runs[0], runs[2], runs[4]]
    for run_id in (runs[1], runs[3]):
        run = await read(kernel, run_id)
        assert run.status is Status.FAILED
        assert run.error is not None
        assert run.error.code == "CLAIM_FAILED"
        assert "disk full" in run.error.message
        assert "\x00" not in run.error.message
        assert await kernel.runs.stages(run_id) == []
        assert await transport.get_jobs_by_run(run_id) == []
        assert await told(kernel, run_id) == ["workflow:created", "workflow:failed"]
    for run_id in (runs[0], runs[2], runs[4]):
        assert await told(kernel, run_id) == ["workflow:created", "workflow:started"]
        assert len(await transport.get_jobs_by_run(run_id)) == 1


async def test_bad_runs_count_towards_the_limit(
    make_kernel: MakeKernel, flow_of: FlowOf, store: BrokenStart
) -> None:
    kernel = make_kernel(flow_of(echo), persistence=store)
    runs = [await create(kernel) for _ in range(4)]
    store.broken = frozenset(runs[:2])
    assert await claim(kernel, max_claims=3) == [runs[2]]
    assert (await read(kernel, runs[3])).status is Status.PENDING


async def test_a_store_that_fails_for_the_moment_fails_no_run(
    make_kernel: MakeKernel, flow_of: FlowOf, store: BrokenStart
) -> None:
    kernel = make_kernel(flow_of(echo), persistence=store)
    runs = [await create(kernel) for _ in range(2)]
    store.broken, store.error = frozenset(runs), TransientError("connection lost")
    with pytest.raises(TransientError):
        await claim(kernel)
    assert [(await read(kernel, run_id)).status for run_id in runs] == [Status.PENDING, Status.PENDING]
    store.broken = frozenset()
    assert await claim(kernel) == runs


@pytest.mark.parametrize("nth", range(1, 25))
async def test_whatever_another_claimer_takes_meanwhile_only_the_bad_run_fails(
    make_kernel: MakeKernel, flow_of: FlowOf, store: BrokenStart, hold_at: HoldAt, nth: int
) -> None:
    kernel = make_kernel(flow_of(echo), persistence=store)
    bad, good = await create(kernel, priority=9), await create(kernel)
    store.broken = frozenset({bad})
    reached, go = hold_at("*", nth=nth)
    first = asyncio.create_task(claim(kernel))
    done, _ = await asyncio.wait([first, asyncio.create_task(reached.wait())], return_when="FIRST_COMPLETED")
    taken = [] if first in done else await claim(make_kernel(flow_of(echo)), max_claims=1)
    go.set()
    reached.set()
    taken += await first
    assert (await read(kernel, good)).status is Status.RUNNING
    assert taken.count(good) == 1
    assert (await read(kernel, bad)).status is (Status.RUNNING if bad in taken else Status.FAILED)


@pytest.mark.tampers
async def test_stages_left_by_an_interrupted_claim_are_kept_and_only_pending_ones_enqueued(
    make_kernel: MakeKernel,
    persistence: InMemoryPersistence,
    transport: InMemoryJobTransport,
    clock: FakeClock,
) -> None:
    stages = [define_stage(name, echo, input=Any, output=Any) for name in ("a", "b", "c")]
    kernel = make_kernel(define_workflow("flow", input=None).parallel(*stages).build())
    run_id = await create(kernel)
    for number, (name, status) in enumerate([("a", Status.PENDING), ("b", Status.COMPLETED)], start=1):
        await persistence.create_stage(
            StoredStage(
                id=f"left-{name}",
                run_id=run_id,
                stage_id=name,
                stage_name=name,
                stage_number=number,
                execution_group=1,
                status=status,
                created_at=clock.now(),
                updated_at=clock.now(),
            )
        )
    (claimed,) = (await kernel.dispatch(ClaimPendingRuns("w"))).claimed
    assert len(claimed.job_ids) == 2
    assert {job.stage_id for job in await transport.get_jobs_by_run(run_id)} == {"a", "c"}
    ids = {stage.stage_id: stage.id for stage in await kernel.runs.stages(run_id)}
    assert (ids["a"], ids["b"]) == ("left-a", "left-b")


# Several claimers


@pytest.mark.guarantee("kernel.each-run-is-claimed-once")
async def test_concurrent_claimers_never_share_a_run(
    kernel: Kernel, transport: InMemoryJobTransport, told: Told
) -> None:
    runs = [await create(kernel) for _ in range(100)]
    taken: list[str] = []

    async def claimer(name: str) -> None:
        while claimed := (await kernel.dispatch(ClaimPendingRuns(name, max_claims=3))).claimed:
            taken.extend(run.run_id for run in claimed)

    await asyncio.gather(*(claimer(f"w{number}") for number in range(8)))
    assert sorted(taken) == sorted(runs)
    for run_id in runs:
        assert len(await transport.get_jobs_by_run(run_id)) == 1
        assert await told(kernel, run_id) == ["workflow:created", "workflow:started"]


@pytest.mark.guarantee("kernel.jobs-appear-with-the-commit")
async def test_no_job_can_be_taken_before_its_run_is_running_for_everybody(
    kernel: Kernel, hold_at: HoldAt
) -> None:
    run_id = await create(kernel)
    reached, go = hold_at("commit")
    claiming = asyncio.create_task(claim(kernel))
    await reached.wait()
    assert (await kernel.dispatch(ClaimJobs("fast"))).jobs == ()
    assert (await read(kernel, run_id)).status is Status.PENDING
    go.set()
    assert await claiming == [run_id]
    assert len((await kernel.dispatch(ClaimJobs("fast"))).jobs) == 1
