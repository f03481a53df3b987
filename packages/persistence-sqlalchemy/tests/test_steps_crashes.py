"""The process ends at any point of any transaction, in steps of every kind: the run reaches its right end."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from stagewright import Kernel, RetryPolicy, StageContext, Status, StepRun, Workflow, define_workflow
from stagewright.commands import (
    ClaimJobs,
    ClaimPendingRuns,
    CreateRun,
    ExecuteJob,
    JobRef,
    PollSuspendedStages,
    SignalStep,
)
from stagewright.kernel.commands.job_enqueue_owed import EnqueueOwedJobs
from stagewright_persistence_sqlalchemy import Database, SqlAlchemyJobTransport

OpenDatabase = Callable[..., Database]
MakeTables = Callable[[Database], Awaitable[None]]
MakeKernel = Callable[..., Kernel]
Ctx = StageContext[Any]

NAMES = ["run-0", "signal-1", "wait-2", "sleep-3", "run-4", "signal-5"]
SIGNALS = ["signal-1", "signal-5"]
STRIDE = 7
"""Every position has its kill in another test, by SIGKILL; these lie also inside of transactions."""


class Body:
    """Steps of every kind, one after the other and side by side, and how often their functions were executed."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.not_told: list[str] = []

    def workflow(self) -> Workflow:
        builder = define_workflow("flow", input=Any)
        return builder.stage("s", self.run, input=Any, output=Any, retry=RetryPolicy(1, 100, delay=0)).build()

    async def run(self, ctx: Ctx) -> Any:
        first = await ctx.step.run("run-0", self._step)
        middle = await asyncio.gather(
            ctx.step.wait_for_signal("signal-1", timeout="1h", keepalive="1ms"),
            ctx.step.wait_for("wait-2", poll=self._poll, ready=bool, every="1ms", timeout="1h", returns=str),
        )
        await ctx.step.sleep("sleep-3", "1ms")
        last = await ctx.step.run("run-4", self._step)
        end = await ctx.step.wait_for_signal("signal-5", timeout="1h", keepalive="1ms")
        return [first, *middle, "sleep-3", last, end]

    async def _step(self, run: StepRun) -> str:
        self.calls[run.step_id] += 1
        if run.attempt > 1 and not run.is_reclaim:
            self.not_told.append(run.step_id)
        return run.step_id

    async def _poll(self) -> str:
        self.calls["wait-2"] += 1
        return "wait-2" if self.calls["wait-2"] > 1 else ""


async def go_on(kernel: Kernel, run_id: str, unsent: list[str]) -> bool:
    """One round of what hosts and senders do; False once the run has ended."""
    run = await kernel.runs.get(run_id)
    if run is None or run.status is Status.COMPLETED:
        return False
    await kernel.dispatch(PollSuspendedStages())
    for job in (await kernel.dispatch(ClaimJobs("worker"))).jobs:
        reference = JobRef(job.job_id, job.fence)
        await kernel.dispatch(ExecuteJob(run_id, "flow", job.stage_id, job=reference))
    if unsent:
        await kernel.dispatch(SignalStep(run_id, "s", unsent[0], payload=unsent[0]))
        del unsent[0]
    return True


@pytest.mark.guarantee("steps.a-crash-repeats-one-execution-at-most")
async def test_a_process_may_end_at_any_point_of_any_transaction(
    url: str,
    open_database: OpenDatabase,
    make_tables: MakeTables,
    make_kernel: MakeKernel,
    points: Any,
) -> None:
    sturdy = open_database(url)
    await make_tables(sturdy)
    fragile = open_database(url, wrap=points.around)
    crashes = 0
    for fatal in range(1, 2_000, STRIDE):
        body = Body()
        kernels = [make_kernel(database, body.workflow()) for database in (fragile, sturdy)]
        run_id = (await kernels[1].dispatch(CreateRun("flow"))).run_id
        await kernels[1].dispatch(ClaimPendingRuns("claimer"))
        unsent = list(SIGNALS)
        recorded: set[str] = set()
        points.begin(fatal, for_good=True)
        try:
            async with asyncio.timeout(30):
                while await go_on(kernels[0], run_id, unsent):
                    pass
        except points.crash:
            pass
        if points.is_dead:
            crashes += 1
            steps = await kernels[1].runs.steps(run_id)
            recorded = {step.step_id for step in steps if step.status == "completed"}
            before = Counter(body.calls)
            await SqlAlchemyJobTransport(sturdy).release_stale(timedelta(0))
            await kernels[1].dispatch(EnqueueOwedJobs(owed_for="0s"))
            async with asyncio.timeout(30):
                while await go_on(kernels[1], run_id, unsent):
                    pass
            assert all(body.calls[name] == before[name] for name in recorded if name.startswith("run"))
        is_over = not points.is_dead
        points.begin(0)
        run = await kernels[1].runs.get(run_id)
        assert run is not None
        assert (run.status, run.output) == (Status.COMPLETED, NAMES), fatal
        assert max(body.calls["run-0"], body.calls["run-4"]) <= 2
        assert body.not_told == []
        events = [event.type for event in await kernels[1].runs.events(run_id)]
        assert events.count("step:signalled") == len(SIGNALS)
        assert await kernels[1].runs.signals(run_id) == []
        if is_over:
            assert crashes > 60 // STRIDE
            return
    raise AssertionError("the run has no end")
