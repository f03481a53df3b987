"""A server that comes back without jobs is noticed, and every run is worked to its end all the same."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest

from stagewright import Kernel, RetryPolicy, StageContext, Workflow, define_stage, define_workflow
from stagewright.commands import CreateRun
from stagewright.errors import TransientError
from stagewright.hosting import wait_for_run
from stagewright.kernel.procedures import replace_lost
from stagewright.status import Status
from stagewright_host_node import NodeHost
from stagewright_transport_redis import RedisJobTransport

Opened = Callable[..., RedisJobTransport]
OpenFlows = Callable[..., Awaitable[Kernel]]
Eventually = Callable[..., Awaitable[None]]


async def settled(transport: RedisJobTransport) -> None:
    losses = await transport.possible_losses()
    assert losses is not None
    await transport.losses_replaced(losses)
    assert await transport.possible_losses() is None


@pytest.mark.guarantee("redis.losses-are-noticed")
@pytest.mark.parametrize("how", ["emptied", "restarted", "restarted empty"])
async def test_a_server_that_may_have_lost_jobs_says_so_until_they_are_there_again(
    redis_server: Any, redis_prefix: str, opened: Opened, how: str
) -> None:
    server = redis_server(durable=how == "restarted")
    one, other = (opened(f"{server.url()}?namespace={redis_prefix}") for _ in range(2))
    await settled(one)
    assert await other.possible_losses() is None
    if how == "emptied":
        await one._namespace.client.flushall()
    else:
        server.kill()
        await asyncio.to_thread(server.restart)
    assert await one.possible_losses() == await other.possible_losses() != ""
    await settled(other)
    assert await one.possible_losses() is None


@pytest.mark.guarantee("redis.losses-are-noticed")
async def test_what_is_lost_during_a_look_is_told_after_it(
    redis_server: Any, redis_prefix: str, opened: Opened
) -> None:
    server = redis_server()
    one, other = (opened(f"{server.url()}?namespace={redis_prefix}") for _ in range(2))
    losses = await one.possible_losses()
    assert losses is not None
    await one._namespace.client.flushall()
    await one.losses_replaced(losses)
    assert (losses_since := await other.possible_losses()) is not None
    # Whoever looked before that says so late.
    await one.losses_replaced(losses)
    assert await other.possible_losses() == losses_since
    await settled(other)


async def test_a_user_who_may_not_ask_for_information_hears_of_a_server_that_was_emptied(
    redis_server: Any, redis_prefix: str, opened: Opened
) -> None:
    rules = f">secret ~{{{redis_prefix}}}:* resetchannels &{{{redis_prefix}}}:* +@all -info"
    server = redis_server(users={"worker": rules, "admin": ">admin ~* &* +@all"})
    transport = opened(f"{server.url(user='worker', password='secret')}?namespace={redis_prefix}")
    admin = opened(f"{server.url(user='admin', password='admin')}?namespace={redis_prefix}")
    await settled(transport)
    await admin._namespace.client.flushall()
    await settled(transport)


@pytest.mark.slow
@pytest.mark.guarantee("redis.lost-jobs-come-again")
async def test_every_run_completes_when_the_server_is_killed_and_comes_back_empty(
    redis_server: Any, redis_prefix: str, open_flows: OpenFlows, eventually: Eventually
) -> None:
    bodies: Counter[str] = Counter()

    async def work(ctx: StageContext[int]) -> int:
        bodies[ctx.run_id] += 1
        await asyncio.sleep(0.005)
        return ctx.input + 1

    retry = RetryPolicy(max_attempts=3, delay=0)
    one = define_stage("one", work, input=int, output=int, retry=retry)
    flow: Workflow = define_workflow("w", input=int).pipe(one).build()
    server = redis_server()
    url = f"{server.url()}?namespace={redis_prefix}&connect_timeout=1s"
    watching = await open_flows(flow, job_transport=url)
    count = 500
    for number in range(count):
        await watching.dispatch(CreateRun("w", number))

    async def completed() -> int:
        page = await watching.runs.list(statuses=(Status.COMPLETED,), limit=count)
        return len(page.items)

    async with AsyncExitStack() as stack:
        for number in range(2):
            kernel = await open_flows(flow, job_transport=url)
            host = NodeHost(
                kernel,
                worker_id=f"w{number}",
                concurrency=20,
                orchestration_interval="500ms",
                poll_interval="200ms",
            )
            await stack.enter_async_context(host)
        await eventually(lambda: bodies.total() >= count // 2)
        server.kill()
        done = await completed()
        assert done < count
        await asyncio.to_thread(server.restart)
        restarted = time.monotonic()
        while await completed() < count:
            assert time.monotonic() - restarted < 60
            await asyncio.sleep(0.1)
    assert len(bodies) == count
    # What was under way may have been begun anew.
    assert bodies.total() <= count + 40


@pytest.mark.wide
@pytest.mark.guarantee("redis.lost-jobs-come-again")
async def test_a_run_goes_on_when_the_server_comes_back_as_it_was_a_moment_before(
    redis_server: Any,
    redis_prefix: str,
    opened: Opened,
    open_flows: OpenFlows,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As from a log that ends too early, or a replica that lags behind: the job sleeps, and its stage was begun."""
    monkeypatch.setattr(replace_lost, "OWNERS_LEARN_WITHIN", timedelta(seconds=1))
    is_begun, bodies = asyncio.Event(), Counter[str]()

    async def nap(ctx: StageContext[int]) -> int:
        await ctx.step.sleep("nap", "500ms")
        bodies[ctx.run_id] += 1
        if bodies[ctx.run_id] == 1:
            is_begun.set()
            await asyncio.sleep(60)
        return ctx.input

    flow = define_workflow("w", input=int).pipe(define_stage("nap", nap, input=int, output=int)).build()
    server = redis_server()
    url = f"{server.url()}?namespace={redis_prefix}"
    client = opened(url)._namespace.client
    kernel = await open_flows(flow, job_transport=url)
    host = NodeHost(
        kernel, orchestration_interval="300ms", poll_interval="200ms", job_heartbeat_interval="300ms"
    )
    async with host:
        run_id = (await kernel.dispatch(CreateRun("w", 1))).run_id
        await eventually(lambda: host.stats().suspended == 1)
        before = {key: await client.dump(key) for key in await client.keys(f"{{{redis_prefix}}}:*")}
        await asyncio.wait_for(is_begun.wait(), 20)
        server.kill()
        await asyncio.to_thread(server.restart)
        pipeline = opened(url)._namespace.client.pipeline(transaction=True)
        pipeline.flushdb()
        for key, dumped in before.items():
            pipeline.restore(key, 0, dumped)
        await pipeline.execute()
        run = await wait_for_run(kernel, run_id, timeout="30s")
    assert (run.status, run.output) == (Status.COMPLETED, 1)
    assert bodies[run_id] == 2


@pytest.mark.wide
async def test_a_transport_that_is_gone_costs_no_run(
    redis_server: Any, redis_prefix: str, open_flows: OpenFlows, eventually: Eventually
) -> None:
    async def work(ctx: StageContext[int]) -> int:
        return ctx.input

    flow = define_workflow("w", input=int).pipe(define_stage("s", work, input=int, output=int)).build()
    server = redis_server()
    kernel = await open_flows(flow, job_transport=f"{server.url()}?namespace={redis_prefix}")
    server.kill()
    async with NodeHost(kernel, orchestration_interval="300ms", poll_interval="200ms"):
        run_id = (await kernel.dispatch(CreateRun("w", 1))).run_id
        with pytest.raises(TransientError):
            await kernel.ports.job_transport.depth()
        await asyncio.to_thread(server.restart)

        async def is_completed() -> bool:
            run = await kernel.runs.get(run_id)
            return run is not None and run.status is Status.COMPLETED

        await eventually(is_completed)
