"""A kernel over a fair transport: no tenant has more stages running than its places."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from stagewright import Kernel, StageContext, Status, define_stage, define_workflow
from stagewright.commands import ClaimJobs, ClaimPendingRuns, CreateRun, ExecuteJobResult, PollSuspendedStages
from stagewright.memory import InMemoryJobTransport
from stagewright.records import DequeuedJob, Fairness, RunRecord
from stagewright.runtime.job_payloads import claim_in
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
Execute = Callable[..., Awaitable[ExecuteJobResult]]
Finish = Callable[[Kernel, str], Awaitable[RunRecord]]
HoldAt = Callable[..., tuple[asyncio.Event, asyncio.Event]]

pytestmark = pytest.mark.parametrize("transport", ["enlisting", "separate"], indirect=True)


class Config(BaseModel):
    tenantId: str | int | None = None  # noqa: N815 - the name that the path leads to
    text: str = ""


async def body(ctx: StageContext[Any, Config]) -> str:
    if ctx.input == "sleep":
        await ctx.step.sleep("nap", "1h")
    if ctx.input == "fail":
        raise RuntimeError("no")
    return str(ctx.config.tenantId)


STAGE = define_stage("s1", body, input=Any, output=str, config=Config)
FLOW = define_workflow("flow", input=Any).pipe(STAGE).build()


@pytest.fixture
def kernel(make_kernel: MakeKernel, transport: InMemoryJobTransport) -> Kernel:
    fairness = Fairness(max_concurrent_per_group=1, group_by="config.tenantId")
    fair = InMemoryJobTransport(transport.database, fairness=fairness)
    return make_kernel(FLOW, job_transport=fair, spill_threshold_bytes=300)


async def start(kernel: Kernel, *tenants: object, input: object = None, **config: object) -> list[str]:
    made = [
        await kernel.dispatch(CreateRun("flow", input, config={"s1": {"tenantId": tenant, **config}}))
        for tenant in tenants
    ]
    await kernel.dispatch(ClaimPendingRuns("claimer", max_claims=len(made)))
    return [one.run_id for one in made]


async def claim(kernel: Kernel, limit: int = 10) -> tuple[DequeuedJob, ...]:
    return (await kernel.dispatch(ClaimJobs("w", limit=limit))).jobs


@pytest.mark.guarantee("kernel.fair-between-groups")
async def test_a_tenant_with_much_to_do_leaves_room_for_the_others(
    kernel: Kernel, execute: Execute, finish: Finish
) -> None:
    noisy = await start(kernel, *["noisy"] * 5)
    (quiet,) = await start(kernel, "quiet")
    jobs = await claim(kernel)
    assert [job.run_id for job in jobs] == [noisy[0], quiet]
    assert await claim(kernel) == ()
    await execute(kernel, jobs[0])
    assert [job.run_id for job in await claim(kernel)] == [noisy[1]]
    await execute(kernel, jobs[1])
    assert await claim(kernel) == ()


async def test_all_runs_end_in_turn(kernel: Kernel, finish: Finish) -> None:
    runs = await start(kernel, *["a", "a", 7, "7", None, None])
    assert [(await finish(kernel, run_id)).output for run_id in runs] == ["a", "a", "7", "7", "None", "None"]


@pytest.mark.guarantee("kernel.large-payloads-keep-their-group")
async def test_a_large_payload_keeps_its_group(
    kernel: Kernel, transport: InMemoryJobTransport, finish: Finish
) -> None:
    runs = await start(kernel, "a", "b", "a", None, text="x" * 400)
    small = await start(kernel, "a", "c", None)
    for run_id in runs:
        (record,) = await transport.get_jobs_by_run(run_id)
        assert claim_in(record.payload) is not None
    jobs = await claim(kernel)
    assert [job.run_id for job in jobs] == [runs[0], runs[1], runs[3], small[1]]
    assert jobs[0].payload == {"config": {"tenantId": "a", "text": "x" * 400}}


async def test_a_suspended_stage_leaves_its_place_and_waits_for_another(
    kernel: Kernel, execute: Execute, clock: FakeClock
) -> None:
    (sleeper,) = await start(kernel, "a", input="sleep")
    (job,) = await claim(kernel)
    assert (await execute(kernel, job)).outcome == "suspended"
    (other,) = await start(kernel, "a")
    (busy,) = await claim(kernel)
    assert busy.run_id == other
    clock.advance("2h")
    polled = await kernel.dispatch(PollSuspendedStages())
    assert polled.resumed_run_ids == (sleeper,)
    assert await claim(kernel) == ()
    await execute(kernel, busy)
    (again,) = await claim(kernel)
    assert again.run_id == sleeper
    assert (await execute(kernel, again)).outcome == "completed"


async def test_a_failed_attempt_and_a_lost_worker_free_their_places(
    kernel: Kernel, transport: InMemoryJobTransport, execute: Execute, clock: FakeClock
) -> None:
    await start(kernel, "a", input="fail")
    (failing,) = await claim(kernel)
    (waiting,) = await start(kernel, "a")
    assert (await execute(kernel, failing)).will_retry
    (job,) = await claim(kernel)
    assert job.run_id == waiting
    clock.advance("10m")
    await transport.release_stale(timedelta(minutes=5))
    assert len(await claim(kernel)) == 1


async def test_claims_at_once_leave_no_place_taken_twice(
    kernel: Kernel, transport: InMemoryJobTransport
) -> None:
    await start(kernel, *["a"] * 6, *["b"] * 6)
    claims = await asyncio.gather(*(claim(kernel, 2) for _ in range(6)))
    tenants = [Config.model_validate(job.payload["config"]).tenantId for jobs in claims for job in jobs]
    assert Counter(tenants) == {"a": 1, "b": 1}


async def test_a_claim_that_fails_leaves_its_place_free(
    kernel: Kernel, fail_at: Callable[..., None], transport: InMemoryJobTransport
) -> None:
    (run_id,) = await start(kernel, "a")
    fail_at("dequeue", error=RuntimeError("gone"))
    with pytest.raises(RuntimeError, match="gone"):
        await claim(kernel)
    (job,) = await claim(kernel)
    assert (job.run_id, (await transport.get_jobs_by_run(run_id))[0].status) == (run_id, Status.RUNNING)
