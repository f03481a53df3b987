"""Opening a URL as `open_kernel` does, and what kinds of clients and servers there may be."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from redis import Redis as SyncRedis
from redis.asyncio import Redis

from stagewright import Kernel, StageContext, Workflow, define_stage, define_workflow, open_kernel
from stagewright.commands import CreateRun
from stagewright.errors import PortNotServedError
from stagewright.hosting import wait_for_run
from stagewright.plugins import AdapterOptions
from stagewright.ports import Enlistable, GroupsJobs, JobTransport, MayLoseJobs, OpensHeartbeats, WorkNotifier
from stagewright.records import Fairness, HeldLease
from stagewright_conformance.samples import a_job
from stagewright_host_node import NodeHost
from stagewright_test_support.servers import RedisServer
from stagewright_test_support.starting import starting
from stagewright_transport_redis import RedisJobTransport, RedisRefusedError, RedisUnavailableError
from stagewright_transport_redis.opening import _check
from stagewright_transport_redis.plugin import contents, empty, open_redis

OpenFlows = Callable[..., Awaitable[Kernel]]


@pytest.fixture(scope="module")
def another_kind() -> Iterator[dict[str, str]]:
    """Servers that are neither clusters nor sentinels, one of them with a password."""
    with starting(RedisServer.start) as start:
        servers = {"plain": start(), "locked": start(settings={"requirepass": "hunter2"})}
        yield {name: f"127.0.0.1:{server.port}" for name, server in servers.items()}


def flow() -> Workflow:
    async def body(ctx: StageContext[int]) -> int:
        return ctx.input + 1

    return define_workflow("w", input=int).pipe(define_stage("body", body, input=int, output=int)).build()


@pytest.mark.guarantee("redis.opened-by-url")
async def test_a_kernel_has_its_jobs_where_the_url_says(open_flows: OpenFlows, url: str) -> None:
    kernel = await open_flows(flow())
    transport = kernel.ports.job_transport
    assert isinstance(transport, RedisJobTransport)
    assert not kernel.ports.transport_enlists
    async with NodeHost(kernel):
        run_id = (await kernel.dispatch(CreateRun("w", 1))).run_id
        assert (await wait_for_run(kernel, run_id, timeout="10s")).output == 2
    assert len(await transport.get_jobs_by_run(run_id)) == 1
    assert await contents(url) == "1 jobs"
    await empty(url)
    assert await contents(url) is None


async def test_it_has_every_capability_but_takes_part_in_no_transaction(
    transport: RedisJobTransport, open_flows: OpenFlows
) -> None:
    for port in (JobTransport, WorkNotifier, GroupsJobs, OpensHeartbeats, MayLoseJobs, Enlistable):
        assert isinstance(transport, port)
    assert transport.enlist((await open_flows(flow())).ports.persistence) is None


async def test_fairness_is_the_transports(open_flows: OpenFlows) -> None:
    fairness = Fairness(max_concurrent_per_group=2, group_by="config.tenantId")
    kernel = await open_flows(flow(), fairness=fairness)
    assert kernel.ports.fairness == fairness


async def test_it_serves_jobs_and_nothing_else(url: str) -> None:
    with pytest.raises(PortNotServedError, match="it serves 'job_transport'"):
        async with open_kernel(flow(), "memory://", blob_store=url):
            pass


@pytest.mark.guarantee("redis.errors-are-typed")
async def test_a_server_that_is_not_there_is_told_at_once() -> None:
    with pytest.raises(RedisUnavailableError, match="redis://127.0.0.1:1 can't be used at the moment"):
        async with open_kernel(flow(), "memory://", job_transport="redis://127.0.0.1:1"):
            pass


@pytest.mark.guarantee("redis.errors-are-typed")
@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis+cluster://{plain}", "is no cluster; write its URL without '+cluster'"),
        ("redis+sentinel://{plain}/main", "is no sentinel; name the sentinels with their ports"),
        ("redis://{locked}", "wants a password, and the URL has none"),
        ("redis+cluster://{locked}", "wants a password, and the URL has none"),
        (
            "redis+sentinel://{locked}/main",
            "has sentinels that let nobody in without the right sentinel_password",
        ),
    ],
)
async def test_a_server_of_another_kind_is_refused_for_good(
    another_kind: dict[str, str], url: str, said: str
) -> None:
    address = url.format(**another_kind)
    with pytest.raises(RedisRefusedError) as refused:
        async with open_kernel(flow(), "memory://", job_transport=address):
            pass
    assert str(refused.value).startswith(f"{address} {said}")


async def test_sentinels_that_cannot_be_reached_are_told_in_a_sentence() -> None:
    async with RedisJobTransport.from_url("redis+sentinel://127.0.0.1:1/main") as transport:
        with pytest.raises(RedisUnavailableError) as unavailable:
            await transport.depth()
    assert "the sentinels can't be reached" in str(unavailable.value)
    assert "ConnectionPool" not in str(unavailable.value)


@pytest.mark.parametrize("version", ["6.0.16", "5.0.7"])
async def test_a_server_that_is_too_old_is_refused(version: str) -> None:
    with pytest.raises(RedisRefusedError, match=f"Redis {version}; Redis 6.2 or later"):
        _check({"redis_version": version}, "there")


async def test_a_server_that_may_throw_jobs_away_is_told(
    redis_server: Any, redis_prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "stagewright.transport.redis")
    server = redis_server(settings={"maxmemory-policy": "allkeys-lru", "maxmemory": "100mb"})
    async with open_redis(f"{server.url()}?namespace={redis_prefix}", AdapterOptions()):
        assert "may throw jobs away" in caplog.text


@pytest.mark.parametrize("decodes", [True, False])
async def test_a_client_of_your_own_stays_open(server_url: str, redis_prefix: str, decodes: bool) -> None:
    client = Redis.from_url(server_url, decode_responses=decodes, socket_timeout=5)
    async with RedisJobTransport.from_client(
        client,
        namespace=redis_prefix,
        connect_heartbeats=lambda: SyncRedis.from_url(server_url, socket_timeout=5),
    ) as transport:
        job = a_job(payload={"text": "ä"})
        await transport.enqueue_parallel([job])
        [taken] = await transport.dequeue(worker_id="w")
        assert taken.payload == {"text": "ä"}
        channel = transport.open_heartbeats()
        assert channel is not None
        lease = HeldLease(taken.job_id, taken.fence)
        assert await asyncio.to_thread(channel.renew_many, [lease]) == [True]
        await asyncio.to_thread(channel.close)
        assert await transport.wait_for_work(timedelta(seconds=10))
        assert transport.is_listening()
    assert await client.ping()
    await client.aclose()


async def test_without_another_client_leases_are_renewed_on_the_loop(
    server_url: str, redis_prefix: str
) -> None:
    client = Redis.from_url(server_url)
    async with RedisJobTransport.from_client(client, namespace=redis_prefix) as transport:
        assert transport.open_heartbeats() is None
    await client.aclose()


async def test_namespaces_know_nothing_of_each_other(
    server_url: str, redis_prefix: str, opened: Callable[..., RedisJobTransport]
) -> None:
    one, other = (opened(f"{server_url}?namespace={redis_prefix}{letter}") for letter in "ab")
    job = a_job()
    await one.enqueue_parallel([job])
    assert await other.dequeue(worker_id="w") == []
    assert await other.get_jobs_by_run(job.run_id) == []
    await empty(f"{server_url}?namespace={redis_prefix}b")
    assert await one.depth() == 1
