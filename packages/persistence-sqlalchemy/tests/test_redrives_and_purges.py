"""Redrives and purges over a database: kept steps, crowds that want different things, purges cut short anywhere."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
from sqlalchemy import Executable, func, select

from stagewright import (
    Kernel,
    NonRetryableError,
    RetryPolicy,
    StageContext,
    Status,
    Workflow,
    define_workflow,
)
from stagewright.commands import (
    AnnotationInput,
    CancelRun,
    ClaimJobs,
    ClaimPendingRuns,
    CreateRun,
    ExecuteJob,
    FlushOutbox,
    FromStage,
    JobRef,
    LastFailure,
    PurgeRuns,
    PurgeRunsResult,
    RedriveRun,
    RedriveRunResult,
    Start,
)
from stagewright.errors import RunNotFoundError, RunStateError, TransientError
from stagewright.hosting.job_runner import run_job
from stagewright.records import AnnotationQuery
from stagewright.status import TERMINAL_RUN_STATUSES
from stagewright_persistence_sqlalchemy import Database
from stagewright_persistence_sqlalchemy.rows import Row
from stagewright_persistence_sqlalchemy.sessions import Session, Sessions
from stagewright_persistence_sqlalchemy.tables import PLAIN_TABLES
from stagewright_test_support.backend_choice import stores

OpenDatabase = Callable[..., Database]
MakeTables = Callable[[Database], Awaitable[None]]
MakeKernel = Callable[..., Kernel]
DeliverAll = Callable[[Kernel], Coroutine[Any, Any, None]]

Ctx = StageContext[Any]
WAYS = pytest.mark.parametrize("way", stores("sqlite", "asyncpg", "psycopg", "mariadb"), indirect=True)
RACES = pytest.mark.parametrize(
    "way", stores("sqlite", "asyncpg", "psycopg", "mariadb", differ={"mariadb"}), indirect=True
)
SAID = (AnnotationInput(attributes={"trigger.reason": "test"}),)


class Crash(BaseException):
    """From here on nothing of the process is left."""


class World:
    """Three stages, the middle one a group of two; each makes a step and keeps a blob."""

    def __init__(self) -> None:
        self.broken: set[str] = set()
        self.steps: Counter[str] = Counter()

    async def __call__(self, ctx: Ctx) -> Any:
        await ctx.storage.save("kept", ctx.attempt)
        await ctx.step.run("once", lambda: self._step(ctx))
        if ctx.stage_id in self.broken:
            raise NonRetryableError("broken")
        return "x" * 200

    def _step(self, ctx: Ctx) -> str:
        self.steps[f"{ctx.run_id} {ctx.stage_id}"] += 1
        return "y" * 200

    def flow(self) -> Workflow:
        options: dict[str, Any] = {"input": Any, "output": Any, "retry": RetryPolicy(3, delay=0)}
        builder = define_workflow("flow", input=Any)
        for stage_id in ("a", "b", "c"):
            builder = builder.stage(stage_id, self.__call__, **options)
        return builder.build()


async def work(kernel: Kernel, run_id: str) -> Status:
    """Work a run off in this process."""
    async with asyncio.timeout(60):
        while True:
            status = await kernel.ports.persistence.get_run_status(run_id)
            if status is None or status in TERMINAL_RUN_STATUSES:
                return status or Status.SKIPPED
            await kernel.dispatch(ClaimPendingRuns("w"))
            for job in (await kernel.dispatch(ClaimJobs("w", limit=9))).jobs:
                await run_job(kernel, job)


async def counts(database: Database) -> dict[str, int]:
    """How many rows each table has, but for those that no run owns."""
    found = {}
    async with database.engine.connect() as connection:
        for table in PLAIN_TABLES.metadata.sorted_tables:
            if table.name not in ("workflow_definitions", "work_signals", "job_group_locks"):
                rows = await connection.execute(select(func.count()).select_from(table))
                found[table.name] = int(rows.scalar_one())
    return {name: count for name, count in found.items() if count}


@WAYS
@pytest.mark.guarantee("redrives.completed-steps-answer")
async def test_a_failed_run_goes_on_with_what_it_has(database: Database, make_kernel: MakeKernel) -> None:
    world = World()
    kernel = make_kernel(database, world.flow(), spill_threshold_bytes=100)
    world.broken = {"b"}
    run_id = (await kernel.dispatch(CreateRun("flow"))).run_id
    assert await work(kernel, run_id) is Status.FAILED
    before = {stage.stage_id: stage for stage in await kernel.runs.stages(run_id)}
    world.broken.clear()
    result = await kernel.dispatch(RedriveRun(run_id, idempotency_key="k"))
    assert (result.from_stage_id, result.superseded_stages, result.redrive_count) == ("b", ("b",), 1)
    assert await kernel.dispatch(RedriveRun(run_id, idempotency_key="k")) == result
    assert await work(kernel, run_id) is Status.COMPLETED
    after = {stage.stage_id: stage for stage in await kernel.runs.stages(run_id)}
    assert (after["b"].id, after["b"].attempt) == (before["b"].id, 2)
    assert set(world.steps.values()) == {1}
    await kernel.dispatch(RedriveRun(run_id, from_=Start()))
    assert await work(kernel, run_id) is Status.COMPLETED
    assert set(world.steps.values()) == {2}
    stages = await kernel.runs.stages(run_id)
    assert [stage.attempt for stage in stages] == [2, 3, 2]
    rows = await kernel.ports.persistence.list_annotations(
        run_id, AnnotationQuery(key="run.supersededAttempt")
    )
    assert [(row.scope_id, row.attempt, row.stage_record_id) for row in rows] == [
        ("b", 1, None),
        ("a", 1, None),
        ("b", 2, None),
        ("c", 1, None),
    ]
    told = await kernel.runs.events(run_id, limit=1_000)
    assert [event.sequence for event in told] == list(range(1, len(told) + 1))


@RACES
@pytest.mark.guarantee("redrives.one-of-several-wins")
async def test_of_several_redrives_one_is_carried_out(database: Database, make_kernel: MakeKernel) -> None:
    world = World()
    kernels = [make_kernel(database, world.flow()) for _ in range(2)]
    for origin in (LastFailure(), Start(), FromStage("b")):
        run_id = (await kernels[0].dispatch(CreateRun("flow"))).run_id
        await work(kernels[0], run_id)
        answers = await asyncio.gather(
            *(kernels[n % 2].dispatch(RedriveRun(run_id, from_=origin)) for n in range(8)),
            return_exceptions=True,
        )
        assert Counter(map(type, answers)) == {RedriveRunResult: 1, RunStateError: 7}
        assert await work(kernels[1], run_id) is Status.COMPLETED
        run = await kernels[0].runs.get(run_id)
        assert run is not None
        assert run.redrive_count == 1


@WAYS
@pytest.mark.guarantee("kernel.late-outcomes-are-refused")
async def test_a_zombie_does_not_reach_the_stage_that_was_opened_again(
    database: Database, make_kernel: MakeKernel
) -> None:
    began, go = asyncio.Event(), asyncio.Event()
    calls = 0

    async def body(ctx: Ctx) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            began.set()
            await go.wait()
        return f"{ctx.attempt}"

    flow = define_workflow("flow", input=Any).stage("s", body, input=Any, output=Any).build()
    kernel = make_kernel(database, flow)
    run_id = (await kernel.dispatch(CreateRun("flow"))).run_id
    await kernel.dispatch(ClaimPendingRuns("w"))
    (old,) = (await kernel.dispatch(ClaimJobs("w"))).jobs
    command = ExecuteJob(run_id, "flow", "s", job=JobRef(old.job_id, old.fence))
    zombie = asyncio.create_task(kernel.dispatch(command))
    await began.wait()
    await kernel.dispatch(CancelRun(run_id))
    await kernel.dispatch(RedriveRun(run_id))
    go.set()
    assert (await zombie).ghost
    assert await work(kernel, run_id) is Status.COMPLETED
    run = await kernel.runs.get(run_id)
    assert run is not None
    assert run.output == "2"


@RACES
@pytest.mark.guarantee("purges.a-redrive-or-a-purge")
async def test_crowds_of_redrives_cancels_purges_and_workers_leave_whole_runs_or_none(
    database: Database, make_kernel: MakeKernel, deliver_all: DeliverAll
) -> None:
    world = World()
    kernels = [make_kernel(database, world.flow(), spill_threshold_bytes=100) for _ in range(2)]
    runs = [(await kernels[0].dispatch(CreateRun("flow"))).run_id for _ in range(24)]
    going = True
    seen: Counter[str] = Counter()

    async def worker(number: int) -> None:
        kernel = kernels[number % 2]
        while going:
            try:
                await kernel.dispatch(ClaimPendingRuns(f"w{number}", max_claims=3))
                for job in (await kernel.dispatch(ClaimJobs(f"w{number}", limit=2))).jobs:
                    await run_job(kernel, job)
                await kernel.dispatch(FlushOutbox(max_events=500))
            except TransientError:
                seen["transient"] += 1
            await asyncio.sleep(0.002)

    async def operator(number: int) -> None:
        random, kernel = Random(number), kernels[number % 2]
        origins = (LastFailure(), Start(), FromStage("b"))
        for _ in range(30):
            run_id = random.choice(runs)
            command: Any = random.choice(
                [
                    RedriveRun(run_id, from_=random.choice(origins)),
                    RedriveRun(run_id, from_=random.choice(origins)),
                    CancelRun(run_id),
                    PurgeRuns(kernel.ports.clock.now(), limit=1),
                ]
            )
            try:
                answer = await kernel.dispatch(command)
                seen[f"{command.type} {getattr(answer, 'purged', '')}"] += 1
            except (RunStateError, RunNotFoundError, TransientError) as error:
                seen[type(error).__name__] += 1
            await asyncio.sleep(random.uniform(0, 0.02))

    async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
        for number in range(3):
            tasks.create_task(worker(number))
        operators = [tasks.create_task(operator(number)) for number in range(4)]
        await asyncio.gather(*operators)
        going = False
    assert seen["run.redrive "] > 0, seen
    assert seen["run.purge 1"] > 0, seen
    await check_all(kernels[0], runs)
    await deliver_all(kernels[0])
    while (await kernels[0].dispatch(PurgeRuns(kernels[0].ports.clock.now()))).purged:
        pass
    assert await counts(database) == {}


async def check_all(kernel: Kernel, runs: list[str]) -> None:
    """Each run is gone without a trace, or can be worked off and is whole then."""
    for run_id in runs:
        status = await work(kernel, run_id)
        run = await kernel.runs.get(run_id)
        stages = await kernel.runs.stages(run_id)
        if run is None:
            assert stages == []
            continue
        assert status in (Status.COMPLETED, Status.CANCELLED)
        assert not [stage for stage in stages if stage.status not in TERMINAL_RUN_STATUSES]
        told = await kernel.runs.events(run_id, limit=1_000)
        assert [event.sequence for event in told] == list(range(1, len(told) + 1))


class Points:
    """The places where the process may end; one of them does."""

    def __init__(self) -> None:
        self.passed, self.fatal = 0, 0

    def pass_by(self) -> None:
        self.passed += 1
        if self.passed == self.fatal:
            raise Crash

    def begin(self, fatal: int) -> None:
        self.passed, self.fatal = 0, fatal


class FragileSessions:
    """Sessions that pass by a point before each statement, and before and after each commit."""

    def __init__(self, sessions: Sessions, points: Points) -> None:
        self._sessions = sessions
        self._points = points
        self.reading = sessions.reading

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[Session]:
        async with self._sessions.writing() as session:
            yield FragileSession(session, self._points)
            self._points.pass_by()
        self._points.pass_by()


class FragileSession:
    can_restart = False

    def __init__(self, session: Session, points: Points) -> None:
        self._session = session
        self._points = points
        self.restart = session.restart
        self.savepoint = session.savepoint

    async def fetch(self, statement: Executable, parameters: Mapping[str, Any]) -> list[Row]:
        self._points.pass_by()
        return await self._session.fetch(statement, parameters)

    async def can_finish_at_once(self) -> bool:
        return False

    async def finish_with(self, statement: Executable, parameters: Mapping[str, Any]) -> list[Row]:
        return await self.fetch(statement, parameters)

    async def execute(self, statement: Executable, parameters: Mapping[str, Any]) -> int:
        self._points.pass_by()
        return await self._session.execute(statement, parameters)

    async def execute_all(
        self, statements: Sequence[tuple[Executable, Sequence[Mapping[str, Any]]]]
    ) -> list[list[int]]:
        changed = []
        for statement in statements:
            self._points.pass_by()
            changed += await self._session.execute_all([statement])
        return changed


@pytest.mark.guarantee("purges.cut-short-is-finished-by-the-next")
async def test_a_purge_that_is_cut_short_after_any_statement_is_finished_by_the_next(
    url: str,
    open_database: OpenDatabase,
    make_tables: MakeTables,
    make_kernel: MakeKernel,
    deliver_all: DeliverAll,
) -> None:
    world, points = World(), Points()
    database = open_database(url, wrap=lambda sessions: FragileSessions(sessions, points))
    await make_tables(database)
    kernel = make_kernel(database, world.flow(), spill_threshold_bytes=100)

    async def ended() -> str:
        run_id = (
            await kernel.dispatch(CreateRun("flow", idempotency_key="order-7", annotations=SAID))
        ).run_id
        assert await work(kernel, run_id) is Status.COMPLETED
        await kernel.dispatch(RedriveRun(run_id, from_=FromStage("b"), idempotency_key=f"again {run_id}"))
        assert await work(kernel, run_id) is Status.COMPLETED
        await deliver_all(kernel)
        return run_id

    async def purge() -> PurgeRunsResult:
        return await kernel.dispatch(PurgeRuns(kernel.ports.clock.now()))

    await ended()
    left = await counts(database)
    assert left.keys() >= {
        "idempotency_keys",
        "job_queue",
        "outbox_events",
        "workflow_annotations",
        "workflow_blobs",
    }
    points.begin(0)
    assert (await purge()).purged == 1
    length = points.passed
    assert length > 8
    assert await counts(database) == {}
    for fatal in range(1, length + 1):
        run_id = await ended()
        before = await counts(database)
        points.begin(fatal)
        with pytest.raises(Crash):
            await purge()
        points.begin(0)
        if await kernel.runs.get(run_id) is not None:
            assert await counts(database) == before
        else:
            assert PLAIN_TABLES.tombstones.name in (now := await counts(database)) or now == {}
            again = await ended()
            assert again != run_id
            assert world.steps[f"{again} a"] == 1
            assert sum(world.steps[f"{again} {stage_id}"] for stage_id in "abc") == 4
        await purge()
        assert await counts(database) == {}, f"point {fatal}"
