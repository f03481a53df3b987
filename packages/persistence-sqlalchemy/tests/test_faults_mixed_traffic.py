"""Everything at once, for some seconds: nothing of the database's own troubles reaches a caller."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from sqlalchemy import text

from stagewright import Kernel, RetryPolicy, StageContext, Status, define_stage, define_workflow
from stagewright.commands import (
    CancelRun,
    ClaimJobs,
    ClaimPendingRuns,
    CreateRun,
    FlushOutbox,
    PurgeRuns,
    ReapStaleLeases,
    ReapStuckRuns,
    RedriveRun,
    Start,
)
from stagewright.errors import IdempotencyInProgressError, RunNotFoundError, RunStateError
from stagewright.hosting.job_runner import run_job
from stagewright.records import DequeuedJob, Fairness, RunRecord
from stagewright_persistence_sqlalchemy import Database, SqlAlchemyJobTransport
from stagewright_test_support.backend_choice import stores

pytestmark = pytest.mark.slow

WAYS = [
    *stores("sqlite", "asyncpg", "psycopg", "mariadb", differ={"mariadb"}),
    *stores(
        "asyncpg at repeatable read", "psycopg at repeatable read", differ={"asyncpg at repeatable read"}
    ),
]
LASTING = RetryPolicy(3, 1_000, delay="1ms", jitter=False)
SESSIONS = {
    "postgresql": text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND state LIKE 'idle in transaction%' AND clock_timestamp() - state_change > interval '1 second'"
    ),
    "mariadb": text(
        "SELECT count(*) FROM information_schema.processlist AS one"
        " JOIN information_schema.innodb_trx AS open ON open.trx_mysql_thread_id = one.id"
        " WHERE one.db = DATABASE() AND one.command = 'Sleep' AND one.time_ms > 1000"
    ),
}
DEADLOCKS = text("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")


async def flaky(ctx: StageContext[Any]) -> Any:
    await asyncio.sleep(0.001 * (ctx.input % 3))
    if ctx.input % 5 == 0 and ctx.attempt == 1:
        raise ValueError("once")
    return ctx.input


async def stepping(ctx: StageContext[Any]) -> Any:
    async def look() -> int:
        await asyncio.sleep(0.001)
        return int(ctx.input)

    seen = await ctx.step.run("look", look)
    if ctx.input % 5 == 0 and ctx.attempt == 1:
        raise ValueError("once")
    return await ctx.step.run("again", lambda: seen, returns=int)


async def add_up(ctx: StageContext[Any]) -> Any:
    return sum(ctx.input.values())


@dataclass
class Traffic:
    """What goes on between the tasks of a test."""

    kernel: Kernel
    runs: list[str] = field(default_factory=list)
    redriven: set[str] = field(default_factory=set)
    purged: set[str] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)
    stuck: list[int] = field(default_factory=list)
    is_over: bool = False

    async def create(self, name: str) -> None:
        """Send each command three times at once, with one key: one run comes of it."""
        for number in range(10_000):
            if self.is_over:
                return
            command = CreateRun("flow", number, idempotency_key=f"{name}-{number}")
            answers = await asyncio.gather(*(self._answer(command) for _ in range(3)))
            (run_id,) = {answer for answer in answers if answer is not None}
            self.runs.append(run_id)
            await asyncio.sleep(0.01)

    async def _answer(self, command: CreateRun) -> str | None:
        try:
            return (await self.kernel.dispatch(command)).run_id
        except IdempotencyInProgressError:
            return None

    async def work(self, name: str) -> None:
        while not self.is_over:
            await self.kernel.dispatch(ClaimPendingRuns(name, max_claims=3))
            for job in (await self.kernel.dispatch(ClaimJobs(name, limit=2))).jobs:
                async with asyncio.TaskGroup() as tasks:
                    beating = tasks.create_task(self.beat(job))
                    await run_job(self.kernel, job)
                    beating.cancel()

    async def beat(self, job: DequeuedJob) -> None:
        """Renew a lease far more often than any host does."""
        while await self.kernel.ports.job_transport.touch(job.job_id, job.fence):
            await asyncio.sleep(0.001)

    async def cancel(self, name: str) -> None:
        random = Random(name)
        while not self.is_over:
            await asyncio.sleep(0.02)
            if self.runs:
                run_id = random.choice(self.runs[-20:])
                if (await self.kernel.dispatch(CancelRun(run_id))).cancelled:
                    self.cancelled.add(run_id)

    async def redrive(self, name: str) -> None:
        """Set some of the older runs going again that have ended."""
        random = Random(name)
        while not self.is_over:
            await asyncio.sleep(0.05)
            if len(self.runs) > 20:
                run_id = random.choice(self.runs[:-20])
                # Its answer may come after what follows it.
                self.redriven.add(run_id)
                with suppress(RunStateError, RunNotFoundError):
                    await self.kernel.dispatch(RedriveRun(run_id, from_=Start()))

    async def purge(self) -> None:
        while not self.is_over:
            await asyncio.sleep(0.3)
            now = self.kernel.ports.clock.now()
            purged = await self.kernel.dispatch(PurgeRuns(older_than=now - timedelta(seconds=1), limit=3))
            self.purged.update(purged.run_ids)

    async def reap(self) -> None:
        while not self.is_over:
            await asyncio.sleep(0.2)
            await self.kernel.dispatch(ReapStuckRuns("1h"))
            await self.kernel.dispatch(ReapStaleLeases("1h"))

    async def flush(self) -> None:
        while not self.is_over:
            await self.kernel.dispatch(FlushOutbox(20))
            await asyncio.sleep(0.005)

    async def sweep(self) -> None:
        transport = self.kernel.ports.job_transport
        while not self.is_over:
            await transport.release_stale(timedelta(milliseconds=50))
            await transport.expire_runaway(timedelta(hours=1))
            await asyncio.sleep(0.02)

    async def watch(self, database: Database) -> None:
        """Look for sessions that hold a transaction open and do nothing in it."""
        while not self.is_over:
            async with database.engine.connect() as connection:
                found = await connection.execute(SESSIONS[database.kind.name])
                self.stuck.append(found.scalar_one())
            await asyncio.sleep(0.1)


@pytest.mark.parametrize(
    "fairness",
    [
        pytest.param(None, id="as ever"),
        pytest.param(
            Fairness(max_concurrent_per_group=3),
            id="fair",
            marks=pytest.mark.guarantee("sql.fair-claims-never-deadlock"),
        ),
    ],
)
@pytest.mark.parametrize("way", WAYS, indirect=True)
@pytest.mark.parametrize(
    ("body", "seconds", "runs"),
    [(flaky, 4.0, 21), pytest.param(stepping, 20.0, 500, marks=pytest.mark.soak)],
    ids=["short", "long, with steps"],
)
@pytest.mark.guarantee("sql.troubles-stay-inside")
async def test_no_trouble_of_the_database_reaches_a_caller(
    way: str,
    body: Callable[[StageContext[Any]], Awaitable[Any]],
    seconds: float,
    runs: int,
    fairness: Fairness | None,
    database: Database,
    make_kernel: Callable[..., Kernel],
    work_off: Callable[..., Coroutine[Any, Any, None]],
    deliver_all: Callable[[Kernel], Awaitable[None]],
    check_run: Callable[..., Coroutine[Any, Any, RunRecord]],
) -> None:
    parallel = [define_stage(name, body, input=Any, output=Any, retry=LASTING) for name in ("b", "c")]
    flow = define_workflow("flow", input=Any).stage("a", body, input=Any, output=Any, retry=LASTING)
    flow = flow.parallel(*parallel).stage("d", add_up, input=Any, output=Any, retry=LASTING)
    transport = SqlAlchemyJobTransport(database, fairness=fairness)
    kernel = make_kernel(database, flow.build(), job_transport=transport)
    traffic = Traffic(kernel)
    everything = [traffic.create(f"c{number}") for number in range(2)]
    everything += [traffic.work(f"w{number}") for number in range(8)]
    everything += [traffic.cancel(f"x{number}") for number in range(4)]
    everything += [traffic.redrive(f"r{number}") for number in range(2)]
    everything += [traffic.flush(), traffic.flush(), traffic.sweep(), traffic.purge(), traffic.reap()]
    if way != "sqlite":
        everything.append(traffic.watch(database))
    async with asyncio.TaskGroup() as tasks:
        for one in everything:
            tasks.create_task(one)
        async with asyncio.timeout(15 * seconds):
            await asyncio.sleep(seconds)
            # On a slow machine the same traffic takes longer.
            while len(traffic.runs) < runs:
                await asyncio.sleep(0.05)
        traffic.is_over = True
    assert not any(traffic.stuck)
    await kernel.ports.job_transport.release_stale(timedelta(0))
    left = [run_id for run_id in traffic.runs if run_id not in traffic.purged]
    await work_off(kernel, left, workers=4)
    await deliver_all(kernel)
    assert len(set(traffic.runs)) == len(traffic.runs) >= runs
    assert traffic.redriven
    for run_id in traffic.purged:
        assert await kernel.runs.get(run_id) is None
    for run_id in left:
        if run_id in traffic.redriven:
            run = await kernel.runs.get(run_id)
            assert run is not None
            assert run.status in (Status.COMPLETED, Status.CANCELLED)
            continue
        wanted = Status.CANCELLED if run_id in traffic.cancelled else Status.COMPLETED
        await check_run(kernel, run_id, (wanted,))
    # MariaDB counts them for the whole server, and finds them at once: who is ended by one has lost no time.
    if database.kind.notifies:
        async with database.engine.connect() as connection:
            assert (await connection.execute(DEADLOCKS)).scalar_one() == 0
