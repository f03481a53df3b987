"""What a run costs: statements and commits, as the driver sends them.

Counted from `CreateRun` until the run is COMPLETED, with claims and executions one by one, or with jobs that are handed
over and no claim but that of the run; after one run that has warmed up what is kept: compiled texts, the stored
definition. BEGIN, COMMIT and the three savepoint statements are counted apart. A commit is a COMMIT, or a statement
outside of a transaction that writes.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pytest
from sqlalchemy import event

from stagewright import Kernel, StageContext, Status, Workflow, define_workflow
from stagewright.commands import (
    CancelRun,
    ClaimJobs,
    ClaimPendingRuns,
    CreateRun,
    ExecuteJob,
    FlushOutbox,
    HeartbeatJob,
    JobRef,
    PollSuspendedStages,
    ReapStaleLeases,
    ReapStuckRuns,
)
from stagewright.hosting.job_runner import run_job
from stagewright.records import DequeuedJob
from stagewright_persistence_sqlalchemy import Database

pytestmark = pytest.mark.usefixtures("each_commit_tells")

T = TypeVar("T")
MOST_COMMITS = 8
MOST_STATEMENTS = 16
MOST_SAVEPOINT_STATEMENTS = 0
HANDED_OVER_COMMITS = 5
HANDED_OVER_STATEMENTS = 6
HANDED_OVER_ROUND_TRIPS = 8
BUDGETS = {
    "create": (1, 1),
    "claim runs": (4, 1),
    "claim jobs": (5, 1),
    "beat": (4, 1),
    "execute": (1, 1),
    "execute without its claim": (5, 1),
    "flush": (8, 2),
    "cancel": (6, 1),
    "poll in vain": (1, 0),
    "reap leases in vain": (3, 1),
    "reap runs in vain": (2, 0),
}
"""At most so many round trips and commits, by what is done; BEGIN and COMMIT are round trips."""


@dataclass
class Sent:
    """The statements of one connection or several, in the order in which they were sent."""

    texts: list[str] = field(default_factory=list)

    def note(self, query: Any) -> None:  # Any: what asyncpg tells of a query
        self.texts.append(" ".join(query.query.split()))

    @property
    def statements(self) -> list[str]:
        return [text for text in self.texts if _kind(text) == "statement"]

    @property
    def round_trips(self) -> int:
        return sum(_kind(text) != "show" for text in self.texts)

    @property
    def of_savepoints(self) -> list[str]:
        return [text for text in self.texts if _kind(text) == "savepoint"]

    @property
    def commits(self) -> int:
        inside, commits = False, 0
        for text in self.texts:
            match _kind(text):
                case "begin":
                    inside = True
                case "commit":
                    inside, commits = False, commits + 1
                case "rollback":
                    inside = False
                case "statement":
                    commits += (
                        not inside and re.search(r"\b(INSERT INTO|UPDATE|DELETE FROM)\b", text) is not None
                    )
                case _:
                    pass
        return commits

    def shown(self) -> str:
        lines = (f"{number:3} {text[:160]}" for number, text in enumerate(self.texts, 1))
        counted = f"{len(self.statements)} statements, {self.commits} commits, {len(self.of_savepoints)} of savepoints"
        return "\n".join((counted, *lines))


def _kind(text: str) -> str:
    first = text.split(maxsplit=1)[0].rstrip(";").upper()
    if first == "SAVEPOINT" or first == "RELEASE" or text.upper().startswith("ROLLBACK TO"):
        return "savepoint"
    # SHOW is asked once on each connection.
    return first.lower() if first in ("BEGIN", "COMMIT", "ROLLBACK", "SHOW") else "statement"


def _count(database: Database) -> Sent:
    sent = Sent()

    @event.listens_for(database.engine.sync_engine, "connect")
    def connect(connection: Any, record: object) -> None:  # Any: SQLAlchemy's adapted connection
        connection.driver_connection.add_query_logger(sent.note)

    return sent


def _flow() -> Workflow:
    async def body(ctx: StageContext[Any]) -> Any:
        return {"amount": ctx.input["amount"] + 1}

    builder = define_workflow("flow", input=Any)
    for number in range(1, 4):
        builder = builder.stage(f"s{number}", body, input=Any, output=Any)
    return builder.build()


async def _run_to_its_end(kernel: Kernel) -> str:
    created = await kernel.dispatch(CreateRun("flow", {"amount": 1}))
    await kernel.dispatch(ClaimPendingRuns("worker", max_claims=1))
    for _ in range(3):
        (job,) = (await kernel.dispatch(ClaimJobs("worker"))).jobs
        await run_job(kernel, job)
    # asyncpg tells of a statement a moment after its answer.
    await asyncio.sleep(0.01)
    return created.run_id


async def _handed_over_to_its_end(kernel: Kernel) -> str:
    created = await kernel.dispatch(CreateRun("flow", {"amount": 1}))
    claimed = await kernel.dispatch(ClaimPendingRuns("worker", max_claims=1, max_jobs=1))
    job: DequeuedJob | None = claimed.jobs[0]
    while job is not None:
        command = ExecuteJob(
            run_id=job.run_id,
            workflow_id=job.workflow_id,
            stage_id=job.stage_id,
            job=JobRef(job.job_id, job.fence),
            loaded=job.loaded,
            wakes_hosts=False,
            successor=lambda: "worker",
        )
        job = (await kernel.dispatch(command)).next_job
    await asyncio.sleep(0.01)
    return created.run_id


async def _cost_of_the_second(
    kernel: Kernel, sent: Sent, to_its_end: Callable[[Kernel], Awaitable[str]]
) -> Sent:
    """What a run costs after one that has warmed up what is kept."""
    await to_its_end(kernel)
    sent.texts.clear()
    run_id = await to_its_end(kernel)
    cost = Sent(sent.texts.copy())
    run = await kernel.runs.get(run_id)
    assert run is not None
    assert (run.status, run.output) == (Status.COMPLETED, {"amount": 4})
    return cost


@pytest.fixture
def way() -> str:
    return "asyncpg"


@pytest.mark.guarantee("sql.three-stages-eight-commits")
async def test_a_three_stage_run_stays_within_its_budget(
    url: str,
    open_database: Callable[..., Database],
    make_tables: Callable[[Database], Awaitable[None]],
    make_kernel: Callable[..., Kernel],
) -> None:
    database = open_database(url, pool_size=1)
    sent = _count(database)
    await make_tables(database)
    cost = await _cost_of_the_second(make_kernel(database, _flow()), sent, _run_to_its_end)
    assert cost.commits <= MOST_COMMITS, cost.shown()
    assert len(cost.statements) <= MOST_STATEMENTS, cost.shown()
    assert len(cost.of_savepoints) <= MOST_SAVEPOINT_STATEMENTS, cost.shown()


@pytest.mark.guarantee("sql.handed-over-runs-five-commits")
async def test_a_three_stage_run_whose_jobs_are_handed_over_stays_within_its_budget(
    url: str,
    open_database: Callable[..., Database],
    make_tables: Callable[[Database], Awaitable[None]],
    make_kernel: Callable[..., Kernel],
) -> None:
    database = open_database(url, pool_size=1)
    sent = _count(database)
    await make_tables(database)
    cost = await _cost_of_the_second(make_kernel(database, _flow()), sent, _handed_over_to_its_end)
    assert cost.commits <= HANDED_OVER_COMMITS, cost.shown()
    assert len(cost.statements) <= HANDED_OVER_STATEMENTS, cost.shown()
    assert cost.round_trips <= HANDED_OVER_ROUND_TRIPS, cost.shown()
    assert len(cost.of_savepoints) <= MOST_SAVEPOINT_STATEMENTS, cost.shown()


async def test_looking_for_work_in_vain_costs_one_statement_for_each_kind(
    url: str,
    open_database: Callable[..., Database],
    make_tables: Callable[[Database], Awaitable[None]],
    make_kernel: Callable[..., Kernel],
) -> None:
    database = open_database(url, pool_size=1)
    sent = _count(database)
    await make_tables(database)
    kernel = make_kernel(database, _flow())
    await kernel.dispatch(ClaimPendingRuns("worker"))
    await kernel.dispatch(ClaimJobs("worker"))
    # asyncpg tells of a statement a moment after its answer.
    await asyncio.sleep(0.01)
    sent.texts.clear()
    await kernel.dispatch(ClaimPendingRuns("worker"))
    await kernel.dispatch(ClaimJobs("worker"))
    await asyncio.sleep(0.01)
    assert len(sent.statements) == 2, sent.shown()


@pytest.mark.guarantee("sql.commands-within-their-budgets")
async def test_each_command_stays_within_its_round_trips_and_commits(
    url: str,
    open_database: Callable[..., Database],
    make_tables: Callable[[Database], Awaitable[None]],
    make_kernel: Callable[..., Kernel],
) -> None:
    database = open_database(url, pool_size=1)
    sent = _count(database)
    await make_tables(database)
    kernel = make_kernel(database, _flow())
    await _run_to_its_end(kernel)
    await kernel.dispatch(FlushOutbox())
    costs: dict[str, tuple[int, int]] = {}

    async def cost_of(name: str, work: Awaitable[T]) -> T:
        # asyncpg tells of a statement a moment after its answer.
        await asyncio.sleep(0.01)
        sent.texts.clear()
        result = await work
        await asyncio.sleep(0.01)
        costs[name] = sent.round_trips, sent.commits
        return result

    created = await cost_of("create", kernel.dispatch(CreateRun("flow", {"amount": 1})))
    await cost_of("claim runs", kernel.dispatch(ClaimPendingRuns("worker")))
    (job,) = (await cost_of("claim jobs", kernel.dispatch(ClaimJobs("worker")))).jobs
    beat = HeartbeatJob(job_id=job.job_id, run_id=job.run_id, fence=job.fence)
    await cost_of("beat", kernel.dispatch(beat))
    await cost_of("execute", run_job(kernel, job))
    (other,) = (await kernel.dispatch(ClaimJobs("worker"))).jobs
    await cost_of("execute without its claim", run_job(kernel, replace(other, loaded=None)))
    await cost_of("flush", kernel.dispatch(FlushOutbox()))
    await cost_of("cancel", kernel.dispatch(CancelRun(created.run_id)))
    await cost_of("poll in vain", kernel.dispatch(PollSuspendedStages()))
    await cost_of("reap leases in vain", kernel.dispatch(ReapStaleLeases(stale_threshold="45s")))
    await cost_of("reap runs in vain", kernel.dispatch(ReapStuckRuns(stuck_threshold="5m")))
    assert costs.keys() == BUDGETS.keys()
    assert {name: cost for name, cost in costs.items() if not _is_within(cost, BUDGETS[name])} == {}


def _is_within(cost: tuple[int, int], budget: tuple[int, int]) -> bool:
    return cost[0] <= budget[0] and cost[1] <= budget[1]
