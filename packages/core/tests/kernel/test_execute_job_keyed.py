"""`job.execute` with an idempotency key: one body, and one answer however often it is asked."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Status, Suspend, Workflow, define_workflow
from stagewright.commands import CancelRun, CreateRun, ExecuteJob, ExecuteJobResult
from stagewright.definitions import NotReady
from stagewright.errors import (
    IdempotencyInProgressError,
    IdempotencyKeyReusedError,
    RunNotFoundError,
)
from stagewright.runtime.abort import AbortSource
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
StartRun = Callable[..., Awaitable[str]]


@pytest.fixture
def calls() -> list[int]:
    return []


@pytest.fixture
def kernel(make_kernel: MakeKernel, flow_of: FlowOf, calls: list[int]) -> Kernel:
    async def count(ctx: StageContext[Any]) -> Any:
        calls.append(len(calls) + 1)
        if ctx.input == "fail":
            raise ValueError("as told")
        return {"call": len(calls)}

    return make_kernel(flow_of(count, count))


@pytest.mark.guarantee("kernel.a-keyed-execution-runs-once")
@pytest.mark.parametrize("given", ["work", "fail"])
async def test_a_repetition_gets_the_first_outcome_without_running_the_body(
    kernel: Kernel,
    start_run: StartRun,
    calls: list[int],
    given: str,
    contents: Callable[[], dict[str, object]],
) -> None:
    run_id = await start_run(kernel, given)
    command = ExecuteJob(run_id, "flow", "s1", idempotency_key="k")
    first = await kernel.dispatch(command)
    assert first.outcome == ("failed" if given == "fail" else "completed")
    before = contents()
    assert await kernel.dispatch(command) == first
    await kernel.dispatch(CancelRun(run_id))
    assert await kernel.dispatch(command) == first
    assert calls == [1]
    assert before.keys() == contents().keys()


async def test_a_kept_suspension_gives_its_time_back_as_a_time(
    make_kernel: MakeKernel, start_run: StartRun, clock: FakeClock
) -> None:
    async def submit(ctx: StageContext[Any]) -> Suspend:
        return Suspend(1)

    async def check(state: Any, ctx: StageContext[Any]) -> NotReady:
        return NotReady()

    workflow = (
        define_workflow("flow", input=Any)
        .stage("s1", submit, input=Any, output=Any, mode="async-batch", check_completion=check)
        .build()
    )
    kernel = make_kernel(workflow)
    command = ExecuteJob(await start_run(kernel), "flow", "s1", idempotency_key="k")
    first, second = await kernel.dispatch(command), await kernel.dispatch(command)
    assert first == second == ExecuteJobResult(outcome="suspended", next_poll_at=first.next_poll_at)
    assert second.next_poll_at is not None
    assert second.next_poll_at.tzinfo is not None
    assert second.next_poll_at > clock.now()


async def test_while_it_runs_a_second_one_is_told_so(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun
) -> None:
    inside, go = asyncio.Event(), asyncio.Event()

    async def body(ctx: StageContext[Any]) -> int:
        inside.set()
        await go.wait()
        return 1

    kernel = make_kernel(flow_of(body))
    command = ExecuteJob(await start_run(kernel), "flow", "s1", idempotency_key="k")
    first = asyncio.create_task(kernel.dispatch(command))
    await inside.wait()
    with pytest.raises(IdempotencyInProgressError):
        await kernel.dispatch(command)
    go.set()
    assert await first == ExecuteJobResult(outcome="completed", output=1)
    assert await kernel.dispatch(command) == await first


@pytest.mark.guarantee("kernel.stale-keys-are-taken-over")
async def test_an_execution_that_has_lost_its_key_leaves_it_to_its_new_holder(
    make_kernel: MakeKernel, flow_of: FlowOf, start_run: StartRun, clock: FakeClock
) -> None:
    begun: asyncio.Queue[int] = asyncio.Queue()
    ends = [asyncio.Event(), asyncio.Event()]

    async def body(ctx: StageContext[Any]) -> int:
        begun.put_nowait(ctx.attempt)
        await ends[ctx.attempt - 1].wait()
        return ctx.attempt

    kernel = make_kernel(flow_of(body))
    command = ExecuteJob(await start_run(kernel), "flow", "s1", idempotency_key="k")
    first = asyncio.create_task(kernel.dispatch(command))
    assert await begun.get() == 1
    clock.advance("10m")
    second = asyncio.create_task(kernel.dispatch(command))
    assert await begun.get() == 2
    ends[0].set()
    assert (await first).ghost
    with pytest.raises(IdempotencyInProgressError):
        await kernel.dispatch(command)
    ends[1].set()
    assert await second == ExecuteJobResult(outcome="completed", output=2)
    assert await kernel.dispatch(command) == await second
    assert begun.empty()


async def test_the_abort_signal_is_no_part_of_the_body(
    kernel: Kernel, start_run: StartRun, calls: list[int]
) -> None:
    run_id = await start_run(kernel)
    first = await kernel.dispatch(ExecuteJob(run_id, "flow", "s1", idempotency_key="k", abort=AbortSource()))
    assert await kernel.dispatch(ExecuteJob(run_id, "flow", "s1", idempotency_key="k")) == first
    with pytest.raises(IdempotencyKeyReusedError):
        await kernel.dispatch(ExecuteJob(run_id, "flow", "s2", idempotency_key="k"))


@pytest.mark.guarantee("kernel.ghosts-are-never-kept")
async def test_a_ghost_is_not_kept_so_that_the_job_may_come_again(
    kernel: Kernel, calls: list[int], start_run: StartRun
) -> None:
    run_id = (await kernel.dispatch(CreateRun("flow"))).run_id
    command = ExecuteJob(run_id, "flow", "s1", idempotency_key="k")
    for _ in range(2):
        assert (await kernel.dispatch(command)).ghost_reason == "race"
    await start_run(kernel)
    assert (await kernel.dispatch(command)).outcome == "completed"
    assert calls == [1]


async def test_an_aborted_execution_is_not_kept(kernel: Kernel, start_run: StartRun) -> None:
    abort = AbortSource()
    abort.set("shutdown")
    run_id = await start_run(kernel)
    assert (await kernel.dispatch(ExecuteJob(run_id, "flow", "s1", idempotency_key="k", abort=abort))).ghost
    assert (
        await kernel.dispatch(ExecuteJob(run_id, "flow", "s1", idempotency_key="k"))
    ).outcome == "completed"


@pytest.mark.parametrize("moment", ["load_runs", "update_stage", "commit"])
async def test_an_error_frees_the_key(
    kernel: Kernel, start_run: StartRun, fail_at: Callable[..., None], moment: str
) -> None:
    command = ExecuteJob(await start_run(kernel), "flow", "s1", idempotency_key="k")
    fail_at(moment, error=ConnectionError("gone"))
    with pytest.raises(ConnectionError):
        await kernel.dispatch(command)
    assert (await kernel.dispatch(command)).outcome == "completed"


async def test_the_executions_own_error_is_raised_when_the_key_can_not_be_freed_either(
    kernel: Kernel, fail_at: Callable[..., None], clock: FakeClock
) -> None:
    command = ExecuteJob("unknown", "flow", "s1", idempotency_key="k")
    fail_at("release_idempotency_key", error=ConnectionError("gone"))
    with pytest.raises(RunNotFoundError):
        await kernel.dispatch(command)
    with pytest.raises(IdempotencyInProgressError):
        await kernel.dispatch(command)
    clock.advance("10m")
    with pytest.raises(RunNotFoundError):
        await kernel.dispatch(command)


async def test_the_kept_result_and_the_outcome_commit_together(
    kernel: Kernel, start_run: StartRun, fail_at: Callable[..., None], calls: list[int]
) -> None:
    run_id = await start_run(kernel)
    command = ExecuteJob(run_id, "flow", "s1", idempotency_key="k")
    fail_at("complete_idempotency_key", error=ConnectionError("gone"))
    with pytest.raises(ConnectionError):
        await kernel.dispatch(command)
    (stage,) = await kernel.runs.stages(run_id)
    assert stage.status is Status.RUNNING
    assert (await kernel.dispatch(command)).output == {"call": 2}
