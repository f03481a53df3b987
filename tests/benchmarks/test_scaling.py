"""Full tables are made of runs that workers take, and what is measured over them is told."""

from pathlib import Path

import asyncpg  # type: ignore[import-untyped]  # it ships no types
import pytest
from benchmarks.comparison import Result, RowResult
from benchmarks.entries import Entry, Row
from benchmarks.figures import Figures
from benchmarks.full_tables import Filling, fill_tables
from benchmarks.scaled_flow import scaled_flow
from benchmarks.scaling import ScalingSizes, measure_scaling
from benchmarks.scaling_report import ScalingReport, as_json, as_markdown

from stagewright import Status, open_kernel
from stagewright.hosting import wait_for_run
from stagewright_host_node import NodeHost
from stagewright_test_support.servers import PostgresServer

TINY = ScalingSizes(
    workers=2,
    seconds=0.3,
    waiting=1_500,
    finished=(0, 20),
    created=6,
    pending=(40, 60),
    suspended=(10, 20),
    slots=2,
    rounds=1,
)


@pytest.mark.parametrize("filling", ["pending", "suspended"])
async def test_a_worker_ends_every_run_that_tables_are_filled_with(
    postgres_url: str, filling: Filling
) -> None:
    await fill_tables(postgres_url, filling, 4)
    async with open_kernel(scaled_flow(), postgres_url) as kernel:
        runs = (await kernel.runs.list(statuses=[Status.RUNNING, Status.SUSPENDED])).items
        assert len({run.id for run in runs}) == 4
        async with NodeHost(kernel, handle_signals=False):
            for run in runs:
                assert (await wait_for_run(kernel, run.id, timeout=60)).output == 1


async def test_finished_runs_are_whole(postgres_url: str) -> None:
    before = await ended(postgres_url)
    await fill_tables(postgres_url, "finished", 3)
    after = await ended(postgres_url)
    assert [now - then for then, now in zip(before, after, strict=True)] == [3, 3, 3, 15]


async def ended(url: str) -> list[int]:
    """Runs, stages and jobs that are COMPLETED, and events that are delivered."""
    await fill_tables(url, "finished", 0)
    connection = await asyncpg.connect(url)
    try:
        return [
            await connection.fetchval(f"SELECT count(*) FROM {table} WHERE {condition}")
            for table, condition in (
                ("workflow_runs", "status = 'COMPLETED'"),
                ("workflow_stages", "status = 'COMPLETED'"),
                ("job_queue", "status = 'COMPLETED'"),
                ("outbox_events", "NOT pending"),
            )
        ]
    finally:
        await connection.close()


def test_what_was_measured_is_held_against_the_first_case() -> None:
    results = [
        Result(
            Entry("1 process", "", "postgresql", 9), {1: Figures(100, 1, more={"samples": 5, "locked": 0})}
        ),
        Result(
            Entry("2 processes", "", "postgresql", 9),
            {1: Figures(150, 1, more={"samples": 5, "locked": 1, "tuple": 1})},
        ),
        Result(Entry("3 processes", "", "postgresql", 9), failure="it took more than 2 s"),
    ]
    for result in results:
        result.loads.append(0.5)
    row = RowResult(Row("processes", "by processes", "runs/s", [one.entry for one in results]), results)
    report = ScalingReport([row], {}, {"system": "here"})
    page = as_markdown(report)
    assert "| 2 processes | 150 (150–150) | 1.50 (1.50–1.50) | 1 of 5 samples: tuple 1 |" in page
    assert "| 3 processes | failed: it took more than 2 s |" in page
    assert [case["ratios_to_first"] for case in as_json(report)["rows"][0]["cases"]] == [[1], [1.5], []]


@pytest.mark.wide
# The fixture isn't used for its server, which isn't durable, but for what a missing one means.
@pytest.mark.usefixtures("postgres_url")
def test_every_case_is_measured(tmp_path: Path) -> None:
    with PostgresServer.start(durable=True) as server:
        rows = measure_scaling(server, tmp_path, TINY, limit=120, tell=lambda _: None)
    assert [row.row.key for row in rows] == ["processes", "finished", "pending", "suspended"]
    assert [result.failure for row in rows for result in row.results] == [None] * 8
    assert all(result.values[0] > 0 for row in rows for result in row.results)
