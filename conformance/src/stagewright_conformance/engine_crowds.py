"""Many kernels over the adapters at once."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from stagewright import Kernel, StageContext
from stagewright.commands import ClaimJobs, ClaimPendingRuns, CreateRun, FlushOutbox
from stagewright.errors import IdempotencyInProgressError, IdempotencyKeyReusedError, TransientError
from stagewright.hosting import run_job
from stagewright.status import TERMINAL_RUN_STATUSES, Status
from stagewright_conformance.deployments import Deployment, DeploymentSuite
from stagewright_conformance.engine import flow_of, passes_on, start
from stagewright_conformance.samples import new_id
from stagewright_conformance.suite import Scale

__all__ = ["EngineCrowdSuite"]


class EngineCrowdSuite(DeploymentSuite):
    """Callers and workers that compete, over both handles.

    Fixtures: those of `DeploymentSuite`.
    """

    @pytest.mark.guarantee("stores.engine-starts-once-per-key")
    async def test_of_many_starts_under_one_key_one_makes_a_run(
        self, deployment: Deployment, scale: Scale
    ) -> None:
        """`IdempotencyStore`: of many callers one has the key, and all are answered what it came to."""
        flow, key = flow_of(passes_on), new_id("key")
        kernels = [deployment.kernel(flow, handle=number) for number in range(scale.contenders)]
        command = CreateRun(flow.id, "once", idempotency_key=key)
        answers = await asyncio.gather(
            *(kernel.dispatch(command) for kernel in kernels), return_exceptions=True
        )
        refused = [answer for answer in answers if isinstance(answer, BaseException)]
        for each in refused:
            assert isinstance(each, IdempotencyInProgressError | TransientError), repr(each)
        made = {answer.run_id for answer in answers if not isinstance(answer, BaseException)}
        made |= {(await kernel.dispatch(command)).run_id for kernel in kernels}
        assert len(made) == 1
        with pytest.raises(IdempotencyKeyReusedError):
            await kernels[0].dispatch(CreateRun(flow.id, "something else", idempotency_key=key))
        assert [run.id for run in (await kernels[1].runs.list(workflow_id=flow.id)).items] == list(made)
        [run_id] = made
        assert (await deployment.work_off(kernels[1], run_id)).output == "once"
        await deployment.ended_well(kernels[0], run_id)

    @pytest.mark.guarantee("stores.engine-bodies-once-in-a-crowd")
    async def test_many_workers_execute_each_body_once(self, deployment: Deployment, scale: Scale) -> None:
        """`RunClaims`, `JobQueue.dequeue`, `OutboxDelivery`: of many workers one has a run, a job, an event."""
        ran: Counter[tuple[str, str]] = Counter()

        async def body(ctx: StageContext[Any]) -> Any:
            ran[ctx.run_id, ctx.stage_id] += 1
            await asyncio.sleep(scale.moment)  # others look for work meanwhile
            return [ctx.stage_id, ctx.input]

        flow = flow_of(body, body)
        kernels = [deployment.kernel(flow, handle=number) for number in range(max(scale.contenders // 2, 2))]
        run_ids = [await start(kernels[0], flow, number) for number in range(scale.contenders)]
        async with asyncio.timeout(scale.patience * 6):
            await asyncio.gather(*(_work(kernel, run_ids) for kernel in kernels))
        assert ran == dict.fromkeys([(id, stage) for id in run_ids for stage in ("s1", "s2")], 1)
        for number, run_id in enumerate(run_ids):
            run = await kernels[0].runs.get(run_id)
            assert run is not None
            assert (run.status, run.output) == (Status.COMPLETED, ["s2", ["s1", number]])
        await deployment.deliver(kernels[0])
        await deployment.ended_well(kernels[1], *run_ids)


async def _work(kernel: Kernel, run_ids: list[str]) -> None:
    """What a worker does, until these runs have ended."""
    left = list(run_ids)
    while left:
        # Half of the runs and of the stages that follow are claimed, the others handed over where the transport can.
        taken = (await kernel.dispatch(ClaimPendingRuns("worker", max_claims=2, max_jobs=1))).jobs
        taken += (await kernel.dispatch(ClaimJobs("worker", limit=2))).jobs
        for job in taken:
            result = await run_job(kernel, job, successor=(lambda: "worker") if job is taken[0] else None)
            if result.next_job is not None:
                await run_job(kernel, result.next_job)
        await kernel.dispatch(FlushOutbox(5))
        run = await kernel.runs.get(left[0])
        if run is not None and run.status in TERMINAL_RUN_STATUSES:
            left.pop(0)
        await asyncio.sleep(0)
