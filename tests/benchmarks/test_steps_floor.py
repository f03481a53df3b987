"""The floor of steps is one only if it writes what Stagewright writes of them."""

from datetime import datetime
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # it ships no types
from benchmarks.step_replay import open_steps
from benchmarks.steps_floor import open_steps_floor

OF_ITS_OWN = {"id", "stage_record_id", "owner_job_id", "external_key"}


async def rows_of_steps(url: str) -> list[dict[str, Any]]:
    connection = await asyncpg.connect(url)
    try:
        found = await connection.fetch("DELETE FROM workflow_steps WHERE step_id LIKE 'step-%' RETURNING *")
    finally:
        await connection.close()
    rows = [{name: shape(name, value) for name, value in row.items()} for row in found]
    return sorted(rows, key=lambda row: int(row["seq"]))


def shape(name: str, value: Any) -> Any:
    """A value without what differs from step to step: ids and times."""
    return type(value).__name__ if name in OF_ITS_OWN or isinstance(value, datetime) else value


async def test_the_floor_writes_the_steps_that_stagewright_writes(postgres_url: str) -> None:
    async with open_steps(postgres_url) as take, open_steps_floor(postgres_url) as take_floor:
        await take(3)
        written = await rows_of_steps(postgres_url)
        assert await take_floor(3) == 3
        assert await rows_of_steps(postgres_url) == written
        assert len(written) == 3
