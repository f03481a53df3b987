"""Waiting for work: woken at once, also after a lost or dead connection, and when a job is due."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest

from stagewright import Kernel, StageContext, Workflow, define_stage, define_workflow
from stagewright.commands import CreateRun, SignalStep
from stagewright.hosting import wait_for_run
from stagewright_conformance.samples import a_job
from stagewright_host_node import NodeHost
from stagewright_test_support.tcp_proxy import open_proxy
from stagewright_transport_redis import RedisJobTransport, listening

Opened = Callable[..., RedisJobTransport]
Eventually = Callable[..., Awaitable[None]]
OpenFlows = Callable[..., Awaitable[Kernel]]

LONG, MOMENT = timedelta(seconds=15), timedelta(milliseconds=150)


def flow() -> Workflow:
    async def body(ctx: StageContext[int]) -> int:
        return ctx.input

    return define_workflow("w", input=int).pipe(define_stage("body", body, input=int, output=int)).build()


async def cut_subscriptions(redis: Any, name: str) -> int:
    """Close the connections for listening that are called so, as an operator or a proxy would."""
    clients = await redis.client_list(_type="pubsub")
    mine = [client["id"] for client in clients if client["name"] == name]
    for id in mine:
        await redis.client_kill_filter(_id=id)
    return len(mine)


async def listens(transport: RedisJobTransport, eventually: Eventually) -> None:
    """Make it listen, and hear all that has been."""
    await transport.wait_for_work(MOMENT)
    await eventually(transport.is_listening)
    while await transport.wait_for_work(MOMENT):
        pass


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection without a sign of life is given up soon."""
    monkeypatch.setattr(listening, "_QUIET", 0.3)


@pytest.mark.guarantee("redis.waiters-woken-at-once")
@pytest.mark.parametrize("act", ["enqueue", "resume", "retry", "release", "notify"])
async def test_whoever_waits_is_woken_by_another_process(
    url: str, opened: Opened, eventually: Eventually, act: str
) -> None:
    here, there = opened(url), opened(url)
    job = a_job()
    taken = []
    if act in ("retry", "release"):
        await there.enqueue_parallel([job])
        taken = await there.dequeue(worker_id="w")
    await listens(here, eventually)
    waiting = asyncio.create_task(here.wait_for_work(LONG))
    await asyncio.sleep(0)
    if act == "enqueue":
        await there.enqueue_parallel([job])
    elif act == "resume":
        await there.resume([job])
    elif act == "retry":
        await there.fail(job.id, "no", retry=True, fence=taken[0].fence)
    elif act == "release":
        await there.release_stale(timedelta(seconds=-1))
    else:
        await there.notify("jobs")
    assert await waiting
    assert not await here.wait_for_work(MOMENT)


@pytest.mark.guarantee("redis.due-jobs-wake")
@pytest.mark.parametrize("how", ["due_at", "delay", "defer"])
async def test_whoever_waits_is_woken_when_a_job_is_due(
    url: str, opened: Opened, eventually: Eventually, how: str
) -> None:
    here, there = opened(url), opened(url)
    await listens(here, eventually)
    pause = timedelta(milliseconds=700)
    due_at = datetime.now(UTC) + pause
    if how == "due_at":
        await there.enqueue_parallel([a_job(due_at=due_at)])
    else:
        await there.enqueue_parallel([a_job()])
        [taken] = await there.dequeue(worker_id="w")
        if how == "delay":
            await there.fail(taken.job_id, "no", retry=True, delay=pause, fence=taken.fence)
        else:
            await there.defer(taken.job_id, due_at, "busy", taken.fence)
    began = time.monotonic()
    while not (jobs := await here.dequeue(worker_id="w")):
        assert await here.wait_for_work(LONG)
    assert time.monotonic() - began < LONG.total_seconds() / 2
    assert len(jobs) == 1


async def test_two_that_wait_side_by_side_are_both_woken(
    transport: RedisJobTransport, eventually: Eventually
) -> None:
    await listens(transport, eventually)
    waiting = [asyncio.create_task(transport.wait_for_work(LONG)) for _ in range(2)]
    await asyncio.sleep(0)
    await transport.notify("jobs")
    assert await asyncio.gather(*waiting) == [True, True]


@pytest.mark.guarantee("redis.lost-subscriptions-come-back")
async def test_a_subscription_that_is_cut_comes_back_and_tells_of_it(
    url: str,
    redis_prefix: str,
    opened: Opened,
    redis: Any,
    eventually: Eventually,
    caplog: pytest.LogCaptureFixture,
) -> None:
    transport = opened(f"{url}&client_name={redis_prefix}")
    caplog.set_level(logging.INFO, "stagewright.transport.redis")
    await listens(transport, eventually)
    waiting = asyncio.create_task(transport.wait_for_work(LONG))
    await asyncio.sleep(0)
    assert await cut_subscriptions(redis, redis_prefix) == 1
    # Something may have come while nobody listened.
    assert await waiting
    await eventually(transport.is_listening)
    said = [record.getMessage() for record in caplog.records]
    assert "notifications are lost until Redis can be listened to" in said[0]
    assert said[1:] == ["listening to Redis again"]


@pytest.mark.guarantee("redis.dead-subscriptions-are-found-out")
@pytest.mark.usefixtures("quick")
async def test_a_subscription_that_is_swallowed_is_found_out_and_replaced(
    server_url: str, redis_prefix: str, opened: Opened, eventually: Eventually
) -> None:
    place = urlsplit(server_url)
    assert place.hostname is not None
    assert place.port is not None
    async with open_proxy(place.hostname, place.port) as proxy:
        here = opened(f"redis://127.0.0.1:{proxy.port}{place.path}?namespace={redis_prefix}")
        await listens(here, eventually)
        assert proxy.swallow(b"SUBSCRIBE") == 1
        await eventually(lambda: not here.is_listening())
        await eventually(here.is_listening)
        assert await here.wait_for_work(LONG)
        await here.close()


@pytest.mark.guarantee("redis.dead-subscriptions-are-found-out")
@pytest.mark.parametrize("how", ["cut", "swallowed"])
async def test_a_host_without_its_subscription_finds_work_by_looking(
    server_url: str,
    redis_prefix: str,
    redis: Any,
    open_flows: OpenFlows,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    # It is never given up here, and never comes back.
    monkeypatch.setattr(listening, "_QUIET", 60.0)
    monkeypatch.setattr(listening, "_FIRST_PAUSE", 60.0)
    place = urlsplit(server_url)
    assert place.hostname is not None
    assert place.port is not None
    async with open_proxy(place.hostname, place.port) as proxy:
        through = (
            f"redis://127.0.0.1:{proxy.port}{place.path}?namespace={redis_prefix}&client_name={redis_prefix}"
        )
        kernel = await open_flows(flow(), job_transport=through)
        elsewhere = await open_flows(flow())
        async with NodeHost(kernel, poll_interval="300ms", orchestration_interval="1s") as host:
            await eventually(lambda: host.stats().notifications)
            if how == "cut":
                assert await cut_subscriptions(redis, redis_prefix) == 1
                await eventually(lambda: not host.stats().notifications)
                assert any("notifications don't come through" in one for one in host.health().degraded)
            else:
                assert proxy.swallow(b"SUBSCRIBE") == 1
            created = await elsewhere.dispatch(CreateRun("w", 1))
            run = await wait_for_run(elsewhere, created.run_id, timeout="10s")
            assert run.output == 1


@pytest.mark.guarantee("redis.dead-subscriptions-are-found-out")
@pytest.mark.parametrize("how", ["cut", "swallowed"])
async def test_a_signal_reaches_a_run_whose_host_has_no_subscription(
    server_url: str,
    redis_prefix: str,
    redis: Any,
    open_flows: OpenFlows,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    monkeypatch.setattr(listening, "_QUIET", 60.0)
    monkeypatch.setattr(listening, "_FIRST_PAUSE", 60.0)

    async def wait(ctx: StageContext[int]) -> int:
        return await ctx.step.wait_for_signal("go", timeout="10m", returns=int)

    waiting = define_workflow("waits", input=int).pipe(define_stage("s", wait, input=int, output=int)).build()
    place = urlsplit(server_url)
    assert place.hostname is not None
    assert place.port is not None
    async with open_proxy(place.hostname, place.port) as proxy:
        through = (
            f"redis://127.0.0.1:{proxy.port}{place.path}?namespace={redis_prefix}&client_name={redis_prefix}"
        )
        kernel = await open_flows(waiting, job_transport=through)
        elsewhere = await open_flows(waiting)
        async with NodeHost(kernel, poll_interval="300ms", orchestration_interval="1s") as host:
            await eventually(lambda: host.stats().notifications)
            run_id = (await elsewhere.dispatch(CreateRun("waits", 1))).run_id
            await eventually(lambda: host.stats().suspended == 1)
            if how == "cut":
                assert await cut_subscriptions(redis, redis_prefix) == 1
            else:
                assert proxy.swallow(b"SUBSCRIBE") == 1
            await elsewhere.dispatch(SignalStep(run_id, "s", "go", payload=7))
            run = await wait_for_run(elsewhere, run_id, timeout="10s")
            assert run.output == 7


async def test_nobody_is_asked_in_vain_while_the_server_is_gone(
    redis_server: Any, opened: Opened, redis_prefix: str, eventually: Eventually
) -> None:
    server = redis_server()
    here = opened(f"{server.url()}?namespace={redis_prefix}")
    await listens(here, eventually)
    server.kill()
    await eventually(lambda: not here.is_listening())
    while await here.wait_for_work(MOMENT):
        pass
    began = time.monotonic()
    assert not await here.wait_for_work(MOMENT)
    assert time.monotonic() - began >= MOMENT.total_seconds()
    await asyncio.to_thread(server.restart)
    assert await here.wait_for_work(LONG)
    assert here.is_listening()
