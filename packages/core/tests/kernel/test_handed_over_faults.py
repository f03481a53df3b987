"""Jobs that are handed over: what bodies spoil, what is too large for a row, and workers that are lost."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Self

import pytest

from stagewright import (
    Kernel,
    NonRetryableError,
    StageContext,
    Status,
    Workflow,
    define_stage,
    define_workflow,
)
from stagewright.commands import (
    ClaimJobs,
    ClaimPendingRuns,
    CreateRun,
    ExecuteJob,
    ExecuteJobResult,
    JobRef,
    RedriveRun,
    RerunFrom,
)
from stagewright.errors import AfterCommitError, TransientError
from stagewright.executors import LocalExecutor
from stagewright.hosting.job_runner import run_job
from stagewright.kernel.procedures.open_group import open_group
from stagewright.kernel.unit_of_work import UnitOfWork
from stagewright.memory import InMemoryBlobStore, InMemoryDatabase, InMemoryJobTransport, InMemoryPersistence
from stagewright.ports import ActivityOutcome, ActivityRun, BodyReturned, CallersThread
from stagewright.records import DequeuedJob, RunRecord
from stagewright.runtime.job_payloads import claim_in

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
Finish = Callable[[Kernel, str], Awaitable[RunRecord]]
FailAt = Callable[..., None]
HoldAt = Callable[..., tuple[asyncio.Event, asyncio.Event]]
Told = Callable[[Kernel, str], Awaitable[list[str]]]
Ctx = StageContext[Any]


async def more(ctx: Ctx) -> Any:
    return [*(ctx.input or []), ctx.stage_id]


async def start(kernel: Kernel, input: object = None, **fields: Any) -> DequeuedJob:
    await kernel.dispatch(CreateRun("flow", input, **fields))
    (job,) = (await kernel.dispatch(ClaimPendingRuns("worker", max_jobs=1))).jobs
    return job


async def work(kernel: Kernel, job: DequeuedJob, to: str = "worker") -> ExecuteJobResult:
    return await run_job(kernel, job, successor=lambda: to)


async def next_of(kernel: Kernel, job: DequeuedJob) -> DequeuedJob:
    taken = (await work(kernel, job)).next_job
    assert taken is not None
    return taken


async def is_as_stored(kernel: Kernel, job: DequeuedJob) -> bool:
    (read,) = await kernel.ports.persistence.load_runs([job.run_id])
    return job.loaded == read


# What whoever executes it spoils


class Spoiling:
    """An executor that changes all that it is given, and keeps what it gives to change it later."""

    def __init__(self) -> None:
        self.given: list[str] = []
        self.gave: list[Any] = []

    async def run(self, activity: ActivityRun) -> ActivityOutcome:
        shown = (
            activity.stage.id,
            activity.input,
            activity.workflow_input,
            activity.config,
            dict(activity.outputs),
        )
        self.given.append(repr(shown))
        outcome = await LocalExecutor().run(activity)
        values: list[Any] = [
            activity.input,
            activity.workflow_input,
            activity.config,
            *activity.outputs.values(),
        ]
        for value in values:
            value["list"].append("spoilt")
        assert isinstance(outcome.ending, BodyReturned)
        self.gave.append(outcome.ending.output)
        return outcome


def spoilt(*ids: str) -> Any:
    async def body(ctx: Ctx) -> Any:
        return {"list": [ctx.stage_id]}

    return [define_stage(id, body, input=Any, output=Any, config=Any) for id in ids]


@pytest.mark.guarantee("kernel.next-job-is-handed-over-with-the-outcome")
async def test_what_is_done_to_an_input_is_not_seen_by_the_next(make_kernel: MakeKernel) -> None:
    s1, s2, s3 = spoilt("s1", "s2", "s3")
    executor = Spoiling()
    kernel = make_kernel(
        define_workflow("flow", input=Any).pipe(s1).pipe(s2).pipe(s3).build(), executor=executor
    )
    config = {id: {"list": [f"of {id}"]} for id in ("s1", "s2", "s3")}
    job: DequeuedJob | None = await start(kernel, {"list": ["in"]}, config=config)
    while job is not None:
        assert await is_as_stored(kernel, job)
        assert job.payload == {"config": config[job.stage_id]}
        job = (await work(kernel, job)).next_job
    given, first, second = ({"list": [text]} for text in ("in", "s1", "s2"))
    assert executor.given == [
        repr(("s1", given, given, config["s1"], {})),
        repr(("s2", first, given, config["s2"], {"s1": first})),
        repr(("s3", second, given, config["s3"], {"s1": first, "s2": second})),
    ]


@pytest.mark.parametrize("moment", ["commit", "committed"])
async def test_what_becomes_of_an_output_is_not_seen_by_the_next(
    make_kernel: MakeKernel, hold_at: HoldAt, moment: str
) -> None:
    s1, s2 = spoilt("s1", "s2")
    executor = Spoiling()
    kernel = make_kernel(define_workflow("flow", input=Any).pipe(s1).pipe(s2).build(), executor=executor)
    config: dict[str, Any] = {id: {"list": []} for id in ("s1", "s2")}
    first = await start(kernel, {"list": []}, config=config)
    reached, go = hold_at(moment)
    working = asyncio.create_task(next_of(kernel, first))
    await reached.wait()
    executor.gave[0]["list"].append("spoilt")
    go.set()
    job = await working
    executor.gave[0]["list"].append("spoilt later")
    assert await is_as_stored(kernel, job)
    assert job.loaded is not None
    stage = job.loaded.stage("s1")
    assert stage is not None
    assert stage.output == {"list": ["s1"]}


@pytest.mark.parametrize("how", ["claimed", "handed over"])
async def test_jobs_of_one_run_share_nothing_that_could_be_changed(make_kernel: MakeKernel, how: str) -> None:
    a, b, c = spoilt("a", "b", "c")
    executor = Spoiling()
    kernel = make_kernel(define_workflow("flow", input=Any).parallel(a, b, c).build(), executor=executor)
    config: dict[str, Any] = {id: {"list": []} for id in "abc"}
    await kernel.dispatch(CreateRun("flow", {"list": ["in"]}, config=config))
    jobs = (await kernel.dispatch(ClaimPendingRuns("worker", max_jobs=3 * (how != "claimed")))).jobs
    if how == "claimed":
        jobs = (await kernel.dispatch(ClaimJobs("worker", limit=3))).jobs
    assert len(jobs) == 3
    for job in jobs:
        assert (await work(kernel, job)).outcome == "completed"
    given = {"list": ["in"]}
    assert executor.given == [repr((id, given, given, config[id], {})) for id in "abc"]


# What is too large for a row


async def test_a_large_payload_arrives_whole(
    make_kernel: MakeKernel, transport: InMemoryJobTransport, blob_store: InMemoryBlobStore
) -> None:
    async def length(ctx: StageContext[Any, Any]) -> int:
        return len(ctx.config["text"])

    a, b = (define_stage(id, length, input=Any, output=Any, config=Any) for id in "ab")
    kernel = make_kernel(
        define_workflow("flow", input=Any).pipe(a).pipe(b).build(), spill_threshold_bytes=200
    )
    config = {"a": {"text": "x" * 5_000}, "b": {"text": "y" * 7_000}}
    job = await start(kernel, config=config)
    taken = await next_of(kernel, job)
    assert [job.payload, taken.payload] == [{"config": config["a"]}, {"config": config["b"]}]
    for record in await transport.get_jobs_by_run(job.run_id):
        assert claim_in(record.payload) is not None
    assert len([key async for key in blob_store.list("")]) == 2
    result = await work(kernel, taken)
    assert (result.outcome, result.output, result.next_job) == ("completed", 7_000, None)


async def test_a_spilled_output_is_the_next_ones_input(make_kernel: MakeKernel, flow_of: FlowOf) -> None:
    async def large(ctx: Ctx) -> Any:
        return "x" * 5_000

    async def length(ctx: Ctx) -> Any:
        return len(ctx.input)

    kernel = make_kernel(flow_of(large, length), spill_threshold_bytes=200)
    taken = await next_of(kernel, await start(kernel))
    assert (await work(kernel, taken)).output == 5_000


# Workers that are lost


@pytest.mark.guarantee("kernel.next-job-is-handed-over-with-the-outcome")
@pytest.mark.parametrize("moment", ["begin", "enqueue_delivered", "append_outbox_events", "commit"])
async def test_what_is_not_committed_hands_nothing_over(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    fail_at: FailAt,
    contents: Callable[[], dict[str, object]],
    finish: Finish,
    lose_worker: Any,
    moment: str,
) -> None:
    kernel = make_kernel(flow_of(more, more))
    job = await start(kernel, [])
    before = contents()
    fail_at(moment, error=ConnectionError("gone"))
    with pytest.raises(ConnectionError):
        await work(kernel, job)
    assert contents() == before
    await lose_worker()
    assert (await finish(kernel, job.run_id)).output == ["s1", "s2"]


@pytest.mark.guarantee("kernel.next-job-is-handed-over-with-the-outcome")
async def test_a_worker_that_never_hears_of_it_loses_it_to_its_lease(
    make_kernel: MakeKernel, flow_of: FlowOf, fail_at: FailAt, lose_worker: Any, told: Told
) -> None:
    kernel = make_kernel(flow_of(more, more))
    first = await start(kernel, [])
    fail_at("committed", error=ConnectionError("gone"))
    with pytest.raises(ConnectionError):
        await work(kernel, first)
    assert (await kernel.dispatch(ClaimJobs("other", limit=9))).jobs == ()
    await lose_worker()
    (job,) = (await kernel.dispatch(ClaimJobs("other", limit=9))).jobs
    assert (job.stage_id, job.worker_losses, job.failures, job.fence.deliveries) == ("s2", 1, 0, 2)
    assert (await work(kernel, job)).outcome == "completed"
    assert (await told(kernel, first.run_id)).count("stage:completed") == 2


async def test_a_run_whose_claimer_never_hears_of_it_goes_on(
    make_kernel: MakeKernel, flow_of: FlowOf, fail_at: FailAt, lose_worker: Any, finish: Finish
) -> None:
    kernel = make_kernel(flow_of(more, more))
    run_id = (await kernel.dispatch(CreateRun("flow", []))).run_id
    fail_at("committed", error=ConnectionError("gone"))
    with pytest.raises(ConnectionError):
        await kernel.dispatch(ClaimPendingRuns("worker", max_jobs=1))
    await lose_worker()
    (job,) = (await kernel.dispatch(ClaimJobs("other", limit=9))).jobs
    assert (job.run_id, job.stage_id, job.worker_losses) == (run_id, "s1", 1)
    assert (await work(kernel, job)).outcome == "completed"


async def test_two_deliveries_of_one_job_do_not_both_count(
    make_kernel: MakeKernel, flow_of: FlowOf, lose_worker: Any
) -> None:
    kernel = make_kernel(flow_of(more, more, more))
    taken = await next_of(kernel, await start(kernel, []))
    await lose_worker()
    (again,) = (await kernel.dispatch(ClaimJobs("other"))).jobs
    assert again.job_id == taken.job_id
    late = await work(kernel, taken)
    assert (late.ghost, late.next_job) == (True, None)
    last = await next_of(kernel, again)
    assert (await work(kernel, last)).output == ["s1", "s2", "s3"]


@pytest.mark.parametrize("conflicts", [1, 2])
async def test_a_transaction_that_is_tried_again_hands_over_once(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    fail_at: FailAt,
    transport: InMemoryJobTransport,
    conflicts: int,
) -> None:
    asked: list[str] = []

    def ask() -> str:
        asked.append("asked")
        return "worker"

    kernel = make_kernel(flow_of(more, more))
    first = await start(kernel, [])
    fail_at("commit", times=conflicts, error=TransientError("not now"))
    reference = JobRef(first.job_id, first.fence)
    result = await kernel.dispatch(
        ExecuteJob(
            run_id=first.run_id,
            workflow_id="flow",
            stage_id="s1",
            job=reference,
            loaded=first.loaded,
            successor=ask,
        )
    )
    assert result.next_job is not None
    assert len(asked) == conflicts + 1
    jobs = await transport.get_jobs_by_run(first.run_id)
    assert [job.status for job in jobs] == [Status.COMPLETED, Status.RUNNING]
    assert await is_as_stored(kernel, result.next_job)


async def test_who_is_told_of_an_error_has_handed_its_jobs_back(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    transport: InMemoryJobTransport,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse() -> None:
        raise OSError("the store is gone")

    async def and_then_fail(unit: UnitOfWork, *args: Any, **fields: Any) -> tuple[str, ...]:
        unit.after_commit(refuse)
        return await open_group(unit, *args, **fields)

    monkeypatch.setattr("stagewright.kernel.commands.run_claim_pending.open_group", and_then_fail)
    kernel = make_kernel(flow_of(more, more))
    run_id = (await kernel.dispatch(CreateRun("flow", []))).run_id
    with pytest.raises(AfterCommitError, match="the store is gone"):
        await kernel.dispatch(ClaimPendingRuns("worker", max_jobs=1))
    (record,) = await transport.get_jobs_by_run(run_id)
    assert (record.status, record.worker_id) == (Status.PENDING, None)
    assert (record.failures, record.worker_losses, record.interruptions) == (0, 0, 1)
    (job,) = (await kernel.dispatch(ClaimJobs("other"))).jobs
    assert (job.run_id, job.fence.deliveries) == (run_id, 2)
    assert (await work(kernel, job)).outcome == "completed"


# What comes after


async def test_a_run_that_was_handed_over_is_redriven(
    make_kernel: MakeKernel, flow_of: FlowOf, told: Told
) -> None:
    broken = True

    async def fragile(ctx: Ctx) -> Any:
        if broken:
            raise NonRetryableError("broken")
        return await more(ctx)

    kernel = make_kernel(flow_of(more, fragile, more))
    taken = await next_of(kernel, await start(kernel, []))
    assert (await work(kernel, taken)).outcome == "failed"
    broken = False
    await kernel.dispatch(RedriveRun(taken.run_id))
    (job,) = (await kernel.dispatch(ClaimJobs("worker", limit=9))).jobs
    assert job.stage_id == "s2"
    last = await next_of(kernel, job)
    assert await is_as_stored(kernel, last)
    assert (await work(kernel, last)).output == ["s1", "s2", "s3"]
    sequences = [event.sequence for event in await kernel.runs.events(taken.run_id)]
    assert sequences == list(range(1, len(sequences) + 1))


async def test_a_run_that_was_handed_over_is_rerun(make_kernel: MakeKernel, flow_of: FlowOf) -> None:
    kernel = make_kernel(flow_of(more, more, more))
    job: DequeuedJob | None = await start(kernel, [])
    run_id = "" if job is None else job.run_id
    while job is not None:
        job = (await work(kernel, job)).next_job
    with pytest.warns(DeprecationWarning, match="RedriveRun"):
        await kernel.dispatch(RerunFrom(run_id, "s2"))
    (job,) = (await kernel.dispatch(ClaimJobs("worker", limit=9))).jobs
    assert job.stage_id == "s2"
    last = await next_of(kernel, job)
    assert await is_as_stored(kernel, last)
    assert (await work(kernel, last)).output == ["s1", "s2", "s3"]


class LendingPersistence(InMemoryPersistence):
    """Says that it works on the caller's session."""

    def borrow(self, session: object, thread: CallersThread | None = None) -> Self:
        return self


async def test_not_in_the_transaction_of_a_caller(
    make_kernel: MakeKernel, flow_of: FlowOf, database: InMemoryDatabase
) -> None:
    kernel = make_kernel(flow_of(more), persistence=LendingPersistence(database))
    await kernel.dispatch(CreateRun("flow", []))
    claimed = await kernel.using(object()).dispatch(ClaimPendingRuns("worker", max_jobs=1))
    assert (len(claimed.claimed), claimed.jobs) == (1, ())
    assert len((await kernel.dispatch(ClaimJobs("worker"))).jobs) == 1
