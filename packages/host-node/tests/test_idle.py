"""What an idle host costs its database, and what an outage does."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Workflow, define_stage, define_workflow
from stagewright.commands import CreateRun
from stagewright.hosting import wait_for_run
from stagewright_host_node import NodeHost

Opened = Callable[..., Awaitable[Kernel]]
Eventually = Callable[..., Awaitable[None]]


def flow() -> Workflow:
    async def body(ctx: StageContext[int]) -> int:
        return ctx.input

    return define_workflow("w", input=int).pipe(define_stage("body", body, input=int, output=int)).build()


@pytest.mark.slow
@pytest.mark.guarantee("hosts.idle-is-quiet")
@pytest.mark.parametrize("url", ["postgres"], indirect=True)
async def test_an_idle_host_sends_one_statement_in_five_seconds_at_most(
    sent: list[str], url: str, opened: Opened, eventually: Eventually
) -> None:
    kernel = await opened(url, flow())
    async with NodeHost(kernel) as host:
        await wait_for_run(kernel, (await kernel.dispatch(CreateRun("w", 1))).run_id, timeout=20)
        await eventually(lambda: host.stats().notifications)
        await asyncio.sleep(1)
        sent.clear()
        await asyncio.sleep(20)
        statements = [
            text
            for text in sent
            if text.split()[0].rstrip(";").upper() not in ("BEGIN", "COMMIT", "ROLLBACK")
        ]
    assert len(statements) <= 4, statements


@pytest.mark.slow
async def test_a_database_that_goes_away_and_comes_back(
    sent: list[str], postgres_server: Any, opened: Opened, eventually: Eventually
) -> None:
    server = postgres_server(durable=True)
    kernel = await opened(server.url("postgres"), flow())
    async with NodeHost(kernel, orchestration_interval="1s", job_heartbeat_interval="1s") as host:
        await wait_for_run(kernel, (await kernel.dispatch(CreateRun("w", 1))).run_id, timeout=20)
        server.kill()
        await eventually(lambda: host.health().degraded or not host.health().ready)
        await asyncio.sleep(3)
        server.restart()
        await eventually(lambda: host.health().ready and host.stats().notifications, within=40)
        run = await wait_for_run(kernel, (await kernel.dispatch(CreateRun("w", 2))).run_id, timeout=20)
        assert run.output == 2
