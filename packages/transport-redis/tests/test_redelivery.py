"""A message is no permission: surplus deliveries, copies made by hand and lost messages change nothing of a run."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Workflow, define_stage, define_workflow
from stagewright.commands import ClaimPendingRuns, CreateRun
from stagewright.hosting import wait_for_run
from stagewright.records import RunRecord
from stagewright.status import Status
from stagewright_conformance.samples import a_job
from stagewright_host_node import NodeHost
from stagewright_transport_redis import RedisJobTransport
from stagewright_transport_redis.naming import prefix_of, queue_of

OpenFlows = Callable[..., Awaitable[Kernel]]
Eventually = Callable[..., Awaitable[None]]

BODY = 4.5
"""Seconds that a body takes: more than two leases."""


class Story:
    """Two workflows, and what their bodies did."""

    def __init__(self) -> None:
        self.bodies: Counter[str] = Counter()
        self.woke_at: dict[str, datetime] = {}

    def flows(self) -> tuple[Workflow, Workflow]:
        async def work(ctx: StageContext[float]) -> str:
            self.bodies[ctx.run_id] += 1
            await asyncio.sleep(ctx.input)
            return "done"

        async def nap(ctx: StageContext[float]) -> str:
            await ctx.step.sleep("nap", ctx.input)

            async def rise() -> str:
                self.bodies[ctx.run_id] += 1
                self.woke_at[ctx.run_id] = datetime.now(UTC)
                return "awake"

            return await ctx.step.run("rise", rise)

        long = define_workflow("long", input=float).pipe(define_stage("work", work, input=float, output=str))
        sleepy = define_workflow("sleepy", input=float).pipe(
            define_stage("nap", nap, input=float, output=str)
        )
        return long.build(), sleepy.build()


@asynccontextmanager
async def two_hosts(open_flows: OpenFlows, story: Story) -> AsyncIterator[Kernel]:
    """Two workers whose leases last two seconds, and a kernel to watch by."""
    async with AsyncExitStack() as stack:
        for number in range(2):
            kernel = await open_flows(*story.flows())
            host = NodeHost(
                kernel,
                worker_id=f"w{number}",
                stale_lease_threshold="2s",
                job_heartbeat_interval="400ms",
                orchestration_interval="300ms",
                poll_interval="300ms",
            )
            await stack.enter_async_context(host)
        yield await open_flows(*story.flows())


async def ended(kernel: Kernel, run_id: str) -> RunRecord:
    run = await wait_for_run(kernel, run_id, timeout="30s")
    assert run.status is Status.COMPLETED
    return run


async def is_empty(transport: RedisJobTransport, *run_ids: str) -> bool:
    jobs = [job for run_id in run_ids for job in await transport.get_jobs_by_run(run_id)]
    return await transport.depth() == 0 and all(job.status is Status.COMPLETED for job in jobs)


@pytest.mark.slow
@pytest.mark.guarantee("redis.surplus-deliveries-change-nothing")
async def test_leases_that_end_meanwhile_run_no_body_twice(
    open_flows: OpenFlows, transport: RedisJobTransport, eventually: Eventually
) -> None:
    story = Story()
    async with two_hosts(open_flows, story) as kernel:
        long = (await kernel.dispatch(CreateRun("long", BODY))).run_id
        sleepy = (await kernel.dispatch(CreateRun("sleepy", 3.0))).run_id
        began = datetime.now(UTC)
        assert (await ended(kernel, long)).output == "done"
        assert (await ended(kernel, sleepy)).output == "awake"
        await eventually(lambda: is_empty(transport, long, sleepy))
    assert story.bodies == {long: 1, sleepy: 1}
    assert story.woke_at[sleepy] - began >= timedelta(seconds=3)


@pytest.mark.guarantee("redis.surplus-deliveries-change-nothing")
async def test_a_message_that_was_copied_by_hand_is_dropped(
    open_flows: OpenFlows, transport: RedisJobTransport, redis: Any, redis_prefix: str, eventually: Eventually
) -> None:
    story = Story()
    prefix = prefix_of(redis_prefix)
    kernel = await open_flows(*story.flows())
    run_ids = [(await kernel.dispatch(CreateRun("long", 0.2))).run_id for _ in range(3)]
    async with two_hosts(open_flows, story) as watching:
        await eventually(lambda: story.bodies.total() == 3)
        version = (await watching.runs.get(run_ids[0])).definition_version  # type: ignore[union-attr]  # it is there
        queue = queue_of("long", version)
        for run_id in run_ids:
            [job] = await transport.get_jobs_by_run(run_id)
            position = await redis.hget(f"{prefix}job:{job.id}", "position")
            copies = {f"{int(position) + number:016d}{job.id}": -9 for number in range(50)}
            await redis.zadd(f"{prefix}queue:{queue}", copies)
        await redis.sadd(f"{prefix}queues", queue)
        await transport.notify("jobs")
        for run_id in run_ids:
            await ended(watching, run_id)
        await eventually(lambda: is_empty(transport, *run_ids))
        await eventually(lambda: _is_gone(redis, f"{prefix}queue:{queue}"))
    assert story.bodies == dict.fromkeys(run_ids, 1)


async def _is_gone(redis: Any, key: str) -> bool:
    return not await redis.exists(key)


async def test_copies_of_a_waiting_message_are_one_delivery(
    transport: RedisJobTransport, redis: Any, redis_prefix: str
) -> None:
    job, other = a_job(), a_job()
    await transport.enqueue_parallel([job, other])
    queue = f"{prefix_of(redis_prefix)}queue:{queue_of('orders', None)}"
    copies = {f"{number:016d}{job.id}": -9 for number in range(50, 100)}
    await redis.zadd(queue, copies)
    taken = await transport.dequeue(worker_id="w", limit=60)
    assert [one.job_id for one in taken] == [job.id, other.id]
    assert await transport.dequeue(worker_id="w", limit=60) == []
    assert await transport.depth() == 0


@pytest.mark.guarantee("redis.lost-jobs-come-again")
async def test_when_all_messages_are_dropped_the_work_is_found_from_the_database(
    open_flows: OpenFlows, transport: RedisJobTransport, redis: Any, redis_prefix: str
) -> None:
    story = Story()
    claiming = await open_flows(*story.flows())
    run_ids = [(await claiming.dispatch(CreateRun("long", 0.0))).run_id for _ in range(5)]
    await claiming.dispatch(ClaimPendingRuns("claimer", max_claims=10))
    assert await transport.depth() == 5
    keys = [key async for key in redis.scan_iter(match=f"{prefix_of(redis_prefix)}*", count=1_000)]
    await redis.delete(*keys)
    assert await transport.depth() == 0
    async with two_hosts(open_flows, story) as kernel:
        for run_id in run_ids:
            await ended(kernel, run_id)
    assert story.bodies == dict.fromkeys(run_ids, 1)
