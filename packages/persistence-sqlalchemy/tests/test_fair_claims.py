"""Fair claims of many workers, each in a thread with an event loop and connections of its own."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any

import pytest
from pydantic import BaseModel
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from stagewright import StageContext, Status, define_stage, define_workflow, open_kernel
from stagewright.commands import ClaimJobs, ClaimPendingRuns, CreateRun
from stagewright.errors import OwnTransactionsError
from stagewright.hosting.job_runner import run_job
from stagewright.ports import JobTransport
from stagewright.records import DequeuedJob, Fairness, NewJob
from stagewright_persistence_sqlalchemy import (
    Database,
    SqlAlchemyJobTransport,
    SqlAlchemyPersistence,
    create_engine,
)
from stagewright_persistence_sqlalchemy.tables import PLAIN_TABLES
from stagewright_test_support.backend_choice import stores

jobs = PLAIN_TABLES.jobs
CAP = 2
FAIRNESS = Fairness(max_concurrent_per_group=CAP, group_by="config.tenantId")
TENANTS = ("a", "b", "c", None)
FAR = timedelta(days=1)

every_way = pytest.mark.parametrize(
    "way",
    stores("sqlite", "asyncpg", "psycopg", "mariadb", "asyncpg through pgbouncer", differ={"mariadb"}),
    indirect=True,
)


def job_of(tenant: str | None, number: int) -> NewJob:
    name = f"{tenant}-{number}"
    return NewJob(
        id=name,
        run_id=name,
        workflow_id="flow",
        stage_id="s",
        payload={"config": {"tenantId": tenant}},
        priority=number % 3,
    )


@dataclass
class Crowd:
    """Workers that take jobs and let them go again, and what one of them ever saw of all.

    Attributes:
        most: The most jobs of one group that were RUNNING in one look at the database.
        done: How often each job was completed.
    """

    url: str
    total: int
    most: int = 0
    done: Counter[str] = field(default_factory=Counter)
    is_over: Event = field(default_factory=Event)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Database]:
        database = Database(create_engine(self.url))
        try:
            yield database
        finally:
            await database.close()

    async def work(self, number: int) -> None:
        chance = random.Random(number)
        async with self.opened() as database:
            transport = SqlAlchemyJobTransport(database, fairness=FAIRNESS)
            persistence = SqlAlchemyPersistence(database)
            while not self.is_over.is_set():
                if chance.random() < 0.5:
                    taken = await transport.dequeue(worker_id=f"w{number}", limit=chance.choice((1, 3)))
                else:
                    async with persistence.transaction() as tx:
                        enlisted = transport.enlist(tx)
                        assert enlisted is not None
                        taken = await enlisted.dequeue(worker_id=f"w{number}", limit=chance.choice((1, 3)))
                        await asyncio.sleep(chance.choice((0, 0.005)))
                for job in taken:
                    await self.look(database)
                    await self.let_go(transport, job, chance)
                if not taken:
                    await asyncio.sleep(0.002)

    async def let_go(self, transport: JobTransport, job: DequeuedJob, chance: random.Random) -> None:
        match chance.randrange(4):
            case 0:
                await transport.fail(job.job_id, "no", retry=True, fence=job.fence)
            case 1:
                await transport.defer(job.job_id, datetime.now(UTC) - FAR, "later", job.fence)
            case _:
                assert await transport.complete(job.job_id, job.fence) == "acknowledged"
                self.done[job.job_id] += 1
                if len(self.done) == self.total:
                    self.is_over.set()

    async def watch(self) -> None:
        async with self.opened() as database:
            while not self.is_over.is_set():
                await self.look(database)

    async def look(self, database: Database) -> None:
        running = func.count().label("running")
        asked = select(jobs.c.group_key, running).where(jobs.c.status == "RUNNING").group_by(jobs.c.group_key)
        async with database.sessions.reading() as session:
            rows = await session.fetch(asked, {})
        self.most = max(self.most, *(row["running"] for row in rows), 0)


@every_way
@pytest.mark.guarantee("stores.groups-never-exceed-their-cap")
async def test_workers_in_threads_of_their_own_never_exceed_the_cap(database: Database, url: str) -> None:
    made = [job_of(tenant, number) for number in range(12) for tenant in TENANTS]
    await SqlAlchemyJobTransport(database, fairness=FAIRNESS).enqueue_parallel(made)
    crowd = Crowd(url, len(made))
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(7) as threads:
        work = [loop.run_in_executor(threads, asyncio.run, crowd.work(number)) for number in range(6)]
        work.append(loop.run_in_executor(threads, asyncio.run, crowd.watch()))
        try:
            async with asyncio.timeout(60):
                await asyncio.gather(*work)
        finally:
            crowd.is_over.set()
    assert crowd.done == Counter(job.id for job in made)
    assert 0 < crowd.most <= CAP


class Config(BaseModel):
    tenantId: str  # noqa: N815 - the name that the path leads to


async def body(ctx: StageContext[Any, Config]) -> str:
    await asyncio.sleep(0)
    return ctx.config.tenantId


FLOW = (
    define_workflow("flow", input=Any)
    .pipe(define_stage("one", body, input=Any, output=Any, config=Config))
    .parallel(
        define_stage("two", body, input=Any, output=Any, config=Config),
        define_stage("three", body, input=Any, output=Any, config=Config),
    )
    .build()
)


@pytest.mark.parametrize("way", stores("sqlite", "asyncpg", "mariadb"))
@pytest.mark.guarantee("kernel.fair-between-groups")
async def test_a_kernel_opened_by_url_keeps_its_tenants_apart(
    way: str, new_database: Callable[[str], str]
) -> None:
    fairness = Fairness(max_concurrent_per_group=1, group_by="config.tenantId")
    async with open_kernel(FLOW, new_database(way), fairness=fairness, create_schema=True) as kernel:
        runs = []
        for tenant in ("noisy", "noisy", "noisy", "quiet"):
            config = {stage: {"tenantId": tenant} for stage in ("one", "two", "three")}
            runs.append((await kernel.dispatch(CreateRun("flow", config=config))).run_id)
        await kernel.dispatch(ClaimPendingRuns("w", max_claims=4))
        first = (await kernel.dispatch(ClaimJobs("w", limit=9))).jobs
        assert [job.run_id for job in first] == [runs[0], runs[3]]
        assert (await kernel.dispatch(ClaimJobs("w", limit=9))).jobs == ()
        left = list(first)
        while left:
            await run_job(kernel, left.pop())
            left += (await kernel.dispatch(ClaimJobs("w", limit=9))).jobs
            held = Counter(str(job.payload) for job in left)
            assert max(held.values(), default=0) <= 1
        for run_id in runs:
            run = await kernel.runs.get(run_id)
            assert run is not None
            assert run.status is Status.COMPLETED


@pytest.mark.parametrize("way", ["sqlite", "asyncpg"], indirect=True)
async def test_a_session_of_the_callers_claims_nothing(database: Database) -> None:
    transport = SqlAlchemyJobTransport(database, fairness=FAIRNESS)
    await transport.enqueue_parallel([job_of("a", 1)])
    async with AsyncSession(database.engine) as session:
        enlisted = transport.enlist(SqlAlchemyPersistence(database).borrow(session))
        assert enlisted is not None
        with pytest.raises(OwnTransactionsError):
            await enlisted.dequeue(worker_id="w")
    assert len(await transport.dequeue(worker_id="w")) == 1


@pytest.mark.parametrize("way", ["sqlite", "asyncpg"], indirect=True)
async def test_a_group_that_comes_late_in_a_long_queue_is_found(database: Database) -> None:
    """More jobs of groups at their caps are ahead than a claim looks at first."""
    transport = SqlAlchemyJobTransport(database, fairness=FAIRNESS)
    await transport.enqueue_parallel(
        [job_of(tenant, 3 * number) for number in range(200) for tenant in ("a", "b")]
    )
    quiet = [job_of(tenant, 600) for tenant in ("0 before all", "aa", None)]
    await transport.enqueue_parallel(quiet)
    taken = [job.job_id for job in await transport.dequeue(worker_id="w", limit=9)]
    assert taken == ["a-0", "b-0", "a-3", "b-3", *(job.id for job in quiet)]
    assert await transport.dequeue(worker_id="w", limit=9) == []
