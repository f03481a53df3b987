"""While builds differ, each leaves alone what only the other one knows."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stagewright import Kernel, RetryPolicy, StageContext, Status, Workflow, define_stage, define_workflow
from stagewright.commands import ClaimJobs, ClaimPendingRuns, CreateRun, ListVersions, ReapStuckRuns
from stagewright.records import RunRecord
from stagewright_host_node import NodeHost

OpenStore = Callable[..., Awaitable[Kernel]]
Beside = Callable[..., Kernel]
Eventually = Callable[..., Awaitable[None]]
Ended = Callable[[Kernel, str], Awaitable[RunRecord]]

QUICK: dict[str, Any] = {
    "orchestration_interval": "50ms",
    "poll_interval": "20ms",
    "stale_lease_threshold": "500ms",
    "job_heartbeat_interval": "100ms",
    "concurrency": 4,
    "handle_signals": False,
}


def flow(id: str, *stage_ids: str, ran: Counter[str] | None = None) -> Workflow:
    async def body(ctx: StageContext[Any]) -> Any:
        if ran is not None:
            ran[ctx.run_id] += 1
        return ctx.input

    builder = define_workflow(id, input=Any)
    for stage_id in stage_ids:
        retry = RetryPolicy(max_worker_losses=99)
        builder = builder.pipe(define_stage(stage_id, body, input=Any, output=Any, retry=retry))
    return builder.build()


async def ended_runs(kernel: Kernel, runs: list[str]) -> int:
    statuses = [await kernel.ports.persistence.get_run_status(run_id) for run_id in runs]
    return sum(status is Status.COMPLETED for status in statuses)


@pytest.mark.guarantee("kernel.unknown-work-is-left-for-others")
@pytest.mark.guarantee("hosts.unserved-runs-are-told")
@pytest.mark.parametrize("difference", ["another workflow", "another structure"])
async def test_work_that_an_old_build_does_not_know_waits_for_the_new_one(
    open_store: OpenStore,
    beside: Beside,
    eventually: Eventually,
    ended: Ended,
    difference: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ran: Counter[str] = Counter()
    id = "new" if difference == "another workflow" else "known"
    new = await open_store(flow(id, "a", "b", ran=ran))
    old = beside(new, flow("known", "a"))
    runs = [(await new.dispatch(CreateRun(id, number))).run_id for number in range(30)]

    # Some are in the queue already, and of some the worker is lost.
    await new.dispatch(ClaimPendingRuns("gone", max_claims=10))
    assert len((await new.dispatch(ClaimJobs("gone", limit=5))).jobs) == 5
    async with NodeHost(old, worker_id="old", **QUICK) as host:
        own = (await old.dispatch(CreateRun("known", "own"))).run_id
        await eventually(lambda: ended_runs(old, [own]))
        await asyncio.sleep(1.0)
        assert not ran
        assert await ended_runs(new, runs) == 0
        assert (await old.dispatch(ReapStuckRuns(0))).failed == 0
        served = list(new.served_definitions() or ())
        told = f"30 runs of workflow '{id}' in version '{served[0].version}' are not served here"
        assert told in host.health().degraded
        assert host.health().ready
        assert [line.startswith(told) for line in caplog.messages if "not served here" in line] == [True]
        (waiting,) = (await old.dispatch(ListVersions())).unserved_here
        assert (waiting.workflow_id, waiting.active, waiting.counts[Status.PENDING]) == (id, 30, 20)
        for run_id in runs:
            for job in await new.ports.job_transport.get_jobs_by_run(run_id):
                assert (job.status, job.failures, job.interruptions) == (Status.PENDING, 0, 0)
                assert job.deliveries <= 1, "it isn't taken and handed back again and again"

    async with NodeHost(old, worker_id="old", **QUICK), NodeHost(new, worker_id="new", **QUICK):
        await eventually(lambda: _all_ended(new, runs))
    for run_id in runs:
        assert (await ended(new, run_id)).status is Status.COMPLETED
        for job in await new.ports.job_transport.get_jobs_by_run(run_id):
            assert (job.worker_id or "").startswith("new")
    assert set(ran) == set(runs)
    assert set(ran.values()) == {2}
    assert (await old.dispatch(ListVersions())).unserved_here == ()


async def _all_ended(kernel: Kernel, runs: list[str]) -> bool:
    return await ended_runs(kernel, runs) == len(runs)
