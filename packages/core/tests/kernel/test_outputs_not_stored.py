"""Outputs and artifacts that the blob store doesn't take."""

from typing import Any

import pytest

from stagewright import (
    RetryPolicy,
    StageContext,
    StageResult,
    Status,
    Workflow,
    define_stage,
    define_workflow,
    open_kernel,
)
from stagewright.commands import ClaimJobs, ClaimPendingRuns, CreateRun
from stagewright.errors import BlobStoreRefusedError, TransientError
from stagewright.hosting import run_job
from stagewright.memory import InMemoryBlobStore
from stagewright.records import RunRecord

_REFUSED = BlobStoreRefusedError(problem="the bucket 'b' isn't there", store="s3://b", doing="write a blob")


class Failing(InMemoryBlobStore):
    """Refuses so many writes of outputs, and keeps the others."""

    def __init__(self, error: Exception, *, times: int) -> None:
        super().__init__()
        self._error, self._left = error, times

    async def put(
        self, key: str, data: bytes, *, content_type: str | None = None, if_absent: bool = False
    ) -> bool:
        if self._left and "/output-" in key:
            self._left -= 1
            raise self._error
        return await super().put(key, data, content_type=content_type, if_absent=if_absent)


def flow(bodies: list[int]) -> Workflow:
    async def body(ctx: StageContext[Any]) -> StageResult[str]:
        bodies.append(ctx.attempt)
        return StageResult(output="x" * 100_000, artifacts={"report": "y"})

    stage = define_stage("large", body, input=Any, output=str, retry=RetryPolicy(max_attempts=2, delay=0))
    return define_workflow("flow", input=Any).pipe(stage).build()


async def run_over(store: InMemoryBlobStore, bodies: list[int]) -> RunRecord:
    async with open_kernel([flow(bodies)], "memory://", blob_store=store) as kernel:
        run_id = (await kernel.dispatch(CreateRun("flow"))).run_id
        await kernel.dispatch(ClaimPendingRuns("w"))
        for _ in range(5):
            for job in (await kernel.dispatch(ClaimJobs("w"))).jobs:
                await run_job(kernel, job)
        run = await kernel.runs.get(run_id)
        assert run is not None
        return run


@pytest.mark.guarantee("kernel.unstored-outputs-spend-attempts")
async def test_a_store_that_can_not_take_an_output_spends_attempts() -> None:
    bodies: list[int] = []
    store = Failing(TransientError("the disk is full"), times=1_000)
    run = await run_over(store, bodies)
    assert (run.status, len(bodies)) == (Status.FAILED, 2)
    assert run.error is not None
    assert (run.error.code, run.error.type) == ("OUTPUT_NOT_STORED", "OutputNotStoredError")
    assert "stage 'large'" in run.error.message
    assert "the disk is full" in run.error.message
    assert [key async for key in store.list("")] == []


@pytest.mark.guarantee("kernel.unstored-outputs-spend-attempts")
async def test_a_store_that_refuses_an_output_ends_the_stage_at_once() -> None:
    bodies: list[int] = []
    run = await run_over(Failing(_REFUSED, times=1_000), bodies)
    assert (run.status, len(bodies)) == (Status.FAILED, 1)
    assert run.error is not None
    assert "the bucket 'b' isn't there" in run.error.message


async def test_a_store_that_takes_it_a_moment_later_spends_nothing() -> None:
    bodies: list[int] = []
    run = await run_over(Failing(TransientError("busy"), times=2), bodies)
    assert (run.status, run.output, bodies) == (Status.COMPLETED, "x" * 100_000, [1])


async def test_the_next_attempt_may_be_stored() -> None:
    bodies: list[int] = []
    run = await run_over(Failing(TransientError("busy"), times=3), bodies)
    assert (run.status, run.output, bodies) == (Status.COMPLETED, "x" * 100_000, [1, 2])
