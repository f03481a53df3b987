"""Jobs that a worker is handed together with the outcome before them, or with the claim of their run."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from stagewright import (
    Kernel,
    NonRetryableError,
    RetryPolicy,
    StageContext,
    Status,
    Workflow,
    define_stage,
    define_workflow,
)
from stagewright.commands import (
    CancelRun,
    ClaimJobs,
    ClaimPendingRuns,
    ClaimPendingRunsResult,
    CreateRun,
    ExecuteJob,
    ExecuteJobResult,
    JobRef,
)
from stagewright.errors import InvalidCommandError
from stagewright.memory import InMemoryJobTransport, InMemoryPersistence
from stagewright.records import DequeuedJob, Fairness
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
Statuses = Callable[[Kernel, str], Awaitable[dict[str, Status]]]
Told = Callable[[Kernel, str], Awaitable[list[str]]]
Ctx = StageContext[Any]

THREE_STAGES = [
    "workflow:created",
    "workflow:started",
    *["stage:started", "stage:completed"] * 3,
    "workflow:completed",
]


async def more(ctx: Ctx) -> Any:
    return [*(ctx.input or []), ctx.stage_id]


@pytest.fixture
def kernel(make_kernel: MakeKernel, flow_of: FlowOf) -> Kernel:
    return make_kernel(flow_of(more, more, more))


def diamond(body: Callable[..., Any] = more) -> Workflow:
    a, b, c, d = (define_stage(id, body, input=Any, output=Any) for id in "abcd")
    return define_workflow("flow", input=Any).pipe(a).parallel(b, c).pipe(d).build()


def fork(body: Callable[..., Any] = more) -> Workflow:
    a, b, c = (define_stage(id, body, input=Any, output=Any) for id in "abc")
    return define_workflow("flow", input=Any).parallel(a, b, c).build()


async def start(kernel: Kernel, input: object = None, *, max_jobs: int = 1, **fields: Any) -> DequeuedJob:
    await kernel.dispatch(CreateRun("flow", input, **fields))
    claimed = await kernel.dispatch(ClaimPendingRuns("worker", max_jobs=max_jobs))
    return claimed.jobs[0]


def execution(job: DequeuedJob, **fields: Any) -> ExecuteJob:
    fields = {"job": JobRef(job.job_id, job.fence), "loaded": job.loaded} | fields
    return ExecuteJob(run_id=job.run_id, workflow_id=job.workflow_id, stage_id=job.stage_id, **fields)


class Asked:
    """A successor that says when it is asked."""

    def __init__(self, happened: list[str] | None = None) -> None:
        self.happened = [] if happened is None else happened

    def __call__(self) -> str:
        self.happened.append("asked")
        return "worker"


async def work(
    kernel: Kernel, job: DequeuedJob, *, to: str | None = "worker", **fields: Any
) -> ExecuteJobResult:
    return await kernel.dispatch(execution(job, successor=lambda: to, **fields))


async def work_on(kernel: Kernel, job: DequeuedJob | None) -> list[ExecuteJobResult]:
    """Execute a job, then what is handed over with its outcome, and so on."""
    results = []
    while job is not None:
        results.append(await work(kernel, job))
        job = results[-1].next_job
    return results


@pytest.mark.guarantee("kernel.next-job-is-handed-over-with-the-outcome")
async def test_the_next_job_is_its_workers_already(
    kernel: Kernel, transport: InMemoryJobTransport, statuses: Statuses, told: Told, clock: FakeClock
) -> None:
    first = await start(kernel, ["in"], priority=7)
    clock.advance("100ms")
    result = await work(kernel, first, to="worker 2")
    job = result.next_job
    assert job is not None
    (_, record) = await transport.get_jobs_by_run(first.run_id)
    assert (job.job_id, job.run_id, job.workflow_id, job.stage_id) == (record.id, first.run_id, "flow", "s2")
    assert (job.priority, job.failures, job.worker_losses, job.fence.deliveries) == (7, 0, 0, 1)
    assert (job.fence.started_at, job.payload) == (record.started_at, record.payload)
    assert (record.status, record.worker_id, record.locked_at) == (Status.RUNNING, "worker 2", clock.now())
    assert await statuses(kernel, first.run_id) == {"s1": Status.COMPLETED, "s2": Status.RUNNING}
    stages = {stage.stage_id: stage for stage in await kernel.runs.stages(first.run_id)}
    assert (stages["s2"].started_at, stages["s2"].attempt) == (clock.now(), 1)
    assert (await told(kernel, first.run_id))[-2:] == ["stage:completed", "stage:started"]
    assert (await kernel.dispatch(ClaimJobs("other", limit=9))).jobs == ()


async def test_a_job_that_is_handed_over_is_what_a_claim_would_have_given(
    kernel: Kernel, make_kernel: MakeKernel, transport: InMemoryJobTransport
) -> None:
    handed_over = (await work(kernel, await start(kernel, ["in"]))).next_job
    claimed = (await work(kernel, await start(kernel, ["in"]), to=None)).next_job
    assert claimed is None
    (claimed,) = (await kernel.dispatch(ClaimJobs("worker"))).jobs
    assert handed_over is not None
    assert handed_over.loaded is not None
    assert claimed.loaded is not None
    assert handed_over.loaded.last_sequence == claimed.loaded.last_sequence
    for one in (handed_over, claimed):
        assert one.loaded is not None
        # A claim reads the same.
        (read,) = await kernel.ports.persistence.load_runs([one.run_id])
        assert one.loaded == read
    assert handed_over.payload == claimed.payload


@pytest.mark.guarantee("kernel.next-job-is-handed-over-with-the-outcome")
async def test_a_run_can_be_worked_off_without_a_claim_of_jobs(kernel: Kernel, told: Told) -> None:
    first = await start(kernel, ["in"])
    results = await work_on(kernel, first)
    assert [result.outcome for result in results] == ["completed"] * 3
    assert results[-1].next_job is None
    run = await kernel.runs.get(first.run_id)
    assert run is not None
    assert (run.status, run.output) == (Status.COMPLETED, ["in", "s1", "s2", "s3"])
    assert await told(kernel, first.run_id) == THREE_STAGES
    sequences = [event.sequence for event in await kernel.runs.events(first.run_id)]
    assert sequences == list(range(1, len(THREE_STAGES) + 1))


async def test_claiming_runs_hands_over_no_more_than_was_asked_for(
    kernel: Kernel, transport: InMemoryJobTransport, statuses: Statuses
) -> None:
    runs = [(await kernel.dispatch(CreateRun("flow", priority=9 - n))).run_id for n in range(3)]
    result = await kernel.dispatch(ClaimPendingRuns("worker", max_jobs=2))
    assert [run.run_id for run in result.claimed] == runs
    assert [job.run_id for job in result.jobs] == runs[:2]
    assert [job.job_id for job in result.jobs] == [run.job_ids[0] for run in result.claimed[:2]]
    for job in result.jobs:
        (record,) = await transport.get_jobs_by_run(job.run_id)
        assert (record.status, record.worker_id) == (Status.RUNNING, "worker")
        assert await statuses(kernel, job.run_id) == {"s1": Status.RUNNING}
    assert await statuses(kernel, runs[2]) == {"s1": Status.PENDING}
    (left,) = (await kernel.dispatch(ClaimJobs("other", limit=9))).jobs
    assert left.run_id == runs[2]


async def test_a_claim_that_asks_for_no_jobs_gets_none(kernel: Kernel) -> None:
    await kernel.dispatch(CreateRun("flow"))
    result = await kernel.dispatch(ClaimPendingRuns("worker"))
    assert (len(result.claimed), result.jobs) == (1, ())
    assert len((await kernel.dispatch(ClaimJobs("worker", limit=9))).jobs) == 1


async def test_a_run_that_cannot_be_started_takes_no_place(
    make_kernel: MakeKernel, flow_of: FlowOf, transport: InMemoryJobTransport
) -> None:
    both = make_kernel(flow_of(more), flow_of(more, id="gone"))
    bad = (await both.dispatch(CreateRun("gone", priority=9))).run_id
    good = (await both.dispatch(CreateRun("flow"))).run_id
    kernel = make_kernel(flow_of(more))
    result = await kernel.dispatch(ClaimPendingRuns("worker", max_jobs=1, serves="all"))
    assert [job.run_id for job in result.jobs] == [good]
    run = await kernel.runs.get(bad)
    assert run is not None
    assert run.status is Status.FAILED
    assert await transport.get_jobs_by_run(bad) == []


async def test_a_batch_that_is_claimed_one_by_one_hands_over_as_much(
    kernel: Kernel, fail_at: Callable[..., None], transport: InMemoryJobTransport
) -> None:
    runs = [(await kernel.dispatch(CreateRun("flow", priority=9 - n))).run_id for n in range(3)]
    # The second of the batch, and the first when they are started one by one.
    fail_at("create_stage", nth=2, times=2, error=ValueError("a bad run"))
    result = await kernel.dispatch(ClaimPendingRuns("worker", max_jobs=1))
    assert [run.run_id for run in result.claimed] == runs[1:]
    assert [job.run_id for job in result.jobs] == [runs[1]]
    owned = [
        job
        for run_id in runs
        for job in await transport.get_jobs_by_run(run_id)
        if job.status is Status.RUNNING
    ]
    assert [job.id for job in owned] == [result.jobs[0].job_id]


async def test_of_a_parallel_group_the_first_is_handed_over_and_the_others_wait(
    make_kernel: MakeKernel, transport: InMemoryJobTransport, persistence: InMemoryPersistence
) -> None:
    kernel = make_kernel(diamond())
    first = await start(kernel, [])
    while await persistence.wait_for_work(timedelta(0)):
        pass
    result = await work(kernel, first)
    assert result.next_job is not None
    assert result.next_job.stage_id == "b"
    assert await persistence.wait_for_work(timedelta(0)), "somebody else may want the other"
    (other,) = (await kernel.dispatch(ClaimJobs("other", limit=9))).jobs
    assert other.stage_id == "c"
    assert (await work(kernel, result.next_job)).next_job is None
    last = (await work(kernel, other, to="other")).next_job
    assert last is not None
    assert (await work(kernel, last)).outcome == "completed"
    run = await kernel.runs.get(first.run_id)
    assert run is not None
    assert run.status is Status.COMPLETED
    assert {job.deliveries for job in await transport.get_jobs_by_run(first.run_id)} == {1}


async def test_nobody_is_woken_for_what_has_its_worker(
    kernel: Kernel, persistence: InMemoryPersistence
) -> None:
    async def is_woken() -> bool:
        return await persistence.wait_for_work(timedelta(0))

    await kernel.dispatch(CreateRun("flow"))
    while await is_woken():
        pass
    (job,) = (await kernel.dispatch(ClaimPendingRuns("worker", max_jobs=1))).jobs
    assert not await is_woken()
    assert (await work(kernel, job)).next_job is not None
    assert not await is_woken()


@pytest.mark.parametrize("max_jobs", [1, 2, 3, 9])
async def test_of_a_first_group_so_many_are_handed_over_as_were_asked_for(
    make_kernel: MakeKernel, statuses: Statuses, told: Told, max_jobs: int
) -> None:
    kernel = make_kernel(fork())
    await kernel.dispatch(CreateRun("flow"))
    result = await kernel.dispatch(ClaimPendingRuns("worker", max_jobs=max_jobs))
    given = ["a", "b", "c"][:max_jobs]
    assert [job.stage_id for job in result.jobs] == given
    run_id = result.claimed[0].run_id
    running = [
        stage for stage, status in (await statuses(kernel, run_id)).items() if status is Status.RUNNING
    ]
    assert running == given
    assert (await told(kernel, run_id)).count("stage:started") == len(given)
    (read,) = await kernel.ports.persistence.load_runs([run_id])
    assert all(job.loaded == read for job in result.jobs)
    left = (await kernel.dispatch(ClaimJobs("other", limit=9))).jobs
    for job in (*result.jobs, *left):
        assert (await work(kernel, job)).outcome == "completed"
    run = await kernel.runs.get(run_id)
    assert run is not None
    assert run.status is Status.COMPLETED


# Where nothing is handed over


async def is_claimable(kernel: Kernel, stage_id: str) -> bool:
    (job,) = (await kernel.dispatch(ClaimJobs("other", limit=9))).jobs
    return job.stage_id == stage_id


async def test_not_unless_somebody_takes_it(kernel: Kernel) -> None:
    first = await start(kernel)
    assert (await work(kernel, first, to=None)).next_job is None
    assert await is_claimable(kernel, "s2")


async def test_not_with_a_key_whose_result_is_kept(kernel: Kernel) -> None:
    asked = Asked()
    command = execution(await start(kernel), idempotency_key="key", successor=asked)
    first, again = [await kernel.dispatch(command) for _ in range(2)]
    assert (first.outcome, first.next_job, again, asked.happened) == ("completed", None, first, [])
    assert await is_claimable(kernel, "s2")


async def test_not_without_a_job(kernel: Kernel) -> None:
    command = replace(execution(await start(kernel)), job=None, loaded=None, successor=lambda: "worker")
    result = await kernel.dispatch(command)
    assert (result.outcome, result.next_job) == ("completed", None)


@pytest.mark.parametrize("transport", ["separate"], indirect=True)
async def test_not_where_jobs_are_elsewhere(kernel: Kernel, statuses: Statuses) -> None:
    run_id = (await kernel.dispatch(CreateRun("flow"))).run_id
    assert (await kernel.dispatch(ClaimPendingRuns("worker", max_jobs=2))).jobs == ()
    assert await statuses(kernel, run_id) == {"s1": Status.PENDING}
    (job,) = (await kernel.dispatch(ClaimJobs("worker"))).jobs
    assert (await work(kernel, job)).next_job is None


def _cannot(transport: InMemoryJobTransport) -> Any:
    """The same without the method: a capability is looked for by its name."""
    names = [name for name in dir(transport) if not name.startswith("_") and name != "enqueue_delivered"]

    class Without:
        def enlist(self, tx: Any) -> Any:
            enlisted = transport.enlist(tx)
            return None if enlisted is None else _cannot(enlisted)

    for name in names:
        if name not in ("enlist", "fairness", "with_fairness"):
            setattr(Without, name, staticmethod(getattr(transport, name)))
    return Without()


async def test_not_with_a_transport_that_cannot(
    make_kernel: MakeKernel, flow_of: FlowOf, transport: InMemoryJobTransport
) -> None:
    kernel = make_kernel(flow_of(more, more), job_transport=_cannot(transport))
    await kernel.dispatch(CreateRun("flow"))
    assert (await kernel.dispatch(ClaimPendingRuns("worker", max_jobs=2))).jobs == ()
    (job,) = (await kernel.dispatch(ClaimJobs("worker"))).jobs
    assert (await work(kernel, job)).next_job is None
    assert await is_claimable(kernel, "s2")


async def test_not_with_fairness(
    make_kernel: MakeKernel, flow_of: FlowOf, transport: InMemoryJobTransport
) -> None:
    fair = InMemoryJobTransport(transport.database, fairness=Fairness(max_concurrent_per_group=1))
    kernel = make_kernel(flow_of(more, more), job_transport=fair)
    await kernel.dispatch(CreateRun("flow"))
    assert (await kernel.dispatch(ClaimPendingRuns("worker", max_jobs=2))).jobs == ()
    (job,) = (await kernel.dispatch(ClaimJobs("worker"))).jobs
    assert (await work(kernel, job)).next_job is None
    assert await is_claimable(kernel, "s2")


async def refuse(ctx: Ctx) -> Any:
    raise NonRetryableError("no")


async def stumble(ctx: Ctx) -> Any:
    raise RuntimeError("not now")


async def nap(ctx: Ctx) -> Any:
    await ctx.step.sleep("nap", "1h")


@pytest.mark.parametrize(
    ("body", "outcome"),
    [(refuse, "failed"), (stumble, "failed"), (nap, "suspended")],
)
async def test_not_after_a_stage_that_has_not_completed(
    make_kernel: MakeKernel, flow_of: FlowOf, body: Callable[..., Any], outcome: str
) -> None:
    asked = Asked()
    kernel = make_kernel(flow_of(body, more, retry=RetryPolicy(2, delay="1h")))
    job = await start(kernel)
    result = await kernel.dispatch(execution(job, successor=asked))
    assert (result.outcome, result.next_job, asked.happened) == (outcome, None, [])
    assert (await kernel.dispatch(ClaimJobs("other", limit=9))).jobs == ()


async def test_nobody_is_asked_before_the_outcome_is_recorded(
    make_kernel: MakeKernel, flow_of: FlowOf
) -> None:
    happened: list[str] = []

    async def body(ctx: Ctx) -> None:
        happened.append("body")

    kernel = make_kernel(flow_of(body, more))
    job = await start(kernel)
    await kernel.dispatch(execution(job, successor=Asked(happened)))
    assert happened == ["body", "asked"]


async def test_not_after_a_delivery_that_lost_its_job(
    make_kernel: MakeKernel, flow_of: FlowOf, transport: InMemoryJobTransport, lose_worker: Any
) -> None:
    async def body(ctx: Ctx) -> None:
        if ctx.input != "lost":
            await lose_worker()

    kernel = make_kernel(flow_of(body, more))
    job = await start(kernel)
    result = await work(kernel, job)
    assert (result.ghost, result.next_job) == (True, None)
    (again,) = (await kernel.dispatch(ClaimJobs("other"))).jobs
    assert (again.job_id, again.worker_losses) == (job.job_id, 1)
    repeated = await work(kernel, job, loaded=None)
    assert repeated.next_job is None


@pytest.mark.parametrize("at_once", [True, False])
async def test_not_after_a_stage_whose_outcome_stands(kernel: Kernel, at_once: bool) -> None:
    first = await start(kernel)
    taken = (await work(kernel, first)).next_job
    assert taken is not None
    # What is read is what stands; who comes with what a claim has read executes, and is superseded.
    repeated = await (work(kernel, first) if at_once else work(kernel, first, loaded=None))
    assert (repeated.ghost, repeated.next_job) == (at_once, None)
    assert (await kernel.dispatch(ClaimJobs("other", limit=9))).jobs == ()
    assert (await work(kernel, taken)).outcome == "completed"


async def test_not_in_a_run_that_was_cancelled_meanwhile(
    make_kernel: MakeKernel, flow_of: FlowOf, transport: InMemoryJobTransport
) -> None:
    async def body(ctx: Ctx) -> None:
        await made[0].dispatch(CancelRun(ctx.run_id))

    made = [make_kernel(flow_of(body, more))]
    kernel = made[0]
    job = await start(kernel)
    assert (await work(kernel, job)).next_job is None
    assert [each.stage_id for each in await transport.get_jobs_by_run(job.run_id)] == ["s1"]


# As dicts


async def test_a_dict_does_the_same(kernel: Kernel) -> None:
    for _ in range(3):
        await kernel.dispatch({"type": "run.create", "workflow_id": "flow"})
    result = await kernel.dispatch({"type": "run.claimPending", "worker_id": "w", "max_jobs": 2})
    assert isinstance(result, ClaimPendingRunsResult)
    assert (len(result.claimed), len(result.jobs)) == (3, 2)


@pytest.mark.parametrize("wrong", [-1, 1.5, "two", None, True])
async def test_what_is_no_count_is_refused(kernel: Kernel, wrong: object) -> None:
    with pytest.raises(InvalidCommandError, match="max_jobs"):
        await kernel.dispatch({"type": "run.claimPending", "worker_id": "w", "max_jobs": wrong})


@pytest.mark.parametrize("wrong", ["worker", 7, {"worker": 1}])
async def test_what_is_no_function_is_refused(kernel: Kernel, wrong: object) -> None:
    job = await start(kernel)
    with pytest.raises(InvalidCommandError, match="successor"):
        await kernel.dispatch(execution(job, successor=wrong))
