import asyncio
import threading
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any

from stagewright.errors import DeadlockError
from stagewright.memory import InMemoryDatabase, InMemoryJobTransport, InMemoryPersistence
from stagewright.memory.locks import LockHolder
from stagewright.records import NewJob, RunPatch, RunRecord


def run_in_threads(*bodies: Callable[[], Coroutine[Any, Any, None]]) -> None:
    errors: list[BaseException] = []

    def run(body: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            asyncio.run(body())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(body,), daemon=True) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive(), "a thread waits for ever"
    if errors:
        raise errors[0]


def test_writers_in_several_threads_wait_for_each_other_and_lose_nothing(
    database: InMemoryDatabase, new_run: Callable[..., RunRecord], start: datetime
) -> None:
    asyncio.run(InMemoryPersistence(database).create_run(new_run("r1")))

    async def increment() -> None:
        store = InMemoryPersistence(database)

        async def once() -> None:
            async with store.transaction() as tx:
                [run] = await tx.lock_runs(["r1"])
                await asyncio.sleep(0)
                await tx.update_run("r1", RunPatch(updated_at=start, total_tokens=run.total_tokens + 1))

        await asyncio.gather(*(once() for _ in range(25)))

    run_in_threads(*[increment] * 4)
    run = asyncio.run(InMemoryPersistence(database).get_run("r1"))
    assert run is not None
    assert run.total_tokens == 100
    assert database.locks.is_idle


def test_a_deadlock_between_threads_ends_one_of_them(
    database: InMemoryDatabase, new_run: Callable[..., RunRecord]
) -> None:
    store = InMemoryPersistence(database)
    for id in ("r1", "r2"):
        asyncio.run(store.create_run(new_run(id)))
    both_hold_one = threading.Barrier(2)
    deadlocks: list[DeadlockError] = []

    def locking(first: str, second: str) -> Callable[[], Coroutine[Any, Any, None]]:
        async def lock() -> None:
            try:
                async with store.transaction() as tx:
                    await tx.lock_runs([first])
                    await asyncio.to_thread(both_hold_one.wait, 10)
                    await tx.lock_runs([second])
            except DeadlockError as error:
                deadlocks.append(error)

        return lock

    run_in_threads(locking("r1", "r2"), locking("r2", "r1"))
    assert len(deadlocks) == 1
    assert database.locks.is_idle


def test_dequeuers_in_several_threads_never_share_a_job(
    database: InMemoryDatabase, new_job: Callable[..., NewJob]
) -> None:
    jobs = [new_job(f"j{number:03}") for number in range(400)]
    asyncio.run(InMemoryJobTransport(database).enqueue_parallel(jobs))
    taken: list[str] = []

    async def drain() -> None:
        transport = InMemoryJobTransport(database)
        while batch := await transport.dequeue(worker_id=threading.current_thread().name, limit=7):
            taken.extend(job.job_id for job in batch)

    run_in_threads(*[drain] * 4)
    assert sorted(taken) == [job.id for job in jobs]


def test_readers_see_whole_commits_while_other_threads_write(
    database: InMemoryDatabase, new_run: Callable[..., RunRecord], start: datetime
) -> None:
    store = InMemoryPersistence(database)
    written = threading.Event()

    async def write() -> None:
        try:
            for number in range(200):
                async with store.transaction() as tx:
                    await tx.create_run(new_run(f"a{number:03}"))
                    await tx.create_run(new_run(f"b{number:03}"))
        finally:
            written.set()

    async def read() -> None:
        while not written.is_set():
            pending = await store.claim_pending_runs(1000, now=start, serves=None)
            assert len(pending) % 2 == 0

    run_in_threads(write, read)


async def test_a_waiter_whose_loop_is_closed_is_passed_over(database: InMemoryDatabase) -> None:
    lock = ("runs", "r1")
    owner, patient = LockHolder(), LockHolder()
    await database.locks.acquire(owner, lock)
    abandoned: list[Coroutine[Any, Any, None]] = []

    def wait_and_vanish() -> None:
        async def begin() -> None:
            abandoned.append(database.locks.acquire(LockHolder(), lock))
            abandoned[0].send(None)

        asyncio.run(begin())

    await asyncio.to_thread(wait_and_vanish)
    waiting = asyncio.create_task(database.locks.acquire(patient, lock))
    await asyncio.sleep(0)
    with database.mutex:
        database.locks.release(owner, [lock])
    await asyncio.wait_for(waiting, 1)
    with database.mutex:
        database.locks.release(patient, [lock])
    assert database.locks.is_idle
    abandoned[0].close()
    assert database.locks.is_idle
