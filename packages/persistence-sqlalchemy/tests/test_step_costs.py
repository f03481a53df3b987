"""What a durable step costs: round trips, commits, changes of threads and texts, done and replayed."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import aiosqlite
import pytest
from sqlalchemy import event

from stagewright import Kernel, StageContext, Workflow, define_workflow
from stagewright.commands import ClaimJobs, ClaimPendingRuns, CreateRun, PollSuspendedStages
from stagewright.hosting.job_runner import run_job
from stagewright_persistence_sqlalchemy import Database, prepared_statements

FEW, MANY = 3, 30
OpenDatabase = Callable[..., Database]
MakeTables = Callable[[Database], Awaitable[None]]
MakeKernel = Callable[..., Kernel]


@dataclass
class Cost:
    """What was counted while a stage's steps were done, or found done."""

    texts: list[str] = field(default_factory=list)
    thread_calls: int = 0
    prepared: int = 0

    @property
    def writes(self) -> list[str]:
        return [text for text in self.texts if re.search(r"\b(INSERT INTO|UPDATE) workflow_steps\b", text)]

    @property
    def shown(self) -> str:
        return "\n".join(f"{number:3} {text[:120]}" for number, text in enumerate(self.texts, 1))


def _flow() -> Workflow:
    async def one() -> int:
        return 1

    async def body(ctx: StageContext[int]) -> int:
        done = [await ctx.step.run(f"step-{number}", one) for number in range(ctx.input)]
        await ctx.step.sleep("pause", "10ms")
        return sum(done)

    return define_workflow("flow", input=int).stage("s", body, input=int, output=int).build()


async def _done_and_replayed(kernel: Kernel, counted: Cost, size: int) -> tuple[Cost, Cost]:
    """The costs of an invocation that does so many steps, and of one that finds them done."""

    async def execute() -> Cost:
        (job,) = (await kernel.dispatch(ClaimJobs("worker"))).jobs
        # asyncpg tells of a statement a moment after its answer.
        await asyncio.sleep(0.01)
        counted.texts.clear()
        before = counted.thread_calls, counted.prepared
        await run_job(kernel, job)
        await asyncio.sleep(0.01)
        texts = counted.texts.copy()
        return Cost(texts, counted.thread_calls - before[0], counted.prepared - before[1])

    created = await kernel.dispatch(CreateRun("flow", size))
    await kernel.dispatch(ClaimPendingRuns("worker"))
    done = await execute()
    while not (await kernel.dispatch(PollSuspendedStages())).resumed:
        await asyncio.sleep(0.005)
    replayed = await execute()
    run = await kernel.runs.get(created.run_id)
    assert run is not None
    assert run.output == size
    return done, replayed


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch, each_commit_tells: None) -> Cost:
    cost = Cost()
    call: Any = aiosqlite.Connection._execute  # Any: it is untyped
    prepare = prepared_statements.PreparedStatement.__init__

    async def calling(self: Any, *given: Any, **named: Any) -> Any:  # Any: whatever is called in the thread
        cost.thread_calls += 1
        return await call(self, *given, **named)

    def preparing(self: Any, *given: Any) -> None:
        cost.prepared += 1
        prepare(self, *given)

    monkeypatch.setattr(aiosqlite.Connection, "_execute", calling)
    monkeypatch.setattr(prepared_statements.PreparedStatement, "__init__", preparing)
    return cost


def _listen(database: Database, cost: Cost) -> None:
    @event.listens_for(database.engine.sync_engine, "connect")
    def connect(connection: Any, record: object) -> None:  # Any: SQLAlchemy's adapted connection
        if database.kind.name == "postgresql":
            connection.driver_connection.add_query_logger(
                lambda query: cost.texts.append(" ".join(query.query.split()))
            )


@pytest.mark.guarantee("sql.a-step-is-two-round-trips")
async def test_a_step_costs_two_writes_and_a_replay_the_same_whatever_their_number(
    url: str,
    open_database: OpenDatabase,
    make_tables: MakeTables,
    make_kernel: MakeKernel,
    counted: Cost,
) -> None:
    database = open_database(url, pool_size=1)
    _listen(database, counted)
    await make_tables(database)
    kernel = make_kernel(database, _flow())
    await _done_and_replayed(kernel, counted, FEW)
    few, few_replayed = await _done_and_replayed(kernel, counted, FEW)
    many, many_replayed = await _done_and_replayed(kernel, counted, MANY)
    steps = MANY - FEW
    assert many.prepared == many_replayed.prepared == 0, "the texts of statements are made once"
    assert len(many_replayed.texts) == len(few_replayed.texts), many_replayed.shown
    assert many_replayed.thread_calls == few_replayed.thread_calls
    if database.kind.name == "postgresql":
        assert len(many.writes) - len(few.writes) == 2 * steps
        assert len(many.texts) - len(few.texts) == 2 * steps, many.shown
    else:
        assert many.thread_calls - few.thread_calls == 2 * steps
