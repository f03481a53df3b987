"""The floor of durable steps on PostgreSQL: the two writes of each, one after the other, by asyncpg alone.

It writes what Stagewright writes of a step, into the table of Stagewright's own migration, on one connection.
"""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # it ships no types

__all__ = ["open_steps_floor"]

# What it may do later must be known before it has an effect; what came of it, before the body goes on.
_BEGIN = """
INSERT INTO workflow_steps
  (id, stage_record_id, step_id, seq, kind, status, attempt, lease_expires_at, result, error, created_at, updated_at,
   stage_attempt, owner_job_id, owner_deliveries, poll_failures, external_key, result_claim)
VALUES (uuidv7()::text, $1, $2, $3, 'run', 'running', 1, now() + interval '1 hour', 'null', 'null', now(), now(),
   1, $4, 1, 0, $5, 'null')
ON CONFLICT DO NOTHING RETURNING id
"""
_END = """
UPDATE workflow_steps SET status = 'completed', result = $2, lease_expires_at = NULL, updated_at = now()
WHERE id = $1 AND status = 'running' AND attempt = 1
"""


@asynccontextmanager
async def open_steps_floor(url: str) -> AsyncIterator[Callable[[int], Awaitable[int]]]:
    """What does so many steps of a stage, and gives the sum of their results.

    Args:
        url: A database with Stagewright's tables.
    """
    connection: Any = await asyncpg.connect(url)
    try:

        async def take(steps: int) -> int:
            stage, job, total = uuid.uuid4().hex, uuid.uuid4().hex, 0
            for number in range(steps):
                key = f"wfe-{uuid.uuid4().hex}"
                step = await connection.fetchval(_BEGIN, stage, f"step-{number}", number + 1, job, key)
                assert await connection.execute(_END, step, str(number)) == "UPDATE 1"
                total += number
            return total

        yield take
    finally:
        await connection.close()
