"""Whose a step is: takeover after a lost worker, explicit leases, and outcomes that come too late."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from stagewright import Kernel, RetryPolicy, StageContext, Status, StepRun, Workflow
from stagewright.commands import ExecuteJob, ExecuteJobResult
from stagewright.errors import StepLeaseLostError, StepNotReplaySafeError
from stagewright.memory import InMemoryBlobStore, InMemoryJobTransport
from stagewright.records import AnnotationQuery, DequeuedJob, StepRecord
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
StartRun = Callable[..., Awaitable[str]]
TakeJob = Callable[..., Awaitable[DequeuedJob]]
Execute = Callable[..., Coroutine[Any, Any, ExecuteJobResult]]
Resume = Callable[[Kernel, str], Awaitable[None]]
LoseWorker = Callable[[], Awaitable[None]]

Ctx = StageContext[Any]


@dataclass
class _Visit:
    """One execution of the step's function: it waits until it is told how to end."""

    run: StepRun
    ending: "asyncio.Future[Any]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class _Race:
    """A run with one step, whose executions end when the test says so."""

    def __init__(
        self, kernel: Kernel, run_id: str, take: TakeJob, execute: Execute, options: dict[str, Any]
    ) -> None:
        self.kernel = kernel
        self.run_id = run_id
        self.options = options
        self.visits: list[_Visit] = []
        self.caught: list[Exception] = []
        self.tasks: list[asyncio.Task[ExecuteJobResult]] = []
        self._take = take
        self._execute = execute
        self._came = asyncio.Condition()

    async def body(self, ctx: Ctx) -> Any:
        async def fn(run: StepRun) -> Any:
            visit = _Visit(run)
            self.visits.append(visit)
            async with self._came:
                self._came.notify_all()
            return await visit.ending

        try:
            return await ctx.step.run("a", fn, **self.options)
        except Exception as error:
            self.caught.append(error)
            raise

    async def begin(self) -> asyncio.Task[ExecuteJobResult]:
        """Take the job and execute it until its step's function runs, or to its end."""
        return await self.execute(await self._take(self.kernel))

    async def execute(self, job: DequeuedJob, **fields: Any) -> asyncio.Task[ExecuteJobResult]:
        before = len(self.visits)
        task = asyncio.create_task(self._execute(self.kernel, job, **fields))
        self.tasks.append(task)

        async def came() -> None:
            async with self._came:
                await self._came.wait_for(lambda: len(self.visits) > before)

        waiting = asyncio.create_task(came())
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        return task

    async def until(self, holds: Callable[[StepRecord], bool]) -> None:
        """Until this holds of the step."""
        async with asyncio.timeout(10):
            while True:
                steps = await self.kernel.runs.steps(self.run_id)
                if steps and holds(steps[0]):
                    return
                await asyncio.sleep(0.002)

    async def step(self) -> StepRecord:
        (row,) = await self.kernel.runs.steps(self.run_id)
        return row


@pytest_asyncio.fixture
async def race(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, take_job: TakeJob, execute: Execute
) -> AsyncIterator[Callable[..., Coroutine[Any, Any, _Race]]]:
    """`await race(**options)`: a run whose step has these options; executions left over end with the test."""
    races: list[_Race] = []

    async def make(**options: Any) -> _Race:
        made: list[_Race] = []

        async def body(ctx: Ctx) -> Any:
            return await made[0].body(ctx)

        ports = options.pop("ports", {})
        kernel = make_kernel(flow_of(body, retry=RetryPolicy(2, delay=0)), **ports)
        made.append(_Race(kernel, await start_run(kernel), take_job, execute, options))
        races.extend(made)
        return made[0]

    yield make
    for one in races:
        for task in one.tasks:
            task.cancel()
        await asyncio.gather(*one.tasks, return_exceptions=True)


MakeRace = Callable[..., Coroutine[Any, Any, _Race]]

pytestmark = pytest.mark.parametrize("transport", ["enlisting", "separate"], indirect=True)


@pytest.mark.guarantee("steps.a-lost-workers-step-is-taken-over")
async def test_a_step_of_a_lost_worker_is_taken_over_at_its_next_delivery(
    race: MakeRace, lose_worker: LoseWorker
) -> None:
    one = await race()
    await one.begin()
    await lose_worker()
    again = await one.begin()
    first, second = (visit.run for visit in one.visits)
    assert (first.attempt, first.is_reclaim) == (1, False)
    assert (second.attempt, second.is_reclaim) == (2, True)
    assert first.external_key == second.external_key
    one.visits[1].ending.set_result("second")
    assert (await again).output == "second"
    step = await one.step()
    assert (step.attempt, step.result, step.owner and step.owner.deliveries) == (2, "second", 2)


@pytest.mark.guarantee("steps.the-first-outcome-stands")
async def test_of_two_executions_the_first_to_end_is_recorded(
    race: MakeRace, lose_worker: LoseWorker
) -> None:
    one = await race()
    frozen = await one.begin()
    await lose_worker()
    again = await one.begin()
    # The frozen worker thaws: what it did was done, and its result is kept; its outcome of the stage is not.
    one.visits[0].ending.set_result("first")
    assert (await frozen).ghost
    assert (await one.step()).result == "first"
    one.visits[1].ending.set_result("second")
    assert (await again).output == "first"
    (note,) = await one.kernel.ports.persistence.list_annotations(one.run_id, AnnotationQuery())
    assert (note.key, note.value, note.idempotency_key) == (
        "step.outcome-conflict",
        "completed",
        f"{note.stage_record_id}:a:2",
    )
    assert note.payload == {
        "step_id": "a",
        "kind": "run",
        "recorded_status": "completed",
        "recorded_attempt": 2,
        "external_key": one.visits[0].run.external_key,
    }
    warnings = (await one.kernel.runs.logs(one.run_id, level="WARN")).items
    assert len([line for line in warnings if "came to an outcome when one was recorded" in line.message]) == 1


async def test_a_result_that_comes_too_late_changes_nothing(race: MakeRace, lose_worker: LoseWorker) -> None:
    one = await race()
    frozen = await one.begin()
    await lose_worker()
    again = await one.begin()
    one.visits[1].ending.set_result("second")
    assert (await again).output == "second"
    before = await one.step()
    one.visits[0].ending.set_result("first")
    assert (await frozen).ghost
    assert await one.step() == before
    run = await one.kernel.runs.get(one.run_id)
    assert run is not None
    assert (run.status, run.output) == (Status.COMPLETED, "second")


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_failure_of_an_execution_that_lost_its_step_says_nothing_about_the_step(
    race: MakeRace, lose_worker: LoseWorker, when: str
) -> None:
    one = await race()
    frozen = await one.begin()
    await lose_worker()
    again = await one.begin()
    if when == "before":
        one.visits[0].ending.set_exception(ConnectionError("thawed"))
        assert (await frozen).ghost
        (error,) = one.caught
        assert isinstance(error, StepLeaseLostError)
        assert isinstance(error.__cause__, ConnectionError)
    one.visits[1].ending.set_result("second")
    assert (await again).output == "second"
    if when == "after":
        one.visits[0].ending.set_exception(ConnectionError("thawed"))
        assert (await frozen).ghost
    assert (await one.step()).result == "second"


async def test_a_superseded_execution_gets_no_step(
    race: MakeRace, lose_worker: LoseWorker, take_job: TakeJob, execute: Execute
) -> None:
    one = await race()
    old = await take_job(one.kernel)
    await lose_worker()
    await one.begin()
    late = await one.execute(old)
    assert (await late).ghost or (await late).outcome == "failed"
    assert len(one.visits) == 1
    one.visits[0].ending.set_result("done")


async def test_the_same_delivery_twice_executes_a_step_once(
    race: MakeRace, take_job: TakeJob, clock: FakeClock
) -> None:
    one = await race()
    job = await take_job(one.kernel)
    await one.execute(job)
    twin = await (await one.execute(job))
    if twin.outcome == "suspended":
        assert twin.next_poll_at == clock.now() + timedelta(seconds=5)
    assert len(one.visits) == 1
    one.visits[0].ending.set_result("done")


@pytest.mark.guarantee("steps.a-step-that-must-not-run-again-does-not")
async def test_a_step_that_must_not_run_again_is_refused_after_a_lost_worker(
    race: MakeRace, lose_worker: LoseWorker, take_job: TakeJob, execute: Execute
) -> None:
    one = await race(on_reclaim="fail")
    await one.begin()
    await lose_worker()
    result = await (await one.begin())
    assert (result.outcome, result.will_retry) == ("failed", False)
    (error,) = one.caught
    assert isinstance(error, StepNotReplaySafeError)
    assert (error.step_id, error.external_key) == ("a", one.visits[0].run.external_key)
    assert error.external_key is not None
    assert error.external_key in str(error)
    step = await one.step()
    assert (step.status, step.attempt, step.error and step.error.code) == (
        "failed",
        1,
        "STEP_NOT_REPLAY_SAFE",
    )
    assert len(one.visits) == 1


async def test_an_outcome_that_comes_before_the_refusal_is_the_answer(
    race: MakeRace,
    lose_worker: LoseWorker,
    hold_at: Callable[..., tuple[asyncio.Event, asyncio.Event]],
    take_job: TakeJob,
    execute: Execute,
) -> None:
    one = await race(on_reclaim="fail")
    frozen = await one.begin()
    await lose_worker()
    reached, go = hold_at("step_ledger.compare_and_set")
    again = asyncio.create_task(execute(one.kernel, await take_job(one.kernel)))
    await reached.wait()
    one.visits[0].ending.set_result("first")
    await frozen
    go.set()
    assert (await again).output == "first"


async def test_a_step_that_raised_may_run_again_whatever_is_said_about_reclaims(race: MakeRace) -> None:
    one = await race(on_reclaim="fail")
    first = await one.begin()
    one.visits[0].ending.set_exception(ValueError("raised"))
    assert (await first).will_retry
    second = await one.begin()
    one.visits[1].ending.set_result("done")
    assert (await second).output == "done"
    assert [visit.run.is_reclaim for visit in one.visits] == [False, False]


@pytest.mark.guarantee("steps.an-explicit-lease-is-a-time")
async def test_an_explicit_lease_holds_until_it_ends(
    race: MakeRace, lose_worker: LoseWorker, clock: FakeClock, resume: Resume
) -> None:
    one = await race(lease="1h")
    await one.begin()
    started = clock.now()
    assert (await one.step()).lease_expires_at == started + timedelta(hours=1)
    await lose_worker()
    waiting = await (await one.begin())
    assert (waiting.outcome, waiting.next_poll_at) == ("suspended", clock.now() + timedelta(seconds=5))
    clock.set(started + timedelta(minutes=59, seconds=58))
    await resume(one.kernel, one.run_id)
    last = await (await one.begin())
    assert last.next_poll_at == started + timedelta(hours=1), "never later than the end of the lease"
    assert len(one.visits) == 1
    await resume(one.kernel, one.run_id)
    assert clock.now() == started + timedelta(hours=1)
    again = await one.begin()
    assert one.visits[1].run.is_reclaim
    one.visits[1].ending.set_result("done")
    assert (await again).output == "done"


async def test_a_heartbeat_by_hand_extends_an_explicit_lease(race: MakeRace, clock: FakeClock) -> None:
    one = await race(lease="1m")
    task = await one.begin()
    clock.advance("50s")
    await one.visits[0].run.heartbeat()
    step = await one.step()
    assert step.lease_expires_at == clock.now() + timedelta(minutes=1)
    one.visits[0].ending.set_result("done")
    assert (await task).output == "done"
    assert (await one.step()).lease_expires_at is None


async def test_a_heartbeat_of_a_step_that_was_lost_says_so(race: MakeRace, lose_worker: LoseWorker) -> None:
    one = await race()
    await one.begin()
    await one.visits[0].run.heartbeat()
    await lose_worker()
    again = await one.begin()
    with pytest.raises(StepLeaseLostError):
        await one.visits[0].run.heartbeat()
    assert one.visits[0].run.abort.reason == "lease-lost"
    await one.visits[1].run.heartbeat()
    one.visits[1].ending.set_result("done")
    assert (await again).output == "done"


async def test_an_explicit_lease_is_renewed_while_its_function_runs(race: MakeRace, clock: FakeClock) -> None:
    one = await race(lease="1h", heartbeat="5ms")
    task = await one.begin()
    for _ in range(3):
        clock.advance("10m")
        await one.until(lambda step: step.lease_expires_at == clock.now() + timedelta(hours=1))
    one.visits[0].ending.set_result("done")
    assert (await task).output == "done"


async def test_without_a_job_a_step_has_a_lease_of_its_own(
    race: MakeRace, clock: FakeClock, resume: Resume
) -> None:
    one = await race()
    command = ExecuteJob(run_id=one.run_id, workflow_id="flow", stage_id="s1")
    task = asyncio.create_task(one.kernel.dispatch(command))
    await one.until(lambda _: bool(one.visits))
    step = await one.step()
    assert (step.owner, step.lease_expires_at) == (None, clock.now() + timedelta(seconds=60))
    one.visits[0].ending.set_result("done")
    assert (await task).output == "done"


async def test_a_large_result_is_spilled_and_the_loser_removes_its_own(
    race: MakeRace, lose_worker: LoseWorker, blob_store: InMemoryBlobStore
) -> None:
    one = await race(ports={"spill_threshold_bytes": 10})
    frozen = await one.begin()
    await lose_worker()
    again = await one.begin()
    one.visits[0].ending.set_result("a large first result")
    await frozen
    step = await one.step()
    assert (step.result, step.result_claim is not None) == (None, True)
    one.visits[1].ending.set_result("a large second result")
    assert (await again).output == "a large first result"
    spilled = [key async for key in blob_store.list("") if "/steps/" in key]
    assert step.result_claim is not None
    assert spilled == [step.result_claim.key]


async def test_a_cancelled_execution_gives_its_step_up(
    race: MakeRace, transport: InMemoryJobTransport, take_job: TakeJob, clock: FakeClock
) -> None:
    one = await race(on_reclaim="fail")
    job = await take_job(one.kernel)
    task = await one.execute(job)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    step = await one.step()
    assert (step.status, step.owner, step.lease_expires_at) == ("running", None, None)
    await transport.defer(job.job_id, clock.now(), "handed back", job.fence)
    again = await one.begin()
    assert (one.visits[1].run.attempt, one.visits[1].run.is_reclaim) == (2, False)
    one.visits[1].ending.set_result("done")
    assert (await again).output == "done"


@pytest.mark.guarantee("steps.a-lost-workers-step-is-taken-over")
async def test_a_takeover_that_is_cancelled_leaves_a_reclaim_to_the_next_execution(
    race: MakeRace,
    lose_worker: LoseWorker,
    transport: InMemoryJobTransport,
    take_job: TakeJob,
    clock: FakeClock,
) -> None:
    """What the lost worker began is as unknown as before: the one in between may not have looked."""
    one = await race()
    await one.begin()
    await lose_worker()
    for number in (1, 2):
        job = await take_job(one.kernel)
        task = await one.execute(job)
        assert one.visits[number].run.is_reclaim
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await transport.defer(job.job_id, clock.now(), "handed back", job.fence)
    last = await one.begin()
    assert (one.visits[3].run.attempt, one.visits[3].run.is_reclaim) == (4, True)
    one.visits[3].ending.set_result("done")
    assert (await last).output == "done"
