"""`job.heartbeat`: a lease renewed, and what a worker learns by it."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Status, Workflow
from stagewright.commands import CancelRun, HeartbeatJob, HeartbeatJobResult
from stagewright.errors import InvalidCommandError, TransientError
from stagewright.memory import InMemoryJobTransport
from stagewright.records import DequeuedJob, Fence
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
FlowOf = Callable[..., Workflow]
StartRun = Callable[..., Awaitable[str]]
TakeJob = Callable[..., Awaitable[DequeuedJob]]
Told = Callable[[Kernel, str], Awaitable[list[str]]]

pytestmark = pytest.mark.parametrize("transport", ["enlisting", "separate"], indirect=True)


async def echo(ctx: StageContext[Any]) -> Any:
    return ctx.input


@pytest.fixture
def kernel(make_kernel: MakeKernel, flow_of: FlowOf) -> Kernel:
    return make_kernel(flow_of(echo))


async def beat(kernel: Kernel, job: DequeuedJob) -> HeartbeatJobResult:
    return await kernel.dispatch(HeartbeatJob(job.job_id, job.run_id, fence=job.fence))


@pytest.mark.guarantee("kernel.heartbeats-renew-and-tell")
async def test_the_owner_keeps_its_lease_and_no_event_tells_of_it(
    kernel: Kernel,
    start_run: StartRun,
    take_job: TakeJob,
    transport: InMemoryJobTransport,
    clock: FakeClock,
    told: Told,
) -> None:
    run_id = await start_run(kernel)
    job = await take_job(kernel)
    before = await told(kernel, run_id)
    clock.advance("40s")
    assert await beat(kernel, job) == HeartbeatJobResult(Status.RUNNING, True)
    clock.advance("40s")
    assert (await transport.release_stale(timedelta(seconds=45))).released == ()
    assert await told(kernel, run_id) == before


async def test_a_worker_whose_job_was_delivered_anew_is_told(
    kernel: Kernel, start_run: StartRun, take_job: TakeJob, transport: InMemoryJobTransport, clock: FakeClock
) -> None:
    await start_run(kernel)
    old = await take_job(kernel, "frozen")
    clock.advance("46s")
    await transport.release_stale(timedelta(seconds=45))
    assert await beat(kernel, old) == HeartbeatJobResult(Status.RUNNING, False)
    new = await take_job(kernel, "other")
    assert (await beat(kernel, old)).lease_held is False
    assert (await beat(kernel, new)).lease_held is True


async def test_a_cancelled_run_is_learnt_while_the_lease_is_held(
    kernel: Kernel, start_run: StartRun, take_job: TakeJob
) -> None:
    run_id = await start_run(kernel)
    job = await take_job(kernel)
    await kernel.dispatch(CancelRun(run_id))
    assert await beat(kernel, job) == HeartbeatJobResult(Status.CANCELLED, True)


async def test_a_run_that_is_gone_has_no_status(kernel: Kernel) -> None:
    fence = Fence(started_at=kernel.ports.clock.now(), deliveries=1)
    result = await kernel.dispatch(HeartbeatJob("no job", "no run", fence=fence))
    assert result == HeartbeatJobResult(None, False)


async def test_the_lease_is_renewed_also_when_the_run_cannot_be_read(
    kernel: Kernel,
    start_run: StartRun,
    take_job: TakeJob,
    transport: InMemoryJobTransport,
    clock: FakeClock,
    fail_at: Callable[..., None],
) -> None:
    await start_run(kernel)
    job = await take_job(kernel)
    clock.advance("40s")
    fail_at("get_run_status", error=TransientError("the database is restarting"))
    with pytest.raises(TransientError):
        await beat(kernel, job)
    clock.advance("40s")
    assert (await transport.release_stale(timedelta(seconds=45))).released == ()


async def test_a_heartbeat_is_a_dict_too(kernel: Kernel, start_run: StartRun, take_job: TakeJob) -> None:
    run_id = await start_run(kernel)
    job = await take_job(kernel)
    fence = {"started_at": job.fence.started_at.isoformat(), "deliveries": 1}
    command = {"type": "job.heartbeat", "job_id": job.job_id, "run_id": run_id, "fence": fence}
    assert await kernel.dispatch(command) == HeartbeatJobResult(Status.RUNNING, True)
    with pytest.raises(InvalidCommandError, match="fence"):
        await kernel.dispatch({name: value for name, value in command.items() if name != "fence"})
