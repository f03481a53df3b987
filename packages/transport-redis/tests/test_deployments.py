"""Servers as they are deployed: with users, by TLS, by a socket, watched by sentinels, and in a cluster."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from stagewright.errors import TransientError
from stagewright.records import HeldLease
from stagewright.status import Status
from stagewright_conformance.samples import a_job
from stagewright_transport_redis import RedisJobTransport, RedisRefusedError
from stagewright_transport_redis.plugin import contents, empty

Opened = Callable[..., RedisJobTransport]
Eventually = Callable[..., Awaitable[None]]

SECRET = "hunter2"

each_kind = pytest.mark.parametrize("kind", ["valkey", pytest.param("oldest-redis", marks=pytest.mark.wide)])


async def works(transport: RedisJobTransport, other: RedisJobTransport) -> None:
    """Do with a transport what hosts do."""
    await transport.wait_for_work(timedelta(seconds=10))
    while await transport.wait_for_work(timedelta(milliseconds=200)):
        pass
    assert transport.is_listening()
    waiting = asyncio.create_task(transport.wait_for_work(timedelta(seconds=10)))
    await asyncio.sleep(0)
    job = a_job()
    await other.enqueue_parallel([job])
    assert await waiting
    [taken] = await transport.dequeue(worker_id="w")
    assert taken.job_id == job.id
    channel = transport.open_heartbeats()
    assert channel is not None
    lease = HeldLease(taken.job_id, taken.fence)
    assert await asyncio.to_thread(channel.renew_many, [lease]) == [True]
    await asyncio.to_thread(channel.close)
    assert await transport.complete(taken.job_id, taken.fence) == "acknowledged"
    [kept] = await other.get_jobs_by_run(job.run_id)
    assert kept.status is Status.COMPLETED
    await transport.possible_losses()


@pytest.mark.guarantee("redis.users-need-the-namespace-only")
@pytest.mark.parametrize("kind", ["valkey", "oldest-redis"])
async def test_a_user_needs_the_keys_and_the_channel_of_the_namespace(
    kind: str, redis_server: Any, redis_prefix: str, opened: Opened
) -> None:
    # What the page on Redis says.
    keys = f"~{{{redis_prefix}}}:* resetchannels &{{{redis_prefix}}}:*"
    commands = "-@all +@read +@write +@scripting +@pubsub +@connection +time +info"
    server = redis_server(kind, users={"worker": f">{SECRET} {keys} {commands}"})
    url = f"{server.url(user='worker', password=SECRET)}?namespace={redis_prefix}"
    await works(opened(url), opened(url))
    with pytest.raises(RedisRefusedError, match="refuse") as refused:
        await opened(url.replace(redis_prefix, "another")).enqueue_parallel([a_job()])
    assert SECRET not in f"{refused.value!r} {refused.value}"


@pytest.mark.guarantee("redis.errors-are-typed")
async def test_a_wrong_password_is_refused_and_not_shown(
    redis_server: Any, redis_prefix: str, opened: Opened
) -> None:
    server = redis_server(users={"worker": ">right ~* &* +@all"})
    transport = opened(f"{server.url(user='worker', password=SECRET)}?namespace={redis_prefix}")
    with pytest.raises(RedisRefusedError, match="refuses this user") as refused:
        await transport.depth()
    assert SECRET not in f"{refused.value!r} {refused.value} {refused.value.__cause__!r}"


async def test_by_tls(
    redis_server: Any, loopback_certificate: Any, redis_prefix: str, opened: Opened
) -> None:
    server = redis_server("system-redis", tls=loopback_certificate)
    url = f"{server.url()}?namespace={redis_prefix}&ssl_ca_certs={loopback_certificate.authority_file}"
    await works(opened(url), opened(url))
    with pytest.raises(TransientError, match="certificate"):
        await opened(f"{server.url()}?namespace={redis_prefix}").depth()


@pytest.fixture
def socket_path() -> Iterator[str]:
    """Where a server makes a socket; a test's own folder may have too long a name, and be closed to the server."""
    with TemporaryDirectory(prefix="sw") as folder:
        Path(folder).chmod(0o777)
        yield f"{folder}/r"


async def test_by_a_socket(redis_server: Any, socket_path: str, redis_prefix: str, opened: Opened) -> None:
    redis_server(settings={"unixsocket": socket_path, "unixsocketperm": "777"})
    url = f"unix://{socket_path}?db=3&namespace={redis_prefix}"
    await works(opened(url), opened(url))
    assert await contents(url) == "1 jobs"


@pytest.mark.guarantee("redis.failovers-are-followed")
@pytest.mark.slow
@each_kind
async def test_watched_by_sentinels_the_next_master_is_found(
    kind: str, redis_sentinel: Any, redis_prefix: str, opened: Opened, eventually: Eventually
) -> None:
    sentinel = redis_sentinel(kind)
    url = f"redis+sentinel://127.0.0.1:{sentinel.port}/{sentinel.name}?namespace={redis_prefix}"
    one, other = opened(url), opened(url)
    await works(one, other)
    losses = await one.possible_losses()
    assert losses is not None
    await one.losses_replaced(losses)
    await asyncio.to_thread(sentinel.primary().kill)

    async def is_followed() -> bool:
        try:
            await one.enqueue_parallel([a_job()])
        except TransientError:
            return False
        return True

    await eventually(is_followed, within=30)
    # The replica may not have had all.
    assert await one.possible_losses() is not None
    await eventually(one.is_listening, within=30)
    for taken in await one.dequeue(worker_id="w", limit=10):
        await one.complete(taken.job_id, taken.fence)
    await works(one, other)


@pytest.mark.guarantee("redis.clusters-hold-a-namespace-in-one-slot")
@pytest.mark.slow
@each_kind
async def test_in_a_cluster(kind: str, redis_cluster: Any, redis_prefix: str, opened: Opened) -> None:
    cluster = redis_cluster(kind)
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in cluster.servers)
    for number in range(4):
        url = f"redis+cluster://{hosts}?namespace={redis_prefix}{number}"
        one = opened(url)
        await works(one, opened(url))
        slots = {
            one._namespace.client.keyslot(key)
            async for key in one._namespace.client.scan_iter(match=f"*{redis_prefix}{number}*")
        }
        assert len(slots) == 1
        # At the same moment, and each by itself.
        jobs = [a_job() for _ in range(20)]
        await asyncio.gather(*(one.enqueue_parallel([job]) for job in jobs))
        taken = await one.dequeue(worker_id="w", limit=30)
        assert {job.job_id for job in taken} == {job.id for job in jobs}
        assert await contents(url) == "21 jobs"
        await empty(url)
        assert await contents(url) is None
