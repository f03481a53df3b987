"""Signals to a run that is about to end: what is accepted is taken or shown, and never swallowed."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Status, define_workflow
from stagewright.commands import CancelRun, ClaimJobs, ClaimPendingRuns, CreateRun, SignalStep
from stagewright.errors import RunNotFoundError, RunStateError
from stagewright.hosting import run_job
from stagewright.records import DequeuedJob, RunRecord

OpenStore = Callable[..., Awaitable[Kernel]]
Ended = Callable[[Kernel, str], Awaitable[RunRecord]]


class Gate:
    def __init__(self) -> None:
        self.inside, self.go = asyncio.Event(), asyncio.Event()

    async def body(self, ctx: StageContext[Any]) -> Any:
        self.inside.set()
        await self.go.wait()
        return "done"


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
async def kernel(open_store: OpenStore, gate: Gate) -> Kernel:
    return await open_store(
        define_workflow("flow", input=Any).stage("last", gate.body, input=Any, output=Any).build()
    )


async def taken(kernel: Kernel) -> DequeuedJob:
    await kernel.dispatch(CreateRun("flow"))
    await kernel.dispatch(ClaimPendingRuns("w"))
    (job,) = (await kernel.dispatch(ClaimJobs("w"))).jobs
    return job


async def is_accepted(kernel: Kernel, run_id: str, step_id: str) -> bool:
    try:
        sent = await kernel.dispatch(SignalStep(run_id, "last", step_id, payload=step_id))
    except RunStateError:
        return False
    return sent.delivered


async def shown(kernel: Kernel, run_id: str) -> list[str]:
    return [signal.step_id for signal in await kernel.runs.signals(run_id)]


async def test_an_accepted_signal_stays_visible_and_a_late_one_is_refused(
    kernel: Kernel, gate: Gate, ended: Ended
) -> None:
    job = await taken(kernel)
    body = asyncio.create_task(run_job(kernel, job))
    await gate.inside.wait()
    assert await is_accepted(kernel, job.run_id, "early")
    gate.go.set()
    await body
    assert (await ended(kernel, job.run_id)).status is Status.COMPLETED
    with pytest.raises(RunStateError, match="COMPLETED"):
        await kernel.dispatch(SignalStep(job.run_id, "last", "late"))
    assert await shown(kernel, job.run_id) == ["early"]
    cancelled = (await kernel.dispatch(CreateRun("flow"))).run_id
    assert (await kernel.dispatch(CancelRun(cancelled))).cancelled
    with pytest.raises(RunStateError, match="CANCELLED"):
        await kernel.dispatch(SignalStep(cancelled, "last", "late"))
    with pytest.raises(RunNotFoundError):
        await kernel.dispatch(SignalStep("nobody", "last", "late"))
    assert await shown(kernel, cancelled) == []


async def test_while_the_end_commits_every_answer_is_true(kernel: Kernel, gate: Gate, ended: Ended) -> None:
    for _ in range(15):
        gate.inside.clear()
        gate.go.clear()
        job = await taken(kernel)
        body = asyncio.create_task(run_job(kernel, job))
        await gate.inside.wait()

        async def send(number: int, run_id: str = job.run_id) -> str | None:
            await asyncio.sleep(0.001 * number)
            step_id = f"signal-{number}"
            return step_id if await is_accepted(kernel, run_id, step_id) else None

        gate.go.set()
        *answers, _ = await asyncio.gather(*(send(number) for number in range(12)), body)
        accepted = {step_id for step_id in answers if isinstance(step_id, str)}
        run = await ended(kernel, job.run_id)
        assert run.status is Status.COMPLETED
        assert set(await shown(kernel, job.run_id)) == accepted
        told = [event for event in await kernel.runs.events(job.run_id) if event.type == "step:signalled"]
        assert {str(event.payload["step_id"]) for event in told} == accepted
