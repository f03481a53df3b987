"""Claiming while the store can not be reached."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stagewright import (
    Kernel,
    Stage,
    StageContext,
    Workflow,
    define_workflow,
    stage,
)
from stagewright.commands import CreateRun
from stagewright.errors import (
    TransientError,
)
from stagewright.hosting import wait_for_run
from stagewright.kernel.command import Command
from stagewright.ports import WorkNotifier
from stagewright_host_node import NodeHost

Opened = Callable[..., Awaitable[Kernel]]
Eventually = Callable[..., Awaitable[None]]


def flow(*stages: Stage[Any, Any, Any]) -> Workflow:
    builder = define_workflow("w", input=int)
    for one in stages:
        builder = builder.pipe(one)
    return builder.build()


@stage("double")
async def double(ctx: StageContext[int]) -> int:
    return ctx.input * 2


async def create(kernel: Kernel, number: int = 1) -> str:
    return (await kernel.dispatch(CreateRun("w", number))).run_id


class Outage:
    """A store that can't be reached while `is_on`; counts what was asked of it."""

    def __init__(self) -> None:
        self.is_on = False
        self.asked = 0

    async def __call__(
        self, command: Command[Any], call_next: Callable[[Command[Any]], Awaitable[Any]]
    ) -> Any:
        self.asked += 1
        if self.is_on:
            raise TransientError("the database is away")
        return await call_next(command)


@pytest.mark.guarantee("hosts.outages-are-survived")
async def test_an_outage_is_survived_without_a_storm_of_questions(
    opened: Opened, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    outage = Outage()
    kernel = await opened("memory://", flow(double), middleware=[outage])
    async with NodeHost(kernel, poll_interval="10ms", orchestration_interval="100ms") as host:
        await wait_for_run(kernel, await create(kernel), timeout=5)
        outage.is_on = True
        assert isinstance(kernel.ports.persistence, WorkNotifier)
        await kernel.ports.persistence.notify("jobs")
        await eventually(lambda: not host.health().ready)
        assert "database is away" in host.health().problems[0]
        outage.asked = 0
        for _ in range(100):
            await kernel.ports.persistence.notify("jobs")
            await asyncio.sleep(0.01)
        assert outage.asked <= 60
        outage.is_on = False
        await wait_for_run(kernel, await create(kernel), timeout=10)
        await eventually(lambda: host.health().ready)
    assert len([line for line in caplog.messages if line.startswith("no work can be claimed")]) == 1


async def test_an_outcome_that_could_not_be_recorded_is_handed_back_when_the_store_is_there_again(
    opened: Opened, eventually: Eventually
) -> None:
    attempts: list[int] = []

    class FailsOnce:
        failures = 0

        async def __call__(
            self, command: Command[Any], call_next: Callable[[Command[Any]], Awaitable[Any]]
        ) -> Any:
            answer = await call_next(command) if command.type != "job.execute" or attempts else None
            if command.type == "job.execute" and not attempts:
                attempts.append(0)
                raise TransientError("connection lost")
            return answer

    kernel = await opened("memory://", flow(double), middleware=[FailsOnce()])
    async with NodeHost(kernel) as host:
        run_id = await create(kernel)
        run = await wait_for_run(kernel, run_id, timeout=20)
        [job] = await kernel.ports.job_transport.get_jobs_by_run(run_id)
    assert run.output == 2
    assert (job.failures, job.worker_losses, job.interruptions) == (0, 0, 1)
    assert host.stats().unsettled == 1
