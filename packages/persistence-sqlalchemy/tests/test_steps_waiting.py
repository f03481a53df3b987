"""Waits and signals over a database: early, late and at once, from several processes, and with large values."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import Any

import pytest

from stagewright import Kernel, RetryPolicy, StageContext, Status, define_workflow
from stagewright.commands import (
    ClaimJobs,
    ClaimPendingRuns,
    CreateRun,
    ExecuteJob,
    ExecuteJobResult,
    JobRef,
    PollSuspendedStages,
    SignalStep,
    SignalStepResult,
)
from stagewright.errors import RunStateError, StepTimeoutError
from stagewright.records import RunRecord
from stagewright.status import TERMINAL_RUN_STATUSES
from stagewright_persistence_sqlalchemy import Database

OpenDatabase = Callable[..., Database]
MakeKernel = Callable[..., Kernel]
Ctx = StageContext[Any]
DELIVERED = SignalStepResult(delivered=True, already_completed=False)


def flow_of(body: Callable[[Ctx], Awaitable[Any]]) -> Any:
    builder = define_workflow("flow", input=Any)
    return builder.stage("s", body, input=Any, output=Any, retry=RetryPolicy(3, 100, delay=0)).build()


async def start(kernel: Kernel) -> str:
    created = await kernel.dispatch(CreateRun("flow"))
    await kernel.dispatch(ClaimPendingRuns("claimer"))
    return created.run_id


async def work(kernel: Kernel) -> list[ExecuteJobResult]:
    await kernel.dispatch(PollSuspendedStages(max_checks=100))
    results = []
    for job in (await kernel.dispatch(ClaimJobs("worker", limit=10))).jobs:
        reference = JobRef(job.job_id, job.fence)
        results.append(
            await kernel.dispatch(ExecuteJob(job.run_id, job.workflow_id, job.stage_id, job=reference))
        )
    return results


async def finish(kernel: Kernel, run_id: str) -> RunRecord:
    async with asyncio.timeout(60):
        while True:
            run = await kernel.runs.get(run_id)
            assert run is not None
            if run.status in TERMINAL_RUN_STATUSES:
                return run
            await work(kernel)
            await asyncio.sleep(0.002)


@pytest.mark.guarantee("steps.early-signals-are-kept")
async def test_early_and_late_signals_from_another_process(
    database: Database, make_kernel: MakeKernel, open_database: OpenDatabase, url: str
) -> None:
    async def body(ctx: Ctx) -> Any:
        early = await ctx.step.wait_for_signal("early", timeout="1h")
        return [early, await ctx.step.wait_for_signal("late", timeout="1h")]

    kernel, sender = make_kernel(database, flow_of(body)), make_kernel(open_database(url))
    run_id = (await kernel.dispatch(CreateRun("flow"))).run_id
    assert await sender.dispatch(SignalStep(run_id, "s", "early", payload={"n": 1.0})) == DELIVERED
    assert [one.payload for one in await kernel.runs.signals(run_id)] == [{"n": 1.0}]
    await kernel.dispatch(ClaimPendingRuns("claimer"))
    assert [result.outcome for result in await work(kernel)] == ["suspended"]
    assert await kernel.runs.signals(run_id) == []
    assert await work(kernel) == []
    assert await sender.dispatch(SignalStep(run_id, "s", "late")) == DELIVERED
    assert [result.output for result in await work(kernel)] == [[{"n": 1.0}, None]]
    again = await sender.dispatch(SignalStep(run_id, "s", "late"))
    assert again == SignalStepResult(delivered=False, already_completed=True)
    with pytest.raises(RunStateError):
        await sender.dispatch(SignalStep(run_id, "s", "too late"))


@pytest.mark.guarantee("steps.signals-answer-once")
async def test_of_many_senders_in_two_processes_one_delivers(
    database: Database, make_kernel: MakeKernel, open_database: OpenDatabase, url: str
) -> None:
    async def body(ctx: Ctx) -> Any:
        return await ctx.step.wait_for_signal("go", timeout="1h")

    kernels = [make_kernel(one, flow_of(body)) for one in (database, open_database(url))]
    for is_waiting in (False, True):
        run_id = await start(kernels[0])
        if is_waiting:
            await work(kernels[0])
        answers = await asyncio.gather(
            *(kernels[n % 2].dispatch(SignalStep(run_id, "s", "go", payload=n)) for n in range(12))
        )
        assert [answer.delivered for answer in answers].count(True) == 1
        assert [answer.already_completed for answer in answers].count(True) == 11
        run = await finish(kernels[1], run_id)
        assert run.output == answers.index(DELIVERED)
        events = [event.type for event in await kernels[0].runs.events(run_id)]
        assert events.count("step:signalled") == 1


@pytest.mark.guarantee("steps.signals-tell-the-truth")
async def test_signals_that_race_deadlines_are_delivered_or_refused(
    database: Database, make_kernel: MakeKernel, open_database: OpenDatabase, url: str
) -> None:
    async def body(ctx: Ctx) -> Any:
        try:
            return await ctx.step.wait_for_signal("go", timeout="60ms", keepalive="20ms")
        except StepTimeoutError:
            return "timed out"

    kernel, sender = (make_kernel(one, flow_of(body)) for one in (database, open_database(url)))
    random, seen = Random(7), set()

    async def send(run_id: str) -> object:
        await asyncio.sleep(random.uniform(0.02, 0.12))
        try:
            return (await sender.dispatch(SignalStep(run_id, "s", "go", payload="signalled"))).delivered
        except (StepTimeoutError, RunStateError) as refused:
            return type(refused)

    for _ in range(40):
        run_id = await start(kernel)
        answer, run = await asyncio.gather(send(run_id), finish(kernel, run_id))
        assert run.output == ("signalled" if answer is True else "timed out"), answer
        assert answer is not False
        assert await kernel.runs.signals(run_id) == []
        seen.add(answer)
    assert True in seen
    assert len(seen) > 1


async def test_a_wait_polls_on_in_another_process(
    database: Database, make_kernel: MakeKernel, open_database: OpenDatabase, url: str
) -> None:
    answers: Iterator[OSError | int] = iter([OSError("down"), OSError("down"), 0, 7])

    async def poll() -> int:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    async def body(ctx: Ctx) -> Any:
        return await ctx.step.wait_for(
            "x", poll=poll, ready=bool, every="5ms", timeout="1h", poll_backoff="1ms"
        )

    kernels = [make_kernel(one, flow_of(body)) for one in (database, open_database(url))]
    run_id = await start(kernels[0])
    await work(kernels[0])
    (step,) = await kernels[1].runs.steps(run_id)
    assert (step.kind, step.status, step.poll_failures) == ("wait", "pending", 1)
    assert step.poll_interval is not None
    run = await finish(kernels[1], run_id)
    assert run.output == 7


@pytest.mark.parametrize("megabytes", [1, pytest.param(50, marks=pytest.mark.slow)])
@pytest.mark.guarantee("steps.results-keep-value-and-type")
async def test_large_values_are_spilled_and_come_back_whole(
    database: Database, make_kernel: MakeKernel, megabytes: int
) -> None:
    value = {"text": ("é" + "x" * 98) * (megabytes * 10_000), "numbers": list(range(megabytes * 1_000))}
    seen: list[bool] = []

    async def body(ctx: Ctx) -> Any:
        result = await ctx.step.run("result", lambda: value, returns=dict[str, Any])
        answer = await ctx.step.wait_for(
            "answer", poll=lambda: value, ready=bool, every="1m", timeout="1h", returns=dict[str, Any]
        )
        payload = await ctx.step.wait_for_signal("payload", timeout="1h")
        seen.append(result == answer == payload == value)
        await ctx.step.sleep("pause", "300ms")
        return len(result["numbers"])

    kernel = make_kernel(database, flow_of(body))
    run_id = await start(kernel)
    assert await kernel.dispatch(SignalStep(run_id, "s", "payload", payload=value)) == DELIVERED
    run = await finish(kernel, run_id)
    assert run.output == megabytes * 1_000
    assert seen == [True, True]
    steps = {step.step_id: step for step in await kernel.runs.steps(run_id)}
    for name in ("result", "answer", "payload"):
        assert steps[name].result is None
        claim = steps[name].result_claim
        assert claim is not None
        assert claim.size > megabytes * 1_000_000


async def test_statuses_of_waiting_runs(database: Database, make_kernel: MakeKernel) -> None:
    async def body(ctx: Ctx) -> Any:
        return await ctx.step.wait_for_signal("go", timeout="1h")

    kernel = make_kernel(database, flow_of(body))
    run_id = await start(kernel)
    await work(kernel)
    (stage,) = await kernel.runs.stages(run_id)
    (step,) = await kernel.runs.steps(run_id)
    assert (stage.status, step.status, step.kind) == (Status.SUSPENDED, "pending", "signal")
    assert stage.next_poll_at is not None
    assert step.deadline_at is not None
    assert stage.next_poll_at < step.deadline_at
