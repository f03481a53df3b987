"""A caller that ends at any point of a transaction leaves nothing of it behind, and hands its connection back."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest
from sqlalchemy import select

from stagewright import Kernel, RetryPolicy, StageContext, Status, Workflow, define_stage, define_workflow
from stagewright.commands import (
    AnnotationInput,
    CancelRun,
    ClaimJobs,
    ClaimPendingRuns,
    Command,
    CreateRun,
    ExecuteJob,
    JobRef,
)
from stagewright.errors import OutcomeUnknownError, TransientError
from stagewright.records import DequeuedJob, Fence
from stagewright.status import TERMINAL_RUN_STATUSES
from stagewright_persistence_sqlalchemy import Database
from stagewright_persistence_sqlalchemy.tables import PLAIN_TABLES

OpenDatabase = Callable[..., Database]
MakeTables = Callable[[Database], Awaitable[None]]
MakeKernel = Callable[..., Kernel]


def workflow() -> Workflow:
    async def body(ctx: StageContext[Any]) -> Any:
        ctx.log("info", "here")
        ctx.annotate("size", 1, emit_event=True)
        if ctx.attempt == 1 and ctx.stage_id == "a":
            raise ValueError("first attempt")
        return ctx.stage_id

    soon = RetryPolicy(3, delay="0s")
    parallel = [define_stage(name, body, input=Any, output=Any) for name in ("b", "c")]
    flow = define_workflow("flow", input=Any).stage("a", body, input=Any, output=Any, retry=soon)
    return flow.parallel(*parallel).build()


async def contents(database: Database) -> dict[str, list[Any]]:
    found = {}
    async with database.sessions.reading() as session:
        for table in PLAIN_TABLES.metadata.sorted_tables:
            rows = await session.fetch(select(table), {})
            found[table.name] = sorted((dict(row) for row in rows), key=repr)
    return found


async def crash_everywhere(database: Database, kernel: Kernel, points: Any, command: Command[Any]) -> Any:
    """Carry the command out with a crash at each point in turn, then undisturbed; say what it answered."""
    before = await contents(database)
    for fatal in range(1, 100):
        points.begin(fatal)
        try:
            answer = await kernel.dispatch(command)
        except points.crash as crash:
            if crash.args == ("committed",):
                # The one crash that comes too late: all of it is there.
                assert await contents(database) != before
                return None
            assert await contents(database) == before, points.passed
        else:
            return answer
    raise AssertionError("the command doesn't end")


@pytest.mark.guarantee("sql.commands-whole-or-not-at-all")
async def test_every_command_is_kept_whole_or_not_at_all(
    url: str, open_database: OpenDatabase, make_tables: MakeTables, make_kernel: MakeKernel, points: Any
) -> None:
    database = open_database(url, wrap=points.around)
    await make_tables(database)
    kernel = make_kernel(database, workflow())

    async def crash(command: Command[Any]) -> None:
        await crash_everywhere(database, kernel, points, command)
        assert "committed" in points.passed
        points.begin(0)

    async def take_job() -> DequeuedJob:
        await crash(ClaimJobs("w"))
        async with database.sessions.reading() as session:
            rows = await session.fetch(select(PLAIN_TABLES.metadata.tables["job_queue"]), {})
        (row,) = (row for row in rows if row["status"] == "RUNNING")
        return await _delivered(kernel, row["run_id"], row["id"])

    note = AnnotationInput(attributes={"origin": "test"}, emit_event=True)
    await crash(CreateRun("flow", 1, idempotency_key="k", annotations=[note]))
    again = await kernel.dispatch(CreateRun("flow", 1, idempotency_key="k", annotations=[note]))
    await crash(ClaimPendingRuns("w"))
    for _ in range(3):
        job = await take_job()
        reference = JobRef(job.job_id, job.fence)
        await crash(ExecuteJob(job.run_id, "flow", job.stage_id, job=reference))
    (third,) = [one for one in await kernel.runs.stages(again.run_id) if one.status is not Status.COMPLETED]
    assert third.status is Status.PENDING
    await crash(CancelRun(again.run_id))
    events = await kernel.runs.events(again.run_id)
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert [event.type for event in events].count("stage:completed") == 2


async def _delivered(kernel: Kernel, run_id: str, job_id: str) -> DequeuedJob:
    """The delivery whose answer was lost, as the worker that lost it would have got it."""
    (job,) = [one for one in await kernel.ports.job_transport.get_jobs_by_run(run_id) if one.id == job_id]
    assert job.started_at is not None
    return DequeuedJob(
        job_id=job.id,
        run_id=job.run_id,
        workflow_id=job.workflow_id,
        stage_id=job.stage_id,
        definition_version=job.definition_version,
        payload=job.payload,
        priority=job.priority,
        fence=Fence(started_at=job.started_at, deliveries=job.deliveries),
        failures=job.failures,
        worker_losses=job.worker_losses,
        max_attempts=job.max_attempts,
        max_worker_losses=job.max_worker_losses,
    )


@pytest.mark.parametrize("way", ["sqlite", "asyncpg", "psycopg", "mariadb"], indirect=True)
@pytest.mark.guarantee("sql.cancelled-callers-give-back")
async def test_cancelled_callers_leave_neither_rows_nor_connections_behind(
    url: str, open_database: OpenDatabase, make_tables: MakeTables, make_kernel: MakeKernel
) -> None:
    database = open_database(url, pool_size=2)
    await make_tables(database)
    kernel = make_kernel(database, workflow())
    random = Random(1)
    kept: list[str] = []
    cancelled = 0
    for _ in range(25):
        calls = [asyncio.create_task(kernel.dispatch(CreateRun("flow", 1))) for _ in range(4)]
        await asyncio.sleep(random.uniform(0, 0.02))
        for call in calls:
            call.cancel()
        for answer in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(answer, BaseException):
                assert isinstance(answer, asyncio.CancelledError | TransientError | OutcomeUnknownError)
                cancelled += 1
            else:
                kept.append(answer.run_id)
    assert cancelled > 0
    async with asyncio.timeout(10):
        kept += [
            one.run_id
            for one in await asyncio.gather(*(kernel.dispatch(CreateRun("flow", 1)) for _ in range(8)))
        ]
    async with database.sessions.reading() as session:
        ids = {row["id"] for row in await session.fetch(select(PLAIN_TABLES.runs.c.id), {})}
        told = [row["run_id"] for row in await session.fetch(select(PLAIN_TABLES.outbox.c.run_id), {})]
    # A call that was cancelled while it committed may be kept, with its event then.
    assert sorted(told) == sorted(ids)
    assert set(kept) <= ids
    for run_id in ids:
        assert (await kernel.dispatch(CancelRun(run_id))).cancelled
    statuses = [await kernel.ports.persistence.get_run_status(run_id) for run_id in ids]
    assert set(statuses) <= TERMINAL_RUN_STATUSES
