"""The floor is one only if it writes what Stagewright writes: the same rows, with the same columns filled in."""

import re
from datetime import datetime
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # it ships no types
from benchmarks.contender import STAGES, Contender
from benchmarks.postgres_floor import open_floor
from benchmarks.run_tables import TABLES
from benchmarks.stagewright_runs import open_stagewright

# A number of microseconds, the worker's name, and numbers that a sequence gave.
OF_ITS_OWN = {"duration_us", "worker_id", "position"}
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
DURATION = re.compile(r"PT[\d.]+S")


async def test_the_floor_writes_the_rows_that_stagewright_writes(postgres_url: str) -> None:
    async with open_stagewright(postgres_url) as engine, open_floor(postgres_url, connections=1) as floor:
        assert await rows_of_one_run(floor, postgres_url) == await rows_of_one_run(engine, postgres_url)


async def rows_of_one_run(contender: Contender, url: str) -> dict[str, list[dict[str, Any]]]:
    await contender.tables.clear()
    await contender.create()
    assert await contender.claim_runs(10) == 1
    ended = []
    for _ in STAGES:
        (job,) = await contender.claim_jobs(1)
        ended.append(await contender.execute(job))
    assert ended == [False, False, True]
    connection = await asyncpg.connect(url)
    try:
        rows = {
            table: await connection.fetch(f"SELECT * FROM {table} ORDER BY id") for table in TABLES.values()
        }
    finally:
        await connection.close()
    return {
        table: sorted(({name: shape(name, value) for name, value in row.items()} for row in found), key=repr)
        for table, found in rows.items()
    }


def shape(name: str, value: Any) -> Any:
    """A value without what differs from run to run: ids, times and what is measured."""
    if value is None or not (name in OF_ITS_OWN or isinstance(value, datetime | str)):
        return value
    if name in OF_ITS_OWN or isinstance(value, datetime) or UUID.fullmatch(value):
        return type(value).__name__
    return DURATION.sub("PT…S", value)
