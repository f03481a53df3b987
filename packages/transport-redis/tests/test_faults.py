"""Lost answers, servers that forget scripts or are gone, and users who may not: typed errors, and nothing twice."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from redis.exceptions import ConnectionError as VendorConnectionError
from redis.exceptions import RedisError

from stagewright.errors import TransientError
from stagewright.records import Fairness, Fence, HeldLease
from stagewright.status import Status
from stagewright_conformance.samples import a_job
from stagewright_test_support.servers.redis_client import ask_redis
from stagewright_test_support.tcp_proxy import open_proxy
from stagewright_transport_redis import RedisJobTransport, RedisUnavailableError
from stagewright_transport_redis.sending import CallSender, Script

# Redis tells errors of scripts in another way up to 6.2.
each_way_of_telling = pytest.mark.parametrize("kind", ["valkey", "oldest-redis"])

Opened = Callable[..., RedisJobTransport]
Eventually = Callable[..., Awaitable[None]]


class _Forgetting:
    """A sender whose connection is lost after the server has done what it was asked for, once."""

    def __init__(self, calls: CallSender) -> None:
        self._calls = calls
        self.losses = 1

    async def send(self, script: Script, values: Sequence[bytes | str]) -> Any:
        return await self._lose(await self._calls.send(script, values))

    async def _lose(self, answer: Any) -> Any:
        if self.losses:
            self.losses -= 1
            raise VendorConnectionError("Connection closed by server.")
        return answer


def lose_next_answer(transport: RedisJobTransport, monkeypatch: pytest.MonkeyPatch) -> _Forgetting:
    forgetting = _Forgetting(transport._scripts._calls)
    monkeypatch.setattr(transport._scripts, "_calls", forgetting)
    return forgetting


@pytest.mark.guarantee("redis.lost-answers-change-nothing")
async def test_a_claim_whose_answer_was_lost_is_answered_again(
    transport: RedisJobTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [a_job() for _ in range(5)]
    await transport.enqueue_parallel(jobs)
    lose_next_answer(transport, monkeypatch)
    taken = await transport.dequeue(worker_id="w", limit=3)
    assert [job.job_id for job in taken] == [job.id for job in jobs[:3]]
    assert {job.fence.deliveries for job in taken} == {1}
    assert await transport.depth() == 2


@pytest.mark.guarantee("redis.lost-answers-change-nothing")
@pytest.mark.parametrize("since", ["delivered", "failed", "deleted"])
async def test_a_claim_whose_answer_was_lost_is_not_answered_with_what_it_lost_since(
    transport: RedisJobTransport, url: str, opened: Opened, monkeypatch: pytest.MonkeyPatch, since: str
) -> None:
    rival = opened(url)
    kept, lost = a_job(), a_job()
    await transport.enqueue_parallel([kept, lost])
    calls = lose_next_answer(transport, monkeypatch)
    delivered = list[str]()

    async def lose(answer: Any) -> Any:
        if calls.losses:
            calls.losses -= 1
            if since == "deleted":
                await rival.delete_by_run_and_stages(lost.run_id, [lost.stage_id])
            else:
                await rival.fail(lost.id, "no", retry=since == "delivered")
                delivered.extend(job.job_id for job in await rival.dequeue(worker_id="rival"))
            raise VendorConnectionError("Connection closed by server.")
        return answer

    monkeypatch.setattr(calls, "_lose", lose)
    taken = await transport.dequeue(worker_id="w", limit=2)
    assert [job.job_id for job in taken] == [kept.id]
    assert delivered == ([lost.id] if since == "delivered" else [])


async def test_what_a_claim_has_taken_before_the_server_fails_is_delivered(
    url: str, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = opened(url, fairness=Fairness(max_concurrent_per_group=1))
    crowd = [a_job() for _ in range(600)]
    await transport.enqueue_parallel(crowd)
    calls = transport._scripts._calls
    answers = 1

    class Failing:
        async def send(self, script: Script, values: Sequence[bytes | str]) -> Any:
            nonlocal answers
            answers -= 1
            if answers < 0:
                raise VendorConnectionError("Connection closed by server.")
            return await calls.send(script, values)

    monkeypatch.setattr(transport._scripts, "_calls", Failing())
    taken = await transport.dequeue(worker_id="w", limit=2)
    assert [job.job_id for job in taken] == [crowd[0].id]
    with pytest.raises(RedisUnavailableError):
        await transport.dequeue(worker_id="w", limit=2)


@pytest.mark.guarantee("redis.lost-answers-change-nothing")
@pytest.mark.parametrize("how", ["complete", "fail", "retry", "defer", "suspend"])
async def test_an_acknowledgement_whose_answer_was_lost_counts_once(
    transport: RedisJobTransport, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    job = a_job()
    await transport.enqueue_parallel([job])
    [taken] = await transport.dequeue(worker_id="w")
    lose_next_answer(transport, monkeypatch)
    later = taken.fence.started_at + timedelta(days=1)
    match how:
        case "complete":
            answer = await transport.complete(job.id, taken.fence)
        case "defer":
            answer = await transport.defer(job.id, later, "busy", taken.fence)
        case "suspend":
            answer = await transport.suspend(job.id, later, taken.fence)
        case _:
            answer = await transport.fail(job.id, "no", retry=how == "retry", fence=taken.fence)
    assert answer == "acknowledged"
    [kept] = await transport.get_jobs_by_run(job.run_id)
    assert (kept.failures, kept.interruptions) == (int(how in ("fail", "retry")), int(how == "defer"))


@pytest.mark.guarantee("redis.lost-answers-change-nothing")
async def test_enqueueing_whose_answer_was_lost_replaces_nothing_that_was_delivered_since(
    transport: RedisJobTransport, url: str, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    rival = opened(url)
    job = a_job()
    calls = lose_next_answer(transport, monkeypatch)

    async def lose(answer: Any) -> Any:
        if calls.losses:
            calls.losses -= 1
            await rival.dequeue(worker_id="rival")
            raise VendorConnectionError("Connection closed by server.")
        return answer

    monkeypatch.setattr(calls, "_lose", lose)
    assert await transport.enqueue_parallel([job]) == [job.id]
    [kept] = await transport.get_jobs_by_run(job.run_id)
    assert (kept.status, kept.worker_id, kept.deliveries) == (Status.RUNNING, "rival", 1)


@pytest.mark.guarantee("redis.scripts-are-sent-again")
async def test_scripts_that_the_server_has_forgotten_are_sent_again(
    redis_server: Any, redis_prefix: str, opened: Opened
) -> None:
    server = redis_server()
    transport = opened(f"{server.url()}?namespace={redis_prefix}")
    channel = transport.open_heartbeats()
    assert channel is not None
    for _ in range(2):
        job = a_job()
        await transport.enqueue_parallel([job])
        [taken] = await transport.dequeue(worker_id="w")
        lease = HeldLease(taken.job_id, taken.fence)
        assert await asyncio.to_thread(channel.renew_many, [lease]) == [True]
        assert await transport.complete(job.id, taken.fence) == "acknowledged"
        await transport._namespace.client.script_flush()
    await asyncio.to_thread(channel.close)


async def test_a_server_that_was_restarted_is_found_again(
    redis_server: Any, redis_prefix: str, opened: Opened
) -> None:
    server = redis_server(durable=True)
    transport = opened(f"{server.url()}?namespace={redis_prefix}")
    job = a_job()
    await transport.enqueue_parallel([job])
    [taken] = await transport.dequeue(worker_id="w")
    channel = transport.open_heartbeats()
    assert channel is not None
    lease = HeldLease(taken.job_id, taken.fence)
    assert await asyncio.to_thread(channel.renew_many, [lease]) == [True]
    server.kill()
    with pytest.raises(TransientError) as refused:
        await asyncio.to_thread(channel.renew_many, [lease])
    assert isinstance(refused.value.__cause__, RedisError)
    await asyncio.to_thread(server.restart)
    assert await asyncio.to_thread(channel.renew_many, [lease]) == [True]
    assert await transport.complete(job.id, taken.fence) == "acknowledged"
    await asyncio.to_thread(channel.close)


@pytest.mark.guarantee("redis.errors-are-typed")
async def test_a_server_that_is_gone_is_an_error_of_its_own(opened: Opened) -> None:
    transport = opened("redis://someone:hunter2@127.0.0.1:1?namespace=n")
    with pytest.raises(RedisUnavailableError, match="127.0.0.1:1 can't be used at the moment") as refused:
        await transport.depth()
    assert isinstance(refused.value, TransientError)
    assert isinstance(refused.value.__cause__, RedisError)
    assert "hunter2" not in f"{refused.value!r} {refused.value} {refused.value.__cause__!r} {transport!r}"
    channel = transport.open_heartbeats()
    assert channel is not None
    fence = Fence(started_at=datetime.now(UTC), deliveries=1)
    with pytest.raises(RedisUnavailableError):
        await asyncio.to_thread(channel.renew_many, [HeldLease("j", fence)])


@pytest.mark.guarantee("redis.failovers-are-followed")
@each_way_of_telling
async def test_a_master_that_has_become_a_replica_is_left_for_its_successor(
    kind: str, redis_server: Any, redis_prefix: str, opened: Opened, eventually: Eventually
) -> None:
    first, second = (redis_server(kind, settings={"repl-diskless-sync-delay": "0"}) for _ in range(2))
    async with open_proxy("127.0.0.1", first.port) as proxy:
        transport = opened(f"redis://127.0.0.1:{proxy.port}?namespace={redis_prefix}")
        channel = transport.open_heartbeats()
        assert channel is not None
        await transport.enqueue_parallel([a_job()])
        [lost] = await transport.dequeue(worker_id="w")
        assert await asyncio.to_thread(channel.renew_many, [HeldLease(lost.job_id, lost.fence)]) == [True]
        # The connections stay open, to a server that writes nothing any more.
        proxy.lead_to(second.port)
        await asyncio.to_thread(ask_redis, first.port, "REPLICAOF", "127.0.0.1", second.port)
        await transport.enqueue_parallel([job := a_job()])
        [taken] = await transport.dequeue(worker_id="w")
        assert taken.job_id == job.id
        copied = ("EXISTS", f"{{{redis_prefix}}}:job:{job.id}")
        await eventually(lambda: asyncio.to_thread(ask_redis, first.port, *copied))
        assert await asyncio.to_thread(channel.renew_many, [HeldLease(taken.job_id, taken.fence)]) == [True]
        await asyncio.to_thread(channel.close)


@pytest.mark.guarantee("redis.errors-are-typed")
@each_way_of_telling
async def test_a_server_without_the_replicas_that_it_wants_is_of_no_use_for_now(
    kind: str, redis_server: Any, redis_prefix: str, opened: Opened
) -> None:
    server = redis_server(kind, settings={"min-replicas-to-write": "1"})
    transport = opened(f"{server.url()}?namespace={redis_prefix}")
    with pytest.raises(RedisUnavailableError, match="NOREPLICAS"):
        await transport.enqueue_parallel([a_job()])


@pytest.mark.guarantee("redis.errors-are-typed")
@each_way_of_telling
async def test_a_server_that_is_full_says_so_and_takes_jobs_again(
    kind: str, redis_server: Any, redis_prefix: str, opened: Opened
) -> None:
    server = redis_server(kind)
    transport = opened(f"{server.url()}?namespace={redis_prefix}")
    await transport.enqueue_parallel([a_job(), a_job()])
    client = transport._namespace.client
    await client.config_set("maxmemory", "1mb")
    with pytest.raises(RedisUnavailableError, match="OOM|used memory"):
        for _ in range(100):
            await transport.enqueue_parallel([a_job(payload={"filler": "x" * 50_000})])
    # What is there can be done, though.
    first, second = await transport.dequeue(worker_id="w", limit=2)
    assert await transport.complete(first.job_id, first.fence) == "acknowledged"
    assert await transport.fail(second.job_id, "no", retry=True, fence=second.fence) == "acknowledged"
    await client.config_set("maxmemory", "0")
    assert await transport.enqueue_parallel([job := a_job()]) == [job.id]


@pytest.mark.guarantee("redis.cancelled-claims-are-handed-back")
async def test_what_a_cancelled_claim_has_taken_is_handed_back(
    transport: RedisJobTransport, url: str, opened: Opened
) -> None:
    jobs = [a_job() for _ in range(3)]
    await transport.enqueue_parallel(jobs)
    claiming = asyncio.create_task(transport.dequeue(worker_id="w", limit=3))
    await asyncio.sleep(0)
    claiming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claiming
    await transport.close()
    other = opened(url)
    taken = await other.dequeue(worker_id="other", limit=3)
    assert [job.job_id for job in taken] == [job.id for job in jobs]
    assert {(job.failures, job.worker_losses) for job in taken} == {(0, 0)}


async def test_answers_that_never_come_are_waited_for_so_long(
    server_url: str, redis_prefix: str, opened: Opened
) -> None:
    place = urlsplit(server_url)
    assert place.hostname is not None
    assert place.port is not None
    async with open_proxy(place.hostname, place.port) as proxy:
        options = f"namespace={redis_prefix}&socket_timeout=300ms"
        transport = opened(f"redis://127.0.0.1:{proxy.port}{place.path}?{options}")
        # More than go together, so by two connections, none of which leads anywhere any more.
        await asyncio.gather(*(transport.enqueue_parallel([a_job()]) for _ in range(150)))
        assert proxy.swallow(b"EVAL") == 2
        assert await transport.depth() == 150
        await transport.close()
