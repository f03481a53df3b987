"""A cancel and a completion at the same moment: whatever is answered is what has happened."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Status, define_workflow
from stagewright.commands import CancelRun, ClaimJobs, ClaimPendingRuns, CreateRun
from stagewright.hosting import run_job
from stagewright.records import RunRecord
from stagewright_test_support.backend_choice import stores

pytestmark = pytest.mark.parametrize(
    "url", stores("memory", "sqlite", "postgres", "mariadb", differ={"mariadb"}), indirect=True
)

LENGTH = 0.05
AROUND = 0.02
AT_ONCE = 30


async def work(ctx: StageContext[Any]) -> Any:
    await asyncio.sleep(LENGTH)
    return ctx.input


WORKFLOW = define_workflow("flow", input=Any).stage("s", work, input=Any, output=Any).build()


async def race(kernel: Kernel, random: Random) -> dict[str, bool]:
    """Start runs, cancel each around the end of its body, and say what was answered."""
    runs = [(await kernel.dispatch(CreateRun("flow", n))).run_id for n in range(AT_ONCE)]
    await kernel.dispatch(ClaimPendingRuns("w", max_claims=AT_ONCE))
    jobs = (await kernel.dispatch(ClaimJobs("w", limit=AT_ONCE))).jobs
    assert len(jobs) == AT_ONCE

    async def cancel(run_id: str) -> bool:
        await asyncio.sleep(LENGTH + random.uniform(-AROUND, AROUND))
        return (await kernel.dispatch(CancelRun(run_id))).cancelled

    answers = await asyncio.gather(
        *(cancel(run_id) for run_id in runs), *(run_job(kernel, job) for job in jobs)
    )
    return dict(zip(runs, [answer is True for answer in answers[: len(runs)]], strict=True))


@pytest.mark.parametrize(
    "repetitions", [60, pytest.param(300, marks=pytest.mark.soak)], ids=["quick", "thorough"]
)
async def test_the_answer_and_the_final_state_always_agree(
    open_store: Callable[..., Awaitable[Kernel]],
    ended: Callable[[Kernel, str], Awaitable[RunRecord]],
    repetitions: int,
) -> None:
    kernel = await open_store(WORKFLOW)
    random = Random(7)
    answers: dict[str, bool] = {}
    while len(answers) < repetitions:
        answers |= await race(kernel, random)
    for run_id, cancelled in answers.items():
        run = await ended(kernel, run_id)
        (stage,) = await kernel.runs.stages(run_id)
        told = [event.type for event in await kernel.runs.events(run_id)]
        if cancelled:
            assert (run.status, run.output) == (Status.CANCELLED, None)
            assert stage.status in (Status.CANCELLED, Status.COMPLETED)
            assert "workflow:completed" not in told
            assert ("stage:completed" in told) is (stage.status is Status.COMPLETED)
        else:
            assert (run.status, stage.status) == (Status.COMPLETED, Status.COMPLETED)
            assert "workflow:cancelled" not in told
        assert not (await kernel.dispatch(CancelRun(run_id))).cancelled
        assert await kernel.runs.get(run_id) == run, "only a redrive changes a run that has ended"
    assert (await kernel.dispatch(ClaimJobs("w", limit=99))).jobs == ()
