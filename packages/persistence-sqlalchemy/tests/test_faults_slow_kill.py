"""The database server is killed in the middle of many runs, and comes back: nothing is lost, nothing is done twice."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stagewright import Kernel, RetryPolicy, StageContext, Status, define_workflow
from stagewright.commands import CreateRun
from stagewright.errors import IdempotencyInProgressError, OutcomeUnknownError, TransientError
from stagewright.records import RunRecord
from stagewright.testing import CollectingEventSink
from stagewright_persistence_sqlalchemy import Database
from stagewright_test_support.backend_choice import stores

pytestmark = pytest.mark.slow

RUNS = 200
BEARS = (TransientError, OutcomeUnknownError)
LASTING = RetryPolicy(1, 1_000)


class Later:
    """The time when claims of now have expired."""

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(minutes=2)


@pytest.fixture
def start_server(way: str, request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Starts a server that the test may kill."""
    start: Callable[..., Any] = request.getfixturevalue(
        "mariadb_server" if way == "mariadb" else "postgres_server"
    )
    return start


@pytest.mark.parametrize(
    "way",
    stores("asyncpg", "psycopg", "mariadb"),
    indirect=True,
)
@pytest.mark.guarantee("sql.server-killed-no-run-lost")
async def test_every_run_completes_although_the_server_is_killed(
    way: str,
    start_server: Callable[..., Any],
    open_database: Callable[..., Database],
    make_tables: Callable[[Database], Awaitable[None]],
    make_kernel: Callable[..., Kernel],
    sink: CollectingEventSink,
    work_off: Callable[..., Coroutine[Any, Any, None]],
    deliver_all: Callable[[Kernel], Awaitable[None]],
    check_run: Callable[..., Coroutine[Any, Any, RunRecord]],
) -> None:
    server = await asyncio.to_thread(start_server, durable=True)
    url = await asyncio.to_thread(server.create_database, "killed")
    database = open_database(url.replace("postgresql://", f"postgresql+{way}://"))
    await make_tables(database)
    bodies: Counter[tuple[str, str]] = Counter()

    async def body(ctx: StageContext[Any]) -> Any:
        bodies[ctx.run_id, ctx.stage_id] += 1
        return ctx.input + 1

    builder = define_workflow("flow", input=Any)
    for number in range(3):
        builder = builder.stage(f"s{number}", body, input=Any, output=Any, retry=LASTING)
    kernel = make_kernel(database, builder.build())
    runs: list[str] = []
    created, ended = asyncio.Event(), asyncio.Event()

    async def create() -> None:
        for number in range(RUNS):
            # One by one: those that are there are worked on meanwhile.
            runs.insert(number, await _created(kernel, number))
        created.set()

    async def kill() -> None:
        for done in (RUNS // 4, RUNS):
            while len(bodies) < done:
                await asyncio.sleep(0.005)
            await asyncio.to_thread(server.kill)
            await asyncio.sleep(0.3)
            await asyncio.to_thread(server.restart)

    async def work() -> None:
        killing, releasing = asyncio.create_task(kill()), asyncio.create_task(_release(kernel, ended))
        creating = asyncio.create_task(create())
        while not created.is_set():
            await work_off(kernel, runs.copy(), workers=4, bears=BEARS)
            await asyncio.sleep(0.01)
        await creating
        await work_off(kernel, runs, bears=BEARS)
        ended.set()
        await asyncio.gather(killing, releasing)

    await work()
    # A flusher that was cut off keeps its claim for a while.
    await deliver_all(make_kernel(database, clock=Later()))
    assert len(set(runs)) == RUNS
    for number, run_id in enumerate(runs):
        await _completed(kernel, await check_run(kernel, run_id, repeated=True), number + 3)
    assert len({event.run_id for event in sink.events}) == RUNS


async def _release(kernel: Kernel, ended: asyncio.Event) -> None:
    """Give back, twice a second, what workers lost."""
    while not ended.is_set():
        await asyncio.sleep(0.5)
        try:
            await kernel.ports.job_transport.release_stale(timedelta(seconds=2))
        except BEARS:
            continue


async def _completed(kernel: Kernel, run: RunRecord, output: int) -> None:
    assert run.output == output
    told = Counter(event.type for event in await kernel.runs.events(run.id))
    assert told["stage:completed"] == 3
    assert {stage.status for stage in await kernel.runs.stages(run.id)} == {Status.COMPLETED}


async def _created(kernel: Kernel, number: int) -> str:
    """Create a run as a careful caller does: with a key, so that the command may be repeated until it is answered."""
    while True:
        try:
            return (await kernel.dispatch(CreateRun("flow", number, idempotency_key=f"run-{number}"))).run_id
        except (*BEARS, IdempotencyInProgressError):
            await asyncio.sleep(0.05)
