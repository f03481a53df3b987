"""Databases that older versions left, full of odd rows, brought to today's schema; their runs go on."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from old_database import ODD, OPEN, Rows, copy_runs, make_runs, opened, read_rows, reflected, row_count
from schema_builds import Build
from sqlalchemy import inspect, text
from sqlalchemy.ext.asyncio import AsyncEngine

from stagewright import Kernel, Status
from stagewright.commands import (
    ClaimJobs,
    ClaimPendingRuns,
    FlushOutbox,
    PollSuspendedStages,
    ReapStaleLeases,
    RedriveRun,
    SignalStep,
)
from stagewright.errors import RunStateError
from stagewright.hosting.job_runner import run_job
from stagewright.records import RunRecord
from stagewright.status import TERMINAL_RUN_STATUSES
from stagewright.testing import assert_consistent
from stagewright_persistence_sqlalchemy import create_engine, schema
from stagewright_persistence_sqlalchemy.schema_state import VERSION_TABLE

TEN_THOUSAND = 10_000
EARLIER = ["0001", "0006", "0008"]


@pytest.fixture(params=["sqlite", "asyncpg", "mariadb"])
def url(request: pytest.FixtureRequest, new_database: Callable[[str], str]) -> str:
    """An empty database."""
    return new_database(request.param)


@pytest.fixture
def todays_url(url: str, tmp_path: Path, new_database: Callable[[str], str]) -> str:
    """Another one of the same kind."""
    way = "mariadb" if url.startswith("mariadb") else "asyncpg"
    return f"sqlite:///{tmp_path}/today.db" if url.startswith("sqlite") else new_database(way)


@pytest_asyncio.fixture
async def engine(url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_engine(url)
    yield engine
    await engine.dispose()


async def rows_of_today(url: str, values: list[Any]) -> Rows:
    """The rows of runs in every state, as this version writes them."""
    engine = create_engine(url)
    await schema.upgrade(engine)
    async with opened(url) as kernel:
        await make_runs(kernel, values)
    async with engine.connect() as connection:
        rows = await connection.run_sync(lambda one: read_rows(one, reflected(one)))
    await engine.dispose()
    return rows


async def finish(kernel: Kernel) -> None:
    """Work until no run is open."""
    await kernel.dispatch(ReapStaleLeases(0))
    async with asyncio.timeout(900):
        while (await kernel.runs.list(statuses=set(Status) - TERMINAL_RUN_STATUSES, limit=1)).items:
            await kernel.dispatch(PollSuspendedStages(max_checks=100))
            await kernel.dispatch(ClaimPendingRuns("today", max_claims=50))
            jobs = (await kernel.dispatch(ClaimJobs("today", limit=20))).jobs
            await asyncio.gather(*(run_job(kernel, job) for job in jobs))
            await kernel.dispatch(FlushOutbox())


async def every_run(kernel: Kernel) -> list[RunRecord]:
    runs: list[RunRecord] = []
    cursor = None
    while True:
        page = await kernel.runs.list(limit=1_000, cursor=cursor)
        runs += page.items
        cursor = page.next_cursor
        if cursor is None:
            return runs


async def go_on(url: str) -> None:
    """Bring every run to its end with today's code, and see that each has the value that it was given."""
    looked: list[str] = []
    async with opened(url, looked.append) as kernel:
        before = await every_run(kernel)
        hows = {run.id: json.loads(json.dumps(run.input))["how"] for run in before}
        assert set(hows.values()) == {*OPEN, "well", "fails once", "not wanted"}
        for run in before:
            assert isinstance(run.input, dict)
            if hows[run.id] == "waiting for a signal":
                try:
                    await kernel.dispatch(SignalStep(run.id, "a", "answer", payload=run.input["value"]))
                except RunStateError:
                    pytest.fail(f"{run.id} doesn't wait any more")
            if hows[run.id] == "fails once":
                await kernel.dispatch(RedriveRun(run.id))
        await finish(kernel)
        after = await every_run(kernel)
        assert [run.id for run in after] == [run.id for run in before]
        for run in after:
            assert isinstance(run.input, dict)
            if hows[run.id] == "not wanted":
                assert run.status is Status.CANCELLED
                continue
            assert run.status is Status.COMPLETED, (hows[run.id], run.error)
            # Exactly: -0.0 and 0.0 differ, and so do 1 and 1.0.
            assert repr(await kernel.runs.output_of(run.id, "b")) == repr(run.input["value"])
        executed = {hows[run_id] for run_id in looked}
        assert executed == {"never claimed", "claimed", "its worker lost"}, (
            "what was recorded isn't done again"
        )
        assert len(looked) == len(set(looked))
        await assert_consistent(kernel)


async def rehearse(
    url: str, todays_url: str, engine: AsyncEngine, folder: Path, version: str, values: list[Any], count: int
) -> None:
    """Fill a database of an older version, upgrade it, compare every row, and go on."""
    rows = await rows_of_today(todays_url, values)
    with Build.of_version(version, folder / "earlier").acting():
        await schema.upgrade(engine)
    async with engine.begin() as connection:
        await connection.execute(text(f"ALTER TABLE {VERSION_TABLE} DROP COLUMN oldest_build"))
    found = await copy_runs(rows, engine, at_least=count)
    async with engine.connect() as connection:
        assert await connection.run_sync(row_count, found) >= count
        before = await connection.run_sync(read_rows, found)
    assert await schema.upgrade(engine) == schema.Upgrade(before=version, after=schema.HEAD)
    async with engine.connect() as connection:
        after = await connection.run_sync(read_rows, found)
        tables = await connection.run_sync(lambda one: inspect(one).get_table_names())
    assert set(before) <= set(tables)
    for table in before:
        assert repr(after[table]) == repr(before[table]), table
    await go_on(url)


@pytest.mark.guarantee("sql.upgrades-change-no-value")
async def test_runs_of_an_older_version_are_upgraded_and_go_on(
    url: str, todays_url: str, engine: AsyncEngine, tmp_path: Path
) -> None:
    values = [list(ODD.values()), ODD["nothing"]]
    await rehearse(url, todays_url, engine, tmp_path, "0006", values, 1)


@pytest.mark.wide
@pytest.mark.parametrize("version", EARLIER)
@pytest.mark.guarantee("sql.upgrades-change-no-value")
async def test_ten_thousand_odd_rows_are_upgraded_and_their_runs_go_on(
    url: str, todays_url: str, engine: AsyncEngine, tmp_path: Path, version: str
) -> None:
    # The first version kept no results of steps elsewhere.
    values = [value for name, value in ODD.items() if (name, version) != ("large", "0001")]
    await rehearse(url, todays_url, engine, tmp_path, version, values, TEN_THOUSAND)
