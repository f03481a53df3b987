import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta

import pytest

from stagewright.errors import DeadlockError, DuplicateRecordError, StaleVersionError
from stagewright.memory import InMemoryDatabase, InMemoryJobTransport, InMemoryPersistence
from stagewright.memory.locks import LockHolder, LockTable, Mutex
from stagewright.records import KeyAcquired, KeyCompleted, NewEvent, NewJob, RunPatch, RunRecord, StoredStage


class ExpectedError(Exception):
    pass


async def settle() -> None:
    for _turn in range(20):
        await asyncio.sleep(0)


@pytest.fixture
async def two_runs(store: InMemoryPersistence, new_run: Callable[..., RunRecord]) -> InMemoryPersistence:
    await store.create_run(new_run("r1"))
    await store.create_run(new_run("r2"))
    return store


async def test_a_writer_waits_for_the_lock_and_checks_its_guard_on_the_row_as_it_is_then(
    two_runs: InMemoryPersistence, start: datetime
) -> None:
    async def guarded() -> None:
        await two_runs.update_run("r1", RunPatch(updated_at=start, total_tokens=5), expected_version=1)

    async with two_runs.transaction() as tx:
        await tx.update_run("r1", RunPatch(updated_at=start, total_tokens=1))
        writer = asyncio.create_task(guarded())
        await settle()
        assert not writer.done()
    with pytest.raises(StaleVersionError) as caught:
        await writer
    assert caught.value.actual == 2


async def test_a_writer_goes_on_after_a_rollback_of_whom_it_waited_for(
    two_runs: InMemoryPersistence, start: datetime
) -> None:
    async def guarded() -> None:
        await two_runs.update_run("r1", RunPatch(updated_at=start), expected_version=1)

    writers: list[asyncio.Task[None]] = []
    async with two_runs.transaction() as tx:
        with suppress(ExpectedError):
            async with tx.transaction() as savepoint:
                await savepoint.update_run("r1", RunPatch(updated_at=start))
                writers.append(asyncio.create_task(guarded()))
                await settle()
                assert not writers[0].done()
                raise ExpectedError
        await writers[0]
    run = await two_runs.get_run("r1")
    assert run is not None
    assert run.version == 2


async def test_no_increment_is_lost_among_writers_that_lock_first(
    two_runs: InMemoryPersistence, start: datetime
) -> None:
    async def increment() -> None:
        async with two_runs.transaction() as tx:
            [run] = await tx.lock_runs(["r1"])
            await tx.update_run("r1", RunPatch(updated_at=start, total_tokens=run.total_tokens + 1))

    await asyncio.gather(*(increment() for _ in range(50)))
    run = await two_runs.get_run("r1")
    assert run is not None
    assert (run.total_tokens, run.version) == (50, 51)


async def test_runs_are_locked_by_id_whatever_order_is_given(two_runs: InMemoryPersistence) -> None:
    async def lock(*ids: str) -> list[str]:
        async with two_runs.transaction() as tx:
            locked = await tx.lock_runs(ids)
            await settle()
            return [run.id for run in locked]

    orders = [lock("r1", "r2", "none"), lock("r2", "r1"), lock("r2", "r1", "r2")]
    assert await asyncio.gather(*orders) == [["r1", "r2"]] * 3


async def test_whoever_closes_a_cycle_of_waits_gets_the_error_and_the_other_goes_on(
    database: InMemoryDatabase, two_runs: InMemoryPersistence
) -> None:
    async def lock(first: str, second: str) -> str:
        async with two_runs.transaction() as tx:
            await tx.lock_runs([first])
            await settle()
            await tx.lock_runs([second])
        return first

    done = await asyncio.gather(lock("r1", "r2"), lock("r2", "r1"), return_exceptions=True)
    assert done[0] == "r1"
    assert isinstance(done[1], DeadlockError)
    assert database.locks.is_idle


async def test_a_cycle_over_three_transactions_is_found(
    database: InMemoryDatabase, store: InMemoryPersistence, new_run: Callable[..., RunRecord]
) -> None:
    ids = ["r1", "r2", "r3"]
    for id in ids:
        await store.create_run(new_run(id))

    async def lock(first: str, second: str) -> None:
        async with store.transaction() as tx:
            await tx.lock_runs([first])
            await settle()
            await tx.lock_runs([second])

    pairs = zip(ids, [*ids[1:], ids[0]], strict=True)
    done = await asyncio.gather(*(lock(*pair) for pair in pairs), return_exceptions=True)
    assert [type(error) for error in done if error is not None] == [DeadlockError]
    assert database.locks.is_idle


async def test_a_task_that_waits_for_its_own_other_transaction_is_told_so(
    two_runs: InMemoryPersistence, start: datetime
) -> None:
    async def write_beside_its_transaction() -> None:
        async with two_runs.transaction() as tx:
            await tx.lock_runs(["r1"])
            await two_runs.update_run("r1", RunPatch(updated_at=start))

    with pytest.raises(DeadlockError):
        await write_beside_its_transaction()


async def test_a_cycle_is_found_whichever_task_makes_the_calls_of_a_transaction(
    database: InMemoryDatabase, two_runs: InMemoryPersistence
) -> None:
    async def lock(first: str, second: str) -> None:
        async with two_runs.transaction() as tx:
            await asyncio.create_task(tx.lock_runs([first]))
            await settle()
            await asyncio.create_task(tx.lock_runs([second]))

    async with asyncio.timeout(5):
        done = await asyncio.gather(lock("r1", "r2"), lock("r2", "r1"), return_exceptions=True)
    assert [type(error) for error in done if error is not None] == [DeadlockError]
    assert database.locks.is_idle


async def test_a_cancelled_waiter_leaves_nothing_behind(
    database: InMemoryDatabase, two_runs: InMemoryPersistence, start: datetime
) -> None:
    async with two_runs.transaction() as tx:
        await tx.lock_runs(["r1"])
        cancelled = asyncio.create_task(two_runs.update_run("r1", RunPatch(updated_at=start)))
        patient = asyncio.create_task(two_runs.update_run("r1", RunPatch(updated_at=start)))
        await settle()
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert not patient.done()
    await patient
    assert database.locks.is_idle


async def test_a_waiter_cancelled_in_the_moment_it_gets_the_lock_hands_it_on(
    database: InMemoryDatabase, two_runs: InMemoryPersistence, start: datetime
) -> None:
    async with two_runs.transaction() as tx:
        await tx.lock_runs(["r1"])
        first = asyncio.create_task(two_runs.update_run("r1", RunPatch(updated_at=start)))
        second = asyncio.create_task(two_runs.update_run("r1", RunPatch(updated_at=start)))
        await settle()
    first.cancel()
    await second
    with pytest.raises(asyncio.CancelledError):
        await first
    assert database.locks.is_idle
    run = await two_runs.get_run("r1")
    assert run is not None
    assert run.version == 2


async def test_an_insert_waits_for_whoever_holds_the_same_unique_key(
    two_runs: InMemoryPersistence, new_stage: Callable[..., StoredStage]
) -> None:
    async def insert(id: str) -> None:
        await two_runs.create_stage(new_stage("r1", "price", id=id))

    waiting: list[asyncio.Task[None]] = []
    with suppress(ExpectedError):
        async with two_runs.transaction() as tx:
            await tx.create_stage(new_stage("r1", "price", id="s1"))
            waiting.append(asyncio.create_task(insert("s2")))
            await settle()
            assert not waiting[0].done()
            raise ExpectedError
    await waiting[0]
    with pytest.raises(DuplicateRecordError):
        await insert("s3")


async def test_events_of_one_run_are_numbered_without_gaps_by_concurrent_writers(
    two_runs: InMemoryPersistence, new_event: Callable[[str, str], NewEvent]
) -> None:
    async def append(name: str, *, keep: bool) -> None:
        async with two_runs.transaction() as tx:
            await tx.append_outbox_events([new_event(f"{name}-1", "r1"), new_event(f"{name}-2", "r1")])
            await settle()
            if not keep:
                raise ExpectedError

    writers = (append(f"w{number}", keep=number % 3 > 0) for number in range(9))
    await asyncio.gather(*writers, return_exceptions=True)
    events = await two_runs.list_events("r1", after=0, limit=100)
    assert [event.sequence for event in events] == list(range(1, 13))
    run = await two_runs.get_run("r1")
    assert run is not None
    assert run.version == 1


async def test_a_competitor_for_a_key_waits_and_is_answered_with_the_result(
    two_runs: InMemoryPersistence, start: datetime
) -> None:
    async def acquire(store: InMemoryPersistence) -> object:
        return await store.acquire_idempotency_key(
            "key", "run.create", fingerprint="print", now=start, stale_after=timedelta(minutes=10)
        )

    async with two_runs.transaction() as tx:
        assert await acquire(tx) == KeyAcquired()
        competitor = asyncio.create_task(acquire(two_runs))
        await settle()
        assert not competitor.done()
        await tx.complete_idempotency_key("key", "run.create", taken_at=start, result=None)
    assert await competitor == KeyCompleted("print", None)


async def test_claims_pass_over_locked_rows_and_never_wait(
    database: InMemoryDatabase,
    two_runs: InMemoryPersistence,
    new_job: Callable[..., NewJob],
    new_event: Callable[[str, str], NewEvent],
    start: datetime,
) -> None:
    transport = InMemoryJobTransport(database)
    await transport.enqueue_parallel([new_job("j1", run_id="r1"), new_job("j2", run_id="r2")])
    await two_runs.append_outbox_events([new_event("e1", "r1"), new_event("e2", "r2"), new_event("e3", "r1")])

    async def claim_the_rest() -> None:
        async with asyncio.timeout(1):
            runs = await two_runs.claim_pending_runs(5, now=start, serves=None)
            assert [run.id for run in runs] == ["r2"]
            assert await transport.cancel_by_run("r1") == 0
            jobs = await transport.dequeue(worker_id="w2", limit=5)
            assert [job.job_id for job in jobs] == ["j2"]
            events = await two_runs.claim_unpublished_outbox_events(
                5, token="t2", now=start, claimed_until=start + timedelta(minutes=1)
            )
            assert [event.id for event in events] == ["e2"]

    async with two_runs.transaction() as tx:
        enlisted = transport.enlist(tx)
        assert enlisted is not None
        assert len(await enlisted.dequeue(worker_id="w1")) == 1
        assert len(await tx.claim_pending_runs(1, now=start, serves=None)) == 1
        claimed = await tx.claim_unpublished_outbox_events(1, token="t1", now=start, claimed_until=start)
        assert [event.id for event in claimed] == ["e1"]
        await asyncio.create_task(claim_the_rest())


async def test_a_refused_compare_and_set_or_acknowledgement_keeps_no_lock(
    database: InMemoryDatabase, two_runs: InMemoryPersistence, new_job: Callable[..., NewJob]
) -> None:
    transport = InMemoryJobTransport(database)
    await transport.enqueue_parallel([new_job("j1")])
    [first] = await transport.dequeue(worker_id="w1")
    await transport.defer("j1", first.fence.started_at, "drain", first.fence)
    [second] = await transport.dequeue(worker_id="w2")
    assert second.fence.started_at == first.fence.started_at
    async with two_runs.transaction() as tx:
        enlisted = transport.enlist(tx)
        assert enlisted is not None
        assert await enlisted.complete("j1", first.fence) == "superseded"
        assert not await enlisted.touch("j1", first.fence)
        owner = asyncio.create_task(transport.complete("j1", second.fence))
        assert await asyncio.wait_for(owner, 1) == "acknowledged"


async def test_what_the_collector_gives_back_in_the_middle_of_a_change_waits_for_its_end() -> None:
    mutex = Mutex()
    done: list[str] = []
    with mutex:
        mutex.run(lambda: done.append("given back"))
        done.append("change")
    assert done == ["change", "given back"]
    mutex.run(lambda: done.append("at once"))
    assert done[-1] == "at once"


async def test_a_free_lock_goes_to_whoever_waited_longest() -> None:
    mutex = Mutex()
    locks = LockTable(mutex)
    owner = LockHolder()
    await locks.acquire(owner, ("runs", "r1"))
    order: list[int] = []

    async def wait(number: int) -> None:
        holder = LockHolder()
        await locks.acquire(holder, ("runs", "r1"))
        order.append(number)
        with mutex:
            locks.release(holder, [("runs", "r1")])

    waiting = [asyncio.create_task(wait(number)) for number in range(5)]
    await settle()
    assert not locks.try_acquire(LockHolder(), ("runs", "r1"))
    with mutex:
        locks.release(owner, [("runs", "r1")])
    await asyncio.gather(*waiting)
    assert order == [0, 1, 2, 3, 4]
    assert locks.is_idle


async def test_a_lock_that_comes_to_a_cancelled_waiter_is_free_at_once() -> None:
    mutex = Mutex()
    locks = LockTable(mutex)
    owner, cancelled = LockHolder(), LockHolder()
    await locks.acquire(owner, ("runs", "r1"))
    waiting = asyncio.create_task(locks.acquire(cancelled, ("runs", "r1")))
    await settle()
    with mutex:
        locks.release(owner, [("runs", "r1")])
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert cancelled.held == {}
    assert locks.is_idle


async def test_a_row_that_a_claim_looked_at_and_did_not_take_stays_free(
    database: InMemoryDatabase, two_runs: InMemoryPersistence, new_job: Callable[..., NewJob]
) -> None:
    transport = InMemoryJobTransport(database)
    await transport.enqueue_parallel([new_job("j1", run_id="r1")])
    [job] = await transport.dequeue(worker_id="w1")
    async with two_runs.transaction() as tx:
        enlisted = transport.enlist(tx)
        assert enlisted is not None
        assert await enlisted.cancel_by_run("r1") == 0
        worker = asyncio.create_task(transport.complete("j1", job.fence))
        assert await asyncio.wait_for(worker, 1) == "acknowledged"
