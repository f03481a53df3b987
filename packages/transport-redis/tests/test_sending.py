"""Calls that are made at the same moment: together, in order, and each for itself when something goes wrong."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

from stagewright.json_values import Json
from stagewright.records import JobQuery
from stagewright_conformance.samples import a_job
from stagewright_transport_redis import RedisJobTransport, RedisRefusedError, RedisUnavailableError

Opened = Callable[..., RedisJobTransport]
Eventually = Callable[..., Awaitable[None]]

ODD: dict[str, Json] = {
    "empty": [{}, [], "", None, False],
    "numbers": [2**70, -(10**30), 1e-300, 0.1, -0.0, 9007199254740993],
    "texts": ['\x00\x7f"\\/\r\n', "grüße 🎉", "\ud800"],
    "": {"[": "]"},
}


class _Gate:
    """Holds pipelines back until it lets them through, and tells how many calls each of them has."""

    def __init__(self) -> None:
        self.sent = list[int]()
        self._held = deque[asyncio.Event]()
        self.is_open = True

    def shut(self) -> None:
        self.sent.clear()
        self.is_open = False

    def let_one_through(self) -> None:
        self._held.popleft().set()

    def open(self) -> None:
        self.is_open = True
        while self._held:
            self.let_one_through()

    async def passes(self, calls: int) -> None:
        self.sent.append(calls)
        if not self.is_open:
            event = asyncio.Event()
            self._held.append(event)
            await event.wait()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> _Gate:
    """A gate that all pipelines pass."""
    gate, execute = _Gate(), Pipeline.execute

    async def execute_behind_gate(pipeline: Any, raise_on_error: bool = True) -> Any:
        await gate.passes(len(pipeline))
        return await execute(pipeline, raise_on_error)

    monkeypatch.setattr(Pipeline, "execute", execute_behind_gate)
    return gate


@pytest.mark.guarantee("redis.calls-go-together")
async def test_calls_of_one_moment_are_sent_at_once_and_carried_out_in_order(
    transport: RedisJobTransport, gate: _Gate
) -> None:
    jobs = [a_job() for _ in range(60)]
    await asyncio.gather(*(transport.enqueue_parallel([job]) for job in jobs))
    assert gate.sent == [60]
    taken = await transport.dequeue(worker_id="w", limit=60)
    assert [job.job_id for job in taken] == [job.id for job in jobs]


@pytest.mark.guarantee("redis.calls-go-together")
async def test_however_many_calls_wait_a_pipeline_is_bounded_and_all_are_answered(
    transport: RedisJobTransport, gate: _Gate
) -> None:
    await asyncio.gather(*(transport.enqueue_parallel([a_job()]) for _ in range(250)))
    assert gate.sent == [100, 100, 50]
    assert await transport.depth() == 250


@pytest.mark.guarantee("redis.calls-go-together")
async def test_a_call_waits_for_others_only_while_two_pipelines_are_under_way(
    transport: RedisJobTransport, gate: _Gate, eventually: Eventually
) -> None:
    await transport.depth()
    gate.shut()
    calls = list[asyncio.Task[Any]]()
    for number in (1, 2):
        calls.append(asyncio.create_task(transport.enqueue_parallel([a_job()])))
        await eventually(lambda number=number: len(gate.sent) == number)
    calls += [asyncio.create_task(transport.enqueue_parallel([a_job()])) for _ in range(5)]
    for _ in range(20):
        await asyncio.sleep(0)
    assert gate.sent == [1, 1]
    gate.let_one_through()
    await eventually(lambda: gate.sent == [1, 1, 5])
    gate.open()
    await asyncio.gather(*calls)
    # One by one nothing waits, so nothing is put together.
    for _ in range(3):
        await transport.depth()
    assert gate.sent == [1, 1, 5, 1, 1, 1]


@pytest.mark.guarantee("redis.calls-fail-alone")
async def test_an_error_reaches_the_caller_of_its_call_alone(
    transport: RedisJobTransport, redis: Any, redis_prefix: str, gate: _Gate
) -> None:
    jobs = [a_job() for _ in range(9)]
    # What no script of the transport has put there.
    await redis.set(f"{{{redis_prefix}}}:run:{jobs[4].run_id}", "not a hash")
    answers = await asyncio.gather(
        *(transport.enqueue_parallel([job]) for job in jobs), return_exceptions=True
    )
    assert gate.sent[0] == 9
    assert isinstance(answers.pop(4), RedisRefusedError)
    assert answers == [[job.id] for job in jobs if job is not jobs[4]]


@pytest.mark.guarantee("redis.calls-fail-alone")
async def test_a_caller_that_is_cancelled_takes_no_other_call_along(
    transport: RedisJobTransport, gate: _Gate, eventually: Eventually
) -> None:
    await transport.depth()
    gate.shut()
    jobs = [a_job() for _ in range(6)]
    under_way = [asyncio.create_task(transport.enqueue_parallel([job])) for job in jobs[:3]]
    await eventually(lambda: gate.sent == [3])
    filler = asyncio.create_task(transport.depth())
    await eventually(lambda: gate.sent == [3, 1])
    waiting = [asyncio.create_task(transport.enqueue_parallel([job])) for job in jobs[3:]]
    await asyncio.sleep(0)
    under_way[1].cancel()
    waiting[1].cancel()
    await asyncio.sleep(0)
    gate.open()
    answers = await asyncio.gather(*under_way, *waiting, return_exceptions=True)
    await filler
    assert [isinstance(answer, asyncio.CancelledError) for answer in answers] == [0, 1, 0, 0, 1, 0]
    # What was not sent yet isn't sent any more.
    assert gate.sent == [3, 1, 2]
    listed = {job.id for job in (await transport.list_jobs(JobQuery(), limit=9)).items}
    assert listed == {job.id for job in jobs} - {jobs[4].id}


@pytest.mark.guarantee("redis.scripts-are-sent-again")
async def test_calls_that_go_together_bring_back_scripts_that_the_server_has_forgotten(
    redis_server: Any, redis_prefix: str, opened: Opened
) -> None:
    server = redis_server()
    transport = opened(f"{server.url()}?namespace={redis_prefix}")
    first, jobs = a_job(), [a_job() for _ in range(20)]
    await transport.enqueue_parallel([first])
    assert await transport.depth() == 1
    async with Redis.from_url(server.url()) as client:
        await client.script_flush()
        await client.config_resetstat()
        *_, depth = await asyncio.gather(
            *(transport.enqueue_parallel([job]) for job in jobs), transport.depth()
        )
        sent = await client.info("commandstats")
    assert depth == 21
    # Each text once, however many calls need it.
    assert sent["cmdstat_eval"]["calls"] == 2
    taken = await transport.dequeue(worker_id="w", limit=21)
    assert [job.job_id for job in taken] == [job.id for job in (first, *jobs)]


@pytest.mark.guarantee("redis.calls-fail-alone")
async def test_a_connection_that_is_lost_is_told_to_every_caller(
    redis_server: Any, redis_prefix: str, opened: Opened
) -> None:
    server = redis_server()
    transport = opened(f"{server.url()}?namespace={redis_prefix}")
    await transport.depth()
    await asyncio.to_thread(server.kill)
    errors = await asyncio.gather(*(transport.depth() for _ in range(20)), return_exceptions=True)
    assert {type(error) for error in errors} == {RedisUnavailableError}
    assert len({id(error) for error in errors}) == 20
    await asyncio.to_thread(server.restart)
    assert await asyncio.gather(*(transport.depth() for _ in range(20))) == [0] * 20


async def test_a_client_that_has_no_pipelines_of_redis_py_gets_its_calls_one_by_one(
    server_url: str, redis_prefix: str, redis: Any
) -> None:
    class Plain:
        eval, evalsha = redis.eval, redis.evalsha

    await redis.script_flush()
    async with RedisJobTransport.from_client(Plain(), namespace=redis_prefix) as transport:
        jobs = [a_job() for _ in range(5)]
        await asyncio.gather(*(transport.enqueue_parallel([job]) for job in jobs))
        taken = await transport.dequeue(worker_id="w", limit=9)
        assert {job.job_id for job in taken} == {job.id for job in jobs}


async def test_a_claim_brings_every_value_as_it_was_enqueued(transport: RedisJobTransport) -> None:
    odd = a_job(payload=ODD, priority=-3, definition_version="")
    plain = a_job(payload={}, workflow_id=']"\\,\x00')
    await transport.enqueue_parallel([odd, plain])
    second, first = await transport.dequeue(worker_id="w", limit=2)
    assert (first.payload, first.definition_version, first.priority) == (ODD, "", -3)
    assert (second.payload, second.workflow_id) == ({}, plain.workflow_id)
    assert second.definition_version == plain.definition_version
    [kept] = await transport.get_jobs_by_run(odd.run_id)
    assert (kept.payload, kept.started_at) == (ODD, first.fence.started_at)


async def test_claims_go_on_where_what_is_read_ahead_ends(transport: RedisJobTransport) -> None:
    jobs = [a_job(workflow_id=f"w{number % 3}", priority=number % 5) for number in range(240)]
    await transport.enqueue_parallel(jobs)
    wanted = [job.id for job in sorted(jobs, key=lambda job: -job.priority)]
    taken = list[str]()
    for limit in (1, 51, 100, 3, 85, 9):
        taken += [job.job_id for job in await transport.dequeue(worker_id="w", limit=limit)]
    assert taken == wanted
    assert await transport.depth() == 0
