"""A session's time zone changes nothing: neither leases nor due times nor what is read back."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import text

from stagewright import Kernel, RetryPolicy, StageContext, define_workflow
from stagewright.commands import ClaimJobs, ClaimPendingRuns, CreateRun, FlushOutbox
from stagewright.hosting import drive_run
from stagewright.records import AnnotationQuery, Fence, NewJob, RunRecord
from stagewright.status import Status
from stagewright.testing import CollectingEventSink
from stagewright_persistence_sqlalchemy import Database, SqlAlchemyJobTransport, SqlAlchemyPersistence
from stagewright_test_support.backend_choice import stores

DISTANCES = {"Asia/Kathmandu": "+05:45", "Pacific/Kiritimati": "+13:00"}
NEAR = timedelta(seconds=20)

pytestmark = pytest.mark.parametrize(
    "way", stores("asyncpg", "psycopg", "mariadb", differ={"mariadb"}), indirect=True
)


@pytest_asyncio.fixture(params=["Asia/Kathmandu", "Pacific/Kiritimati"])
async def zoned(
    request: pytest.FixtureRequest,
    way: str,
    url: str,
    database: Database,
    open_database: Callable[..., Database],
) -> AsyncIterator[Database]:
    """A database whose sessions all begin in that zone."""

    async def alter(change: str) -> None:
        async with database.engine.begin() as connection:
            name = (await connection.execute(text("SELECT current_database()"))).scalar_one()
            await connection.execute(text(f'ALTER DATABASE "{name}" {change}'))

    if way == "mariadb":
        # A server that has no names of zones loaded knows them by their distance.
        async with database.engine.connect() as connection:
            await connection.execute(text(f"SET GLOBAL time_zone = '{DISTANCES[request.param]}'"))
            yield open_database(url)
            await connection.execute(text("SET GLOBAL time_zone = 'SYSTEM'"))
        return
    await alter(f"SET timezone = '{request.param}'")
    zoned = open_database(url)
    async with zoned.engine.connect() as connection:
        assert (await connection.execute(text("SHOW timezone"))).scalar_one() == request.param
    yield zoned
    await alter("RESET timezone")


@pytest.mark.guarantee("sql.time-zones-change-nothing")
async def test_a_whole_run_has_the_times_of_the_world(
    zoned: Database,
    make_kernel: Callable[..., Kernel],
    check_run: Callable[..., Coroutine[Any, Any, RunRecord]],
) -> None:
    async def body(ctx: StageContext[Any]) -> Any:
        ctx.log("info", "here")
        ctx.annotate("size", 1)
        if ctx.attempt == 1:
            raise ValueError("once")
        return 1

    retry = RetryPolicy(2, delay="50ms", jitter=False)
    flow = define_workflow("flow", input=Any).stage("s", body, input=Any, output=Any, retry=retry)
    kernel = make_kernel(zoned, flow.build())
    begun = datetime.now(UTC)
    created = await kernel.dispatch(CreateRun("flow"))
    await drive_run(kernel, created.run_id)
    run = await check_run(kernel, created.run_id)
    (stage,) = await kernel.runs.stages(run.id)
    (job,) = await kernel.ports.job_transport.get_jobs_by_run(run.id)
    notes = await kernel.ports.persistence.list_annotations(run.id, AnnotationQuery(since=begun))
    assert len(notes) == 2
    moments: list[datetime | None] = [run.created_at, run.started_at, run.completed_at, run.updated_at]
    moments += [stage.started_at, stage.completed_at, job.created_at, job.started_at, job.completed_at]
    moments += [event.occurred_at for event in await kernel.runs.events(run.id)]
    moments += [line.created_at for line in (await kernel.runs.logs(run.id)).items]
    moments += [note.created_at for note in notes]
    for moment in moments:
        assert moment is not None
        assert moment.utcoffset() == timedelta(0)
        assert begun - NEAR < moment < begun + NEAR
    listed = await kernel.runs.list(created_from=begun, created_to=begun + NEAR)
    assert [one.id for one in listed.items] == [run.id]


@pytest.mark.guarantee("sql.time-zones-change-nothing")
async def test_times_come_back_to_the_microsecond(zoned: Database) -> None:
    persistence = SqlAlchemyPersistence(zoned)
    for number, moment in enumerate(
        (
            datetime(2025, 3, 30, 2, 30, 0, 1, tzinfo=UTC),
            datetime(2024, 12, 31, 23, 59, 59, 999_999, tzinfo=timezone(timedelta(hours=-11, minutes=-30))),
            datetime(1901, 12, 13, 20, 45, 52, tzinfo=UTC),
        )
    ):
        run = RunRecord(
            id=f"r{number}",
            workflow_id="w",
            workflow_name="w",
            status=Status.PENDING,
            input=None,
            created_at=moment,
            updated_at=moment,
        )
        await persistence.create_run(run)
        stored = await persistence.get_run(run.id)
        assert stored is not None
        assert stored.created_at == moment


@pytest.mark.guarantee("sql.time-zones-change-nothing")
async def test_leases_and_due_times_hold(zoned: Database, eventually: Callable[..., Awaitable[None]]) -> None:
    transport = SqlAlchemyJobTransport(zoned)
    await transport.enqueue_parallel([NewJob(id="j", run_id="r", workflow_id="w", stage_id="s")])
    (job,) = await transport.dequeue(worker_id="w")
    assert abs(job.fence.started_at - datetime.now(UTC)) < NEAR
    assert (await transport.release_stale(NEAR)).released == ()
    assert await transport.expire_runaway(NEAR) == []
    assert await transport.touch("j", job.fence)
    assert not await transport.touch("j", Fence(started_at=job.fence.started_at, deliveries=2))
    await asyncio.sleep(0.02)
    assert [one.id for one in (await transport.release_stale(timedelta(milliseconds=10))).released] == ["j"]
    for number, wait in enumerate(("defer", "fail")):
        (job,) = await transport.dequeue(worker_id="w")
        if wait == "defer":
            await transport.defer("j", datetime.now(UTC) + timedelta(milliseconds=300), "later", job.fence)
        else:
            pause = timedelta(milliseconds=300)
            await transport.fail("j", "no", retry=True, delay=pause, fence=job.fence)
        assert await transport.dequeue(worker_id="w") == []
        assert await transport.depth() == 0
        await eventually(transport.depth, within=5)
        (stored,) = await transport.get_jobs_by_run("r")
        assert stored.deliveries == 2 + number
        assert stored.due_at is not None
        assert abs(stored.due_at - datetime.now(UTC)) < NEAR


@pytest.mark.guarantee("sql.time-zones-change-nothing")
async def test_claims_and_pauses_of_events_hold(
    zoned: Database, make_kernel: Callable[..., Kernel], sink: CollectingEventSink
) -> None:
    flow = define_workflow("flow", input=Any)
    kernel = make_kernel(zoned, flow.stage("s", _nothing, input=Any, output=Any).build())
    created = await kernel.dispatch(CreateRun("flow"))
    sink.fail_with(ConnectionError("down"), times=1)
    assert (await kernel.dispatch(FlushOutbox())).failed == 1
    assert (await kernel.dispatch(FlushOutbox())).published == 0
    async with asyncio.timeout(10):
        while not (await kernel.dispatch(FlushOutbox())).published:
            await asyncio.sleep(0.05)
    await kernel.dispatch(ClaimPendingRuns("w"))
    assert len((await kernel.dispatch(ClaimJobs("w"))).jobs) == 1
    await kernel.dispatch(FlushOutbox())
    told = sink.types(created.run_id)
    assert told == ["workflow:created", "workflow:started", "stage:started"]


async def _nothing(ctx: StageContext[Any]) -> Any:
    return None
