"""Fair claims in memory from threads, each with an event loop of its own."""

import asyncio
import threading
from collections import Counter

import pytest

from stagewright.memory import InMemoryDatabase, InMemoryJobTransport, InMemoryPersistence
from stagewright.records import Fairness, NewJob
from stagewright.status import Status

CAP = 2
TENANTS = ("a", "b", None)


@pytest.mark.guarantee("stores.groups-never-exceed-their-cap")
async def test_workers_in_threads_never_exceed_the_cap() -> None:
    database = InMemoryDatabase()
    fairness = Fairness(max_concurrent_per_group=CAP)
    jobs = [
        NewJob(id=f"{tenant}-{n}", run_id=f"{tenant}-{n}", workflow_id="w", stage_id="s", group_key=tenant)
        for n in range(30)
        for tenant in TENANTS
    ]
    await InMemoryJobTransport(database, fairness=fairness).enqueue_parallel(jobs)
    is_over = threading.Event()
    done: Counter[str] = Counter()
    most: list[int] = []

    async def work(number: int) -> None:
        transport, persistence = (
            InMemoryJobTransport(database, fairness=fairness),
            InMemoryPersistence(database),
        )
        while not is_over.is_set():
            async with persistence.transaction() as tx:
                enlisted = transport.enlist(tx)
                assert enlisted is not None
                taken = await enlisted.dequeue(worker_id=f"w{number}", limit=1 + number % 2)
                await asyncio.sleep(0)
            # What others take meanwhile is seen beside this.
            await asyncio.sleep(0.001 * len(taken))
            with database.mutex:
                running = list(database.jobs.where("status", Status.RUNNING).values())
            most.append(max(Counter(row.group for row in running).values(), default=0))
            for job in taken:
                assert await transport.complete(job.job_id, job.fence) == "acknowledged"
                done[job.job_id] += 1
            if len(done) == len(jobs):
                is_over.set()

    try:
        async with asyncio.timeout(30):
            await asyncio.gather(*(asyncio.to_thread(asyncio.run, work(number)) for number in range(6)))
    finally:
        is_over.set()
    assert done == Counter(job.id for job in jobs)
    assert 0 < max(most) <= CAP
