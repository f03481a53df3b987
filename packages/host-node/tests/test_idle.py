"""What an idle host costs its database, and what an outage does."""

import asyncio
import gc
import subprocess
import sys
import tracemalloc
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Workflow, define_stage, define_workflow
from stagewright.commands import CreateRun
from stagewright.hosting import HOST_DEFAULTS, EventSinkMonitor, wait_for_run
from stagewright_host_node import NodeHost
from stagewright_host_node.claim_loop import ClaimLoop
from stagewright_host_node.delivery import DeliveryLoop
from stagewright_host_node.executions import Executions
from stagewright_host_node.left_jobs import LeftJobs
from stagewright_host_node.orchestration import OrchestrationLoop
from stagewright_host_node.thread_cap import ThreadCap

NOT_FOR_WORK = (
    # Migrations.
    *("alembic", "mako"),
    # The command line.
    *("click", "rich", "pygments", "pydantic_settings", "dotenv", "stagewright.cli"),
    # Tests, and other distributions' vendors.
    *("pytest", "stagewright.testing", "redis", "boto3", "botocore", "google.cloud"),
)

WORKER = """
import asyncio
import sys

from stagewright import StageContext, define_workflow, open_kernel, stage
from stagewright.commands import CreateRun
from stagewright.hosting import wait_for_run
from stagewright_host_node import NodeHost


@stage("body")
async def body(ctx: StageContext[int]) -> int:
    return ctx.input


async def main() -> None:
    async with open_kernel(define_workflow("w", input=int).pipe(body).build(), sys.argv[1]) as kernel:
        async with NodeHost(kernel):
            await wait_for_run(kernel, (await kernel.dispatch(CreateRun("w", 1))).run_id, timeout=30)


asyncio.run(main())
print(*(name for name in NAMES if name in sys.modules))
"""

TICKS = 400

Opened = Callable[..., Awaitable[Kernel]]
Eventually = Callable[..., Awaitable[None]]
Hurried = Callable[[], AbstractContextManager[None]]


def flow() -> Workflow:
    async def body(ctx: StageContext[int]) -> int:
        return ctx.input

    return define_workflow("w", input=int).pipe(define_stage("body", body, input=int, output=int)).build()


def own_statements(sent: list[str]) -> list[str]:
    """What was sent, without the beginnings and ends of transactions."""
    ends = ("BEGIN", "COMMIT", "ROLLBACK")
    return [text for text in sent if text.split()[0].rstrip(";").upper() not in ends]


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
        statements = own_statements(sent)
    assert len(statements) <= 4, statements


@pytest.mark.guarantee("hosts.idle-is-quiet")
@pytest.mark.parametrize("url", ["postgres"], indirect=True)
async def test_an_idle_minute_is_twelve_statements_at_most(
    sent: list[str], url: str, opened: Opened, eventually: Eventually, hurried: Hurried
) -> None:
    kernel = await opened(url, flow())
    async with NodeHost(kernel) as host:
        await wait_for_run(kernel, (await kernel.dispatch(CreateRun("w", 1))).run_id, timeout=20)
        await eventually(lambda: host.stats().notifications)
        with hurried():
            # What the run has left is cleared away by then.
            await asyncio.sleep(15)
            sent.clear()
            before = host.stats().orchestration_ticks
            await asyncio.sleep(60)
            ticks, statements = host.stats().orchestration_ticks - before, own_statements(sent)
    assert 5 <= ticks <= 7
    # Beside the looks: whether the listener's connection is alive, and once what nobody serves.
    assert len(statements) <= 12, statements


@pytest.mark.guarantee("hosts.idle-is-quiet")
@pytest.mark.parametrize("url", ["postgres"], indirect=True)
async def test_a_tick_with_nothing_to_do_is_one_statement(
    sent: list[str], url: str, opened: Opened, eventually: Eventually
) -> None:
    kernel = await opened(url, flow())
    async with NodeHost(kernel, orchestration_interval="60ms") as host:
        await wait_for_run(kernel, (await kernel.dispatch(CreateRun("w", 1))).run_id, timeout=20)
        await eventually(lambda: host.stats().notifications)
        # What the run has left is cleared away by the first ticks after it.
        done = host.stats().orchestration_ticks
        await eventually(lambda: host.stats().orchestration_ticks >= done + 10)
        sent.clear()
        before = host.stats().orchestration_ticks
        await eventually(lambda: host.stats().orchestration_ticks >= before + 20)
        ticks, statements = host.stats().orchestration_ticks - before, own_statements(sent)
    # A tick that was counted before may have sent its statement after; the listener asks once in fifteen seconds.
    assert len(statements) <= ticks + 2, statements


@pytest.mark.slow
@pytest.mark.guarantee("hosts.idle-keeps-nothing")
async def test_nothing_stays_of_ticks_with_nothing_to_do(url: str, opened: Opened) -> None:
    kernel = await opened(url, flow())
    executions = Executions(kernel, HOST_DEFAULTS, lambda _: None, successor=lambda _: None)

    async def tell_nobody() -> None:
        return

    upkeep = OrchestrationLoop(kernel, HOST_DEFAULTS, work_is_due=lambda: None, events_are_due=lambda: None)
    claims = ClaimLoop(
        kernel,
        HOST_DEFAULTS,
        executions,
        look_every=lambda: None,
        cap=ThreadCap(kernel.ports.executor),
        left=LeftJobs(tell_nobody),
        claimed=lambda: None,
    )
    delivery = DeliveryLoop(kernel, 100, EventSinkMonitor(kernel.ports.clock.now))

    async def tick(times: int) -> int:
        """Ticks of every loop, and how many bytes stay of what this project's code allocated."""
        for _ in range(times):
            await upkeep._tick()
            await claims._look()
            await delivery.deliver_all()
        gc.collect()
        kept = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/stagewright*")])
        return sum(one.size for one in kept.statistics("filename"))

    tracemalloc.start()
    try:
        before = await tick(150)
        after = await tick(TICKS)
    finally:
        tracemalloc.stop()
    # Less than the smallest object for each tick; what a driver has in hand at the moment comes and goes.
    assert after - before < 40 * TICKS


@pytest.mark.guarantee("hosts.workers-import-what-they-use")
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_a_worker_imports_neither_migrations_nor_the_command_line(
    url: str, opened: Opened, tmp_path: Path
) -> None:
    await opened(url)
    command = [sys.executable, "-c", WORKER.replace("NAMES", repr(NOT_FOR_WORK)), url]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, encoding="utf-8", timeout=60, cwd=tmp_path, check=False
    )
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


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
