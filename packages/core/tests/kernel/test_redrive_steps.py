"""What a redrive makes of durable steps, in a ledger that shares its transaction and in one that doesn't."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import pytest
import pytest_asyncio

from stagewright import (
    Kernel,
    NonRetryableError,
    StageContext,
    Status,
    StepRun,
    Workflow,
)
from stagewright.commands import (
    CancelRun,
    ClaimJobs,
    ExecuteJob,
    ExecuteJobResult,
    FromStage,
    JobRef,
    RedriveRun,
    Start,
)
from stagewright.errors import StepFailedError
from stagewright.memory import InMemoryBlobStore, InMemoryDatabase, InMemoryStepLedger
from stagewright.records import AnnotationQuery, DequeuedJob, RunRecord, StepRecord
from stagewright.runtime.abort import AbortSource
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
Finish = Callable[[Kernel, str], Awaitable[RunRecord]]
StartRun = Callable[..., Awaitable[str]]
TakeJob = Callable[..., Awaitable[DequeuedJob]]
Execute = Callable[..., Coroutine[Any, Any, ExecuteJobResult]]

Ctx = StageContext[Any]


class Crash(BaseException):
    """From here on nothing of the process is left."""


@pytest.fixture(params=["enlisting", "separate"], autouse=True)
def ledger(
    request: pytest.FixtureRequest, clock: FakeClock, database: InMemoryDatabase
) -> InMemoryStepLedger:
    """In the persistence's database, and in one of its own."""
    return InMemoryStepLedger(database if request.param == "enlisting" else InMemoryDatabase(clock))


Background = Callable[[Coroutine[Any, Any, Any]], object]


@pytest_asyncio.fixture
async def background() -> AsyncIterator[Background]:
    """`background(work)`: what goes on in a process that nobody hears of any more, until the test is over."""
    tasks: list[asyncio.Task[Any]] = []
    yield lambda work: tasks.append(asyncio.create_task(work))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Steps:
    """A body of two steps, of which the second can be broken, and a wait; it counts what it really did."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.given: list[StepRun] = []
        self.broken = True
        self.options: dict[str, Any] = {}

    async def __call__(self, ctx: Ctx) -> Any:
        first = await ctx.step.run("first", lambda: self._do("first"))
        await ctx.step.run("second", self._second, **self.options)
        await ctx.step.sleep("nap", "1h")
        return first

    def _do(self, step_id: str) -> str:
        self.done[step_id] += 1
        return f"{step_id} {self.done[step_id]}"

    async def _second(self, run: StepRun) -> str:
        self.given.append(run)
        if self.broken:
            raise NonRetryableError("the second is broken")
        return self._do("second")


async def steps_of(kernel: Kernel, run_id: str, stage_id: str = "s1") -> dict[str, StepRecord]:
    stage = await kernel.ports.persistence.get_stage(run_id, stage_id)
    assert stage is not None
    assert kernel.ports.step_ledger is not None
    return {step.step_id: step for step in await kernel.ports.step_ledger.list(stage.id)}


async def abandoned(kernel: Kernel, run_id: str) -> list[Any]:
    query = AnnotationQuery(key="run.supersededAttempt")
    rows = await kernel.ports.persistence.list_annotations(run_id, query)
    payloads: list[Any] = [row.payload for row in rows]
    return [payload.get("abandoned_steps") for payload in payloads]


@pytest.fixture
def ended(make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, finish: Finish) -> Any:
    """`kernel, body, run_id = await ended(**options)`: a run whose second step has failed for good."""

    async def make(**options: Any) -> tuple[Kernel, Steps, str]:
        body = Steps()
        body.options = options
        kernel = make_kernel(flow_of(body.__call__))
        run_id = await start_run(kernel)
        assert (await finish(kernel, run_id)).status is Status.FAILED
        body.broken = False
        return kernel, body, run_id

    return make


@pytest.fixture
def go_on(resume: Any, finish: Finish) -> Callable[[Kernel, str], Coroutine[Any, Any, RunRecord]]:
    """`await go_on(kernel, run_id)`: execute, pass the nap, execute to the end."""

    async def work(kernel: Kernel, run_id: str) -> RunRecord:
        for _ in range(10):
            for job in (await kernel.dispatch(ClaimJobs("w", limit=9))).jobs:
                reference = JobRef(job.job_id, job.fence)
                await kernel.dispatch(ExecuteJob(run_id, "flow", job.stage_id, job=reference))
            await resume(kernel, run_id)
        return await finish(kernel, run_id)

    return work


@pytest.mark.guarantee("redrives.completed-steps-answer")
async def test_completed_steps_answer_and_failed_ones_are_executed_again(ended: Any, go_on: Any) -> None:
    kernel, body, run_id = await ended()
    before = await steps_of(kernel, run_id)
    await kernel.dispatch(RedriveRun(run_id))
    run = await go_on(kernel, run_id)
    assert (run.status, run.output) == (Status.COMPLETED, "first 1")
    assert body.done == {"first": 1, "second": 1}
    after = await steps_of(kernel, run_id)
    assert after["first"] == before["first"]
    first, again = body.given
    assert (first.is_reclaim, again.is_reclaim) == (False, True)
    assert (first.external_key, first.attempt, again.attempt) == (again.external_key, 1, 2)
    assert after["second"].created_at == before["second"].created_at
    assert await abandoned(kernel, run_id) == [None]
    page = await kernel.runs.logs(run_id, level="WARN")
    assert not [line for line in page.items if "forgets" in line.message]


@pytest.mark.guarantee("redrives.completed-steps-answer")
async def test_a_completed_stage_that_is_redriven_replays_its_steps(ended: Any, go_on: Any) -> None:
    kernel, body, run_id = await ended()
    await kernel.dispatch(RedriveRun(run_id))
    await go_on(kernel, run_id)
    await kernel.dispatch(RedriveRun(run_id, from_=FromStage("s1")))
    assert (await go_on(kernel, run_id)).status is Status.COMPLETED
    assert body.done == {"first": 1, "second": 1}


async def test_a_run_that_begins_anew_has_no_step_of_before(
    ended: Any, go_on: Any, ledger: InMemoryStepLedger
) -> None:
    kernel, body, run_id = await ended()
    old = await kernel.ports.persistence.get_stage(run_id, "s1")
    assert old is not None
    before = await ledger.list(old.id)
    await kernel.dispatch(RedriveRun(run_id, from_=Start()))
    assert await ledger.list(old.id) == []
    told = [
        {"step_id": step.step_id, "status": step.status, "external_key": step.external_key} for step in before
    ]
    assert await abandoned(kernel, run_id) == [told]
    (line,) = [
        line for line in (await kernel.runs.logs(run_id, level="WARN")).items if "forgets" in line.message
    ]
    assert line.fields == {"abandoned_steps": told}
    assert (await go_on(kernel, run_id)).status is Status.COMPLETED
    assert body.done == {"first": 2, "second": 1}
    assert len({one.external_key for one in body.given}) == 2


@pytest.mark.guarantee("redrives.reopened-steps-may-run")
async def test_a_step_that_refuses_a_takeover_is_executed_after_a_redrive(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    lose_worker: Callable[[], Awaitable[None]],
    finish: Finish,
    background: Background,
) -> None:
    began, runs = asyncio.Event(), list[StepRun]()

    async def charge(run: StepRun) -> str:
        runs.append(run)
        began.set()
        if len(runs) == 1:
            await asyncio.Event().wait()
        return "charged"

    async def body(ctx: Ctx) -> Any:
        return await ctx.step.run("charge", charge, on_reclaim="fail")

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    background(execute(kernel, await take_job(kernel)))
    await began.wait()
    await lose_worker()
    refused = await finish(kernel, run_id)
    assert refused.error is not None
    assert refused.error.type == "StepNotReplaySafeError"
    await kernel.dispatch(RedriveRun(run_id))
    run = await finish(kernel, run_id)
    assert (run.status, run.output) == (Status.COMPLETED, "charged")
    assert [one.is_reclaim for one in runs] == [False, True]
    assert len({one.external_key for one in runs}) == 1


async def test_a_step_that_was_cut_off_with_a_lease_is_not_waited_for(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    finish: Finish,
    clock: FakeClock,
    background: Background,
) -> None:
    began, runs = asyncio.Event(), list[StepRun]()

    async def charge(run: StepRun) -> str:
        runs.append(run)
        began.set()
        if len(runs) == 1:
            await asyncio.Event().wait()
        return "charged"

    async def body(ctx: Ctx) -> Any:
        return await ctx.step.run("charge", charge, lease="12h", on_reclaim="fail")

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    background(execute(kernel, await take_job(kernel)))
    await began.wait()
    await kernel.dispatch(CancelRun(run_id))
    await kernel.dispatch(RedriveRun(run_id))
    redriven = clock.now()
    run = await finish(kernel, run_id)
    assert (run.status, run.output, clock.now()) == (Status.COMPLETED, "charged", redriven)
    assert [one.is_reclaim for one in runs] == [False, True]


async def test_what_an_execution_of_before_records_after_all_is_the_result(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    finish: Finish,
) -> None:
    began, go = asyncio.Event(), asyncio.Event()
    calls = 0

    async def charge() -> str:
        nonlocal calls
        calls += 1
        began.set()
        await go.wait()
        return f"charge {calls}"

    async def body(ctx: Ctx) -> Any:
        return await ctx.step.run("charge", charge)

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    zombie = asyncio.create_task(execute(kernel, await take_job(kernel)))
    await began.wait()
    await kernel.dispatch(CancelRun(run_id))
    await kernel.dispatch(RedriveRun(run_id))
    go.set()
    result = await zombie
    assert (result.ghost, result.ghost_reason) == (True, "orphan")
    run = await finish(kernel, run_id)
    assert (run.status, run.output, calls) == (Status.COMPLETED, "charge 1", 1)


async def test_waits_without_an_end_begin_anew(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    go_on: Any,
    clock: FakeClock,
) -> None:
    async def body(ctx: Ctx) -> Any:
        await ctx.step.run("once", lambda: 1)
        await ctx.step.sleep("nap", "1h")
        return "rested"

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    await execute(kernel, await take_job(kernel))
    clock.advance("30m")
    await kernel.dispatch(CancelRun(run_id))
    await kernel.dispatch(RedriveRun(run_id))
    redriven = clock.now()
    assert (await go_on(kernel, run_id)).output == "rested"
    nap = (await steps_of(kernel, run_id))["nap"]
    assert nap.deadline_at is not None
    assert (nap.deadline_at - redriven).total_seconds() == 3600
    assert await abandoned(kernel, run_id) == [None]


async def test_spilled_results_of_completed_steps_are_still_there(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    finish: Finish,
    blob_store: InMemoryBlobStore,
) -> None:
    broken = True
    seen: list[str] = []

    async def body(ctx: Ctx) -> Any:
        seen.append(await ctx.step.run("large", lambda: "x" * 500 + str(len(seen))))
        if broken:
            raise NonRetryableError("broken")
        return len(seen[-1])

    kernel = make_kernel(flow_of(body), spill_threshold_bytes=100)
    run_id = await start_run(kernel)
    await finish(kernel, run_id)
    broken = False
    await kernel.dispatch(RedriveRun(run_id))
    assert (await finish(kernel, run_id)).output == 501
    assert seen[0] == seen[1]
    broken = True
    await kernel.dispatch(RedriveRun(run_id, from_=Start()))
    assert [key async for key in blob_store.list("workflow-v2/")] == []


@pytest.mark.guarantee("redrives.a-lost-reset-is-made-up-for")
@pytest.mark.parametrize("ledger", ["separate"], indirect=True)
@pytest.mark.parametrize("lost", ["list", "compare_and_set", "mark"])
async def test_a_reset_that_was_cut_short_is_done_before_the_body_runs(
    ended: Any,
    ledger: InMemoryStepLedger,
    go_on: Any,
    fail_at: Callable[..., None],
    take_job: TakeJob,
    execute: Execute,
    lose_worker: Callable[[], Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
    lost: str,
) -> None:
    kernel, body, run_id = await ended()
    await kernel.dispatch(RedriveRun(run_id))
    job = await take_job(kernel)
    if lost == "mark":
        fail_at("update_stage", nth=1, error=Crash())
    else:
        monkeypatch.setattr(ledger, lost, _interrupted)
    with pytest.raises(Crash):
        await execute(kernel, job)
    monkeypatch.undo()
    assert body.done == {"first": 1}
    stage = await kernel.ports.persistence.get_stage(run_id, "s1")
    assert stage is not None
    assert stage.steps_reset_owed_at is not None
    await lose_worker()
    assert (await go_on(kernel, run_id)).status is Status.COMPLETED
    assert body.done == {"first": 1, "second": 1}
    stage = await kernel.ports.persistence.get_stage(run_id, "s1")
    assert stage is not None
    assert stage.steps_reset_owed_at is None


async def _interrupted(*_arguments: object) -> Any:
    raise Crash


async def test_a_stored_failure_is_not_replayed_by_a_body_that_catches_it(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, finish: Finish
) -> None:
    broken = True

    def charge() -> str:
        if broken:
            raise NonRetryableError("no money")
        return "charged"

    async def body(ctx: Ctx) -> Any:
        try:
            return await ctx.step.run("charge", charge)
        except StepFailedError:
            return "replayed"
        except NonRetryableError:
            return "declined"

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    assert (await finish(kernel, run_id)).output == "declined"
    broken = False
    await kernel.dispatch(RedriveRun(run_id))
    assert (await finish(kernel, run_id)).output == "charged"


async def test_a_body_that_is_told_to_stop_leaves_its_step_to_the_redrive(
    make_kernel: MakeKernel,
    flow_of: FlowOf,
    start_run: StartRun,
    take_job: TakeJob,
    execute: Execute,
    finish: Finish,
) -> None:
    began = asyncio.Event()
    runs: list[StepRun] = []

    async def charge(run: StepRun) -> str:
        runs.append(run)
        began.set()
        if len(runs) == 1:
            await run.abort.wait()
            run.abort.raise_if_set()
        return "charged"

    async def body(ctx: Ctx) -> Any:
        return await ctx.step.run("charge", charge, on_reclaim="fail")

    kernel = make_kernel(flow_of(body))
    run_id = await start_run(kernel)
    abort = AbortSource()
    zombie = asyncio.create_task(execute(kernel, await take_job(kernel), abort=abort))
    await began.wait()
    await kernel.dispatch(CancelRun(run_id))
    await kernel.dispatch(RedriveRun(run_id))
    abort.set("cancelled")
    assert (await zombie).ghost
    assert (await finish(kernel, run_id)).output == "charged"
