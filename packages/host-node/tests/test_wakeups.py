"""Notifications that die: a worker in want of work finds it by looking, and hears again once it can."""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg  # type: ignore[import-untyped]  # it ships no types
import pytest

from stagewright import Kernel, StageContext, Workflow, define_stage, define_workflow
from stagewright.commands import CreateRun
from stagewright.hosting import wait_for_run
from stagewright_host_node import NodeHost
from stagewright_test_support.tcp_proxy import open_proxy

Opened = Callable[..., Awaitable[Kernel]]
Eventually = Callable[..., Awaitable[None]]


def flow() -> Workflow:
    async def body(ctx: StageContext[int]) -> int:
        return ctx.input

    return define_workflow("w", input=int).pipe(define_stage("body", body, input=int, output=int)).build()


@pytest.mark.slow
@pytest.mark.guarantee("hosts.work-is-begun-at-once")
@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
async def test_an_idle_worker_begins_at_once_what_another_process_creates(
    url: str,
    opened: Opened,
    flow_list: list[Workflow],
    worker: Callable[..., Any],
    effects: Callable[[], list[list[str]]],
    eventually: Eventually,
) -> None:
    kernel = await opened(url, *flow_list)
    one = worker(url, "--poll-interval", "60s", "--orchestration-interval", "60s")
    await eventually(lambda: "takes up to" in one.log)
    await asyncio.sleep(1)
    delays = []
    for number in range(20):
        began = time.monotonic()
        await kernel.dispatch(CreateRun("sleep", 0.0))
        await eventually(lambda number=number: len(effects()) > 2 * number)
        delays.append(time.monotonic() - began)
        await eventually(lambda number=number: len(effects()) == 2 * (number + 1))
        await asyncio.sleep(0.05)
    assert statistics.median(delays) < 0.5, delays


async def terminate_listeners(url: str) -> int:
    """End every server process that listens, as an operator or a proxy would."""
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid() AND query ILIKE 'LISTEN%'"
        )
        return len(rows)
    finally:
        await connection.close()


# SQLAlchemy leaves the coroutine behind that would have opened a connection anew outside of its greenlet.
@pytest.mark.filterwarnings("ignore:.*coroutine .*connect.* was never awaited")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.guarantee("hosts.dead-notifications-cost-a-poll")
@pytest.mark.parametrize("url", ["postgres"], indirect=True)
async def test_a_terminated_listener_costs_a_poll_and_comes_back(
    url: str, opened: Opened, eventually: Eventually
) -> None:
    kernel = await opened(url, flow())
    elsewhere = await opened(url, flow())
    async with NodeHost(kernel, poll_interval="500ms", orchestration_interval="60s") as host:
        await eventually(lambda: host.stats().notifications)
        assert await terminate_listeners(url) >= 1
        began = time.monotonic()
        created = await elsewhere.dispatch(CreateRun("w", 1))
        await wait_for_run(elsewhere, created.run_id, timeout=10)
        assert time.monotonic() - began < 3
        await eventually(lambda: host.stats().notifications, within=15)


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
async def test_a_listener_that_hears_nothing_costs_the_orchestration_interval(
    url: str, opened: Opened, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = await opened(url, flow())
    elsewhere = await opened(url, flow())

    async def deaf(self: object, timeout: object) -> bool:
        await asyncio.sleep(3600)
        return False

    async with NodeHost(kernel, poll_interval="60s", orchestration_interval="500ms") as host:
        await eventually(lambda: host.stats().notifications)
        # A black hole: the connection seems to be there, and nothing comes out of it.
        monkeypatch.setattr(type(kernel.ports.persistence), "wait_for_work", deaf)
        for number in range(2):
            created = await elsewhere.dispatch(CreateRun("w", number))
            run = None
            async with asyncio.timeout(5):
                while run is None or run.output is None:
                    run = await elsewhere.runs.get(created.run_id)
                    await asyncio.sleep(0.02)


@pytest.mark.slow
@pytest.mark.guarantee("hosts.dead-notifications-cost-a-poll")
@pytest.mark.parametrize("url", ["postgres"], indirect=True)
async def test_a_black_hole_costs_an_interval_and_the_listener_comes_back(
    url: str, opened: Opened, eventually: Eventually
) -> None:
    parts = urlsplit(url)
    async with open_proxy(parts.hostname or "", parts.port or 0) as proxy:
        user = parts.netloc.rpartition("@")[0]
        through = urlunsplit(parts._replace(netloc=f"{user}@127.0.0.1:{proxy.port}"))
        kernel, elsewhere = await opened(through, flow()), await opened(url, flow())
        async with NodeHost(kernel, poll_interval="2s", orchestration_interval="2s") as host:
            await eventually(lambda: host.stats().notifications)
            # No error and no end of the connection is seen, but nothing comes any more.
            assert proxy.swallow(b"LISTEN") == 1
            began = time.monotonic()
            created = await elsewhere.dispatch(CreateRun("w", 1))
            await wait_for_run(elsewhere, created.run_id, timeout=10)
            assert time.monotonic() - began < 4
            # It is found out, said, and made up for without anybody's help.
            await eventually(lambda: not host.stats().notifications, within=25)
            assert any("notifications" in line for line in host.health().degraded)
            await eventually(lambda: host.stats().notifications, within=15)
            assert not host.health().degraded
        async with NodeHost(kernel, poll_interval="60s", orchestration_interval="60s") as host:
            await eventually(lambda: host.stats().notifications)
            await asyncio.sleep(0.5)
            created = await elsewhere.dispatch(CreateRun("w", 2))
            await wait_for_run(elsewhere, created.run_id, timeout=5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*coroutine .*connect.* was never awaited")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("url", ["postgres"], indirect=True)
async def test_while_nobody_can_be_listened_to_the_database_is_asked_once_a_poll(
    url: str, opened: Opened, eventually: Eventually, monkeypatch: pytest.MonkeyPatch, sent: list[str]
) -> None:
    kernel = await opened(url, flow())
    async with NodeHost(kernel, poll_interval="500ms", orchestration_interval="60s") as host:
        await eventually(lambda: host.stats().notifications)

        async def unreachable(*_: object) -> None:
            raise OSError("no route to the database")

        monkeypatch.setattr(kernel.ports.persistence._database.listener, "_watch", unreachable)  # type: ignore[attr-defined]
        assert await terminate_listeners(url) >= 1
        await eventually(lambda: not host.stats().notifications)
        sent.clear()
        await asyncio.sleep(4)
        looks = [
            text for text in sent if text.split()[0].upper() not in ("BEGIN;", "BEGIN", "COMMIT", "ROLLBACK")
        ]
        # Two questions a poll: for runs and for jobs.
        assert 2 <= len(looks) <= 2 * 9, looks
