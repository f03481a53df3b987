"""A call does little, however much waits: what isn't served, isn't due or has no place isn't looked at again."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from stagewright.records import Fairness, JobQuery, ServedDefinition
from stagewright_conformance.samples import a_job
from stagewright_transport_redis import RedisJobTransport

Opened = Callable[..., RedisJobTransport]

MANY = 3_000
FAIR = Fairness(max_concurrent_per_group=2)


@pytest.fixture
def url(redis_server: Any, redis_prefix: str) -> str:
    return f"{redis_server().url()}?namespace={redis_prefix}"


@pytest_asyncio.fixture
async def redis(url: str) -> AsyncIterator[Any]:
    client = Redis.from_url(url.partition("?")[0], decode_responses=True)
    yield client
    await client.aclose()


async def calls(redis: Any) -> int:
    """How many commands the server has carried out, those of scripts included."""
    return sum(int(one["calls"]) for one in (await redis.info("commandstats")).values())


async def enqueue(transport: RedisJobTransport, count: int, **fields: Any) -> None:
    for _ in range(count // 500):
        await transport.enqueue_parallel([a_job(**fields) for _ in range(500)])


@pytest.mark.guarantee("redis.work-per-call-is-bounded")
async def test_jobs_that_are_not_served_or_not_due_are_not_looked_at(
    transport: RedisJobTransport, redis: Any
) -> None:
    await enqueue(transport, MANY, workflow_id="mail", priority=9)
    await enqueue(transport, MANY, due_at=datetime.now(UTC) + timedelta(days=1))
    mine = a_job(definition_version="v1")
    await transport.enqueue_parallel([mine])
    await transport.dequeue(worker_id="w", serves=[ServedDefinition("other", "v1")])
    before = await calls(redis)
    taken = await transport.dequeue(worker_id="w", serves=[ServedDefinition("orders", "v1")])
    assert [job.job_id for job in taken] == [mine.id]
    assert await calls(redis) - before < 50
    before = await calls(redis)
    assert await transport.depth() == MANY
    assert await calls(redis) - before < 10


@pytest.mark.guarantee("redis.work-per-call-is-bounded")
async def test_a_group_that_has_no_place_is_passed_over_once(url: str, opened: Opened, redis: Any) -> None:
    fair = opened(url, fairness=FAIR)
    await enqueue(fair, MANY, priority=9)
    quiet = [replace(a_job(), group_key=f"quiet {number}") for number in range(3)]
    await fair.enqueue_parallel(quiet)
    taken = await fair.dequeue(worker_id="w", limit=3)
    assert [job.job_id for job in taken][2:] == [quiet[0].id]
    before = await calls(redis)
    assert [job.job_id for job in await fair.dequeue(worker_id="w")] == [quiet[1].id]
    await fair.complete(taken[0].job_id, taken[0].fence)
    assert [job.priority for job in await fair.dequeue(worker_id="w")] == [9]
    assert await calls(redis) - before < 150
    assert await fair.depth() == MANY - 3 + 1


async def test_what_fairness_has_put_aside_is_there_without_it(
    url: str, opened: Opened, transport: RedisJobTransport
) -> None:
    fair = opened(url, fairness=FAIR)
    await enqueue(fair, 1_000)
    assert len(await fair.dequeue(worker_id="w", limit=5)) == 2
    positions = [job.job_id for job in await transport.dequeue(worker_id="w", limit=998)]
    listed = (await transport.list_jobs(JobQuery(), limit=2_000)).items
    assert positions == [job.id for job in reversed(listed)][2:]
    assert await transport.depth() == 0


async def test_many_jobs_that_are_due_at_once_come_in_order(transport: RedisJobTransport) -> None:
    due_at = datetime.now(UTC) + timedelta(milliseconds=300)
    jobs = [a_job(priority=number % 7, due_at=due_at) for number in range(1_200)]
    await transport.enqueue_parallel(jobs)
    taken = list[str]()
    while len(taken) < len(jobs):
        taken += [job.job_id for job in await transport.dequeue(worker_id="w", limit=100)]
    wanted = sorted(jobs, key=lambda job: -job.priority)
    assert taken == [job.id for job in wanted]


@pytest.mark.guarantee("redis.ended-jobs-are-forgotten")
async def test_jobs_that_ended_long_ago_are_forgotten(url: str, opened: Opened, redis: Any) -> None:
    hasty = opened(url)
    hasty._namespace.keep_ended = timedelta(0)
    kept = a_job()
    jobs = [a_job() for _ in range(250)]
    await hasty.enqueue_parallel([kept, *jobs])
    for taken in await hasty.dequeue(worker_id="w", limit=251):
        if taken.job_id == kept.id:
            await hasty.suspend(taken.job_id, datetime(2999, 1, 1, tzinfo=UTC), taken.fence)
        elif taken.job_id in {job.id for job in jobs[:100]}:
            await hasty.fail(taken.job_id, "no", retry=False, fence=taken.fence)
        else:
            await hasty.complete(taken.job_id, taken.fence)
    await hasty.release_stale(timedelta(days=1))
    assert [job.id for job in (await hasty.list_jobs(JobQuery(), limit=9)).items] == [kept.id]
    keys = {key.split(":", 1)[1] async for key in redis.scan_iter()}
    claims = {key for key in keys if key.startswith("claim:")}
    assert keys - claims == {"all", f"job:{kept.id}", f"run:{kept.run_id}", "position", "ready"}
