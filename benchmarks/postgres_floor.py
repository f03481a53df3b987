"""The floor: the rows of a three-stage run on PostgreSQL, each transition one guarded statement, and no engine around.

It writes what Stagewright writes, into the tables of Stagewright's own migration, through asyncpg alone.
"""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # it ships no types
from benchmarks.contender import STAGES, WORKFLOW
from benchmarks.run_tables import RunTables, open_tables
from benchmarks.three_stage_flow import first_input, three_stages

__all__ = ["PostgresFloor", "open_floor"]

_EVENT = """INSERT INTO outbox_events
  (id, run_id, sequence, type, payload, causation_id, occurred_at, pending, retry_count, delivered_to)"""
_EVENT_VALUES = "uuidv7()::text, {run}, {sequence}, {type}, {payload}, uuidv7()::text, {at}, true, 0, '[]'"
_STAGE = """INSERT INTO workflow_stages
  (id, run_id, stage_id, stage_name, stage_number, execution_group, attempt, status, created_at, updated_at, version,
   error, metrics, suspended_state, output, output_claim, artifacts, job_enqueued_at)"""
_STAGE_VALUES = """uuidv7()::text, {run}, {stage}, {stage}, {number}, {number}, 1, 'PENDING', {at}, {at}, 1,
   'null', '{{}}', 'null', 'null', 'null', '{{}}', {at}"""
_JOB = """INSERT INTO job_queue
  (id, run_id, stage_id, workflow_id, definition_version, payload, priority, status, deliveries, failures,
   worker_losses, interruptions, max_attempts, max_worker_losses, created_at, updated_at)"""
_JOB_VALUES = """uuidv7()::text, {run}, {stage}, workflow_id, definition_version, '{{"config":{{}}}}', priority,
   'PENDING', 0, 0, 0, 0, 3, 3, clock_timestamp(), clock_timestamp()"""


def _event(run: str, sequence: str, kind: str, payload: str, at: str = "now()") -> str:
    return _EVENT_VALUES.format(run=run, sequence=sequence, type=f"'{kind}'", payload=payload, at=at)


_ISO = "'PT' || extract(epoch FROM {})::text || 'S'"
_MICROSECONDS = "(extract(epoch FROM {}) * 1000000)::bigint"
_STARTED = """format('{"stage_id":"%1$s","stage_name":"%1$s","stage_number":%2$s}', stage_id, stage_number)"""
_COMPLETED = (
    """format('{"stage_id":"%1$s","stage_name":"%1$s","duration":"%2$s"}', $2::text, """
    + _ISO.format("now() - stage_started_at")
    + ")"
)
_RUN_COMPLETED = (
    """format('{"duration":"%s","output":%s,"total_cost":"0","total_tokens":0}', """
    + _ISO.format("now() - started_at")
    + ", $3::text)"
)

_CREATE = f"""
WITH run AS (
  INSERT INTO workflow_runs
    (id, created_at, updated_at, version, workflow_id, workflow_name, status, input, config, output, error, priority,
     total_cost, total_tokens, definition_version, redrive_count, event_seq)
  VALUES (uuidv7()::text, now(), now(), 1, $1, $1, 'PENDING', $2, $3, 'null', 'null', 5, '0', 0, $4, 0, 1)
  RETURNING id
)
{_EVENT}
SELECT {_event("id", "1", "workflow:created", '''format('{"workflow_id":"%s"}', $1::text)''')} FROM run
"""

_CLAIM_RUNS = f"""
WITH taken AS (
  SELECT id FROM workflow_runs WHERE status = 'PENDING' ORDER BY priority DESC, created_at, id LIMIT $1
  FOR UPDATE SKIP LOCKED
), run AS (
  UPDATE workflow_runs r
  SET status = 'RUNNING', started_at = now(), updated_at = now(), version = version + 1, event_seq = event_seq + 1
  FROM taken WHERE r.id = taken.id
  RETURNING r.id, r.event_seq, r.workflow_id, r.definition_version, r.priority
), stage AS (
  {_STAGE} SELECT {_STAGE_VALUES.format(run="id", stage="$2", number="1", at="now()")} FROM run
), event AS (
  {_EVENT} SELECT {_event("id", "event_seq", "workflow:started", "'{}'")} FROM run
), job AS (
  {_JOB} SELECT {_JOB_VALUES.format(run="id", stage="$2")} FROM run
)
SELECT count(*) FROM run
"""

_CLAIM_JOBS = f"""
WITH taken AS (
  SELECT position FROM job_queue WHERE status = 'PENDING' AND (due_at IS NULL OR due_at <= clock_timestamp())
  ORDER BY priority DESC, position LIMIT $1 FOR UPDATE SKIP LOCKED
), job AS (
  UPDATE job_queue j
  SET status = 'RUNNING', worker_id = $2, deliveries = deliveries + 1, started_at = clock_timestamp(),
      locked_at = clock_timestamp(), updated_at = clock_timestamp(), due_at = NULL
  FROM taken WHERE j.position = taken.position
  RETURNING j.id, j.run_id, j.stage_id, j.started_at, j.deliveries
), run AS (
  UPDATE workflow_runs r SET event_seq = event_seq + 1 FROM job
  WHERE r.id = job.run_id AND r.status = 'RUNNING'
  RETURNING r.id, r.event_seq, r.input
), stage AS (
  UPDATE workflow_stages s
  SET status = 'RUNNING', started_at = now(), updated_at = now(), version = version + 1
  FROM job JOIN run ON run.id = job.run_id
  WHERE s.run_id = job.run_id AND s.stage_id = job.stage_id AND s.status = 'PENDING'
  RETURNING s.run_id, s.stage_id, s.stage_number, s.attempt
), event AS (
  {_EVENT} SELECT {_event("run_id", "event_seq", "stage:started", _STARTED)}
  FROM stage JOIN run ON run.id = stage.run_id
)
SELECT job.*, stage.attempt, coalesce(before.output, run.input) AS given
FROM job JOIN run ON run.id = job.run_id JOIN stage ON stage.run_id = job.run_id
LEFT JOIN workflow_stages before ON before.run_id = run.id AND before.stage_number = stage.stage_number - 1
"""

# $1 run, $2 stage, $3 output, $4 attempt, $5 job, $6 and $7 the job's fence
_GUARD = """
WITH run AS (
  SELECT id FROM workflow_runs WHERE id = $1 AND status = 'RUNNING' FOR UPDATE
), stage AS (
  UPDATE workflow_stages s
  SET status = 'COMPLETED', completed_at = now(), updated_at = now(), version = version + 1, output = $3,
      duration_us = {microseconds}
  FROM run WHERE s.run_id = run.id AND s.stage_id = $2 AND s.status = 'RUNNING' AND s.attempt = $4
  RETURNING s.run_id, s.started_at AS stage_started_at
), job AS (
  UPDATE job_queue j
  SET status = 'COMPLETED', completed_at = clock_timestamp(), updated_at = clock_timestamp(), locked_at = NULL
  FROM stage WHERE j.id = $5 AND j.status = 'RUNNING' AND j.started_at = $6 AND j.deliveries = $7
  RETURNING j.run_id
)""".format(microseconds=_MICROSECONDS.format("now() - s.started_at"))

_NEXT = f"""{_GUARD}, moved AS (
  UPDATE workflow_runs r SET event_seq = event_seq + 1 FROM stage WHERE r.id = stage.run_id
  RETURNING r.id, r.event_seq, r.workflow_id, r.definition_version, r.priority, stage.stage_started_at
), event AS (
  {_EVENT} SELECT {_event("id", "event_seq", "stage:completed", _COMPLETED)} FROM moved
), next_stage AS (
  {_STAGE} SELECT {_STAGE_VALUES.format(run="id", stage="$8", number="$9::integer", at="now()")} FROM moved
), next_job AS (
  {_JOB} SELECT {_JOB_VALUES.format(run="id", stage="$8")} FROM moved
)
SELECT count(*) FROM job
"""

_LAST = f"""{_GUARD}, moved AS (
  UPDATE workflow_runs r
  SET event_seq = event_seq + 2, version = version + 1, status = 'COMPLETED', completed_at = now(), updated_at = now(),
      output = $3, duration_us = {_MICROSECONDS.format("now() - r.started_at")}
  FROM stage WHERE r.id = stage.run_id
  RETURNING r.id, r.event_seq, r.started_at, stage.stage_started_at
), event AS (
  {_EVENT} SELECT {_event("id", "event_seq - 1", "stage:completed", _COMPLETED)} FROM moved
  UNION ALL SELECT {_event("id", "event_seq", "workflow:completed", _RUN_COMPLETED)} FROM moved
)
SELECT count(*) FROM job
"""

_DEFINITION = """
INSERT INTO workflow_definitions (workflow_id, version, structure_hash, snapshot, created_at)
VALUES ($1, $2, $3, $4, now())
"""


class PostgresFloor:
    """Three-stage runs by asyncpg alone.

    Args:
        pool: Connections to a database with Stagewright's tables, where the definition is known.
        tables: The tables of that database.
    """

    def __init__(self, pool: Any, tables: RunTables) -> None:
        self._pool = pool
        self.tables = tables
        self._version = three_stages().definition_version
        self._config = json.dumps({stage: {} for stage in STAGES}, separators=(",", ":"))

    async def create(self) -> None:
        given = json.dumps(first_input(), separators=(",", ":"))
        await self._pool.execute(_CREATE, WORKFLOW, given, self._config, self._version)

    async def claim_runs(self, limit: int) -> int:
        return int(await self._pool.fetchval(_CLAIM_RUNS, limit, STAGES[0]))

    async def claim_jobs(self, limit: int) -> Sequence[Any]:
        jobs: Sequence[Any] = await self._pool.fetch(_CLAIM_JOBS, limit, "floor")
        return jobs

    async def execute(self, job: Any) -> bool:
        output = json.dumps({"amount": json.loads(job["given"])["amount"] + 1}, separators=(",", ":"))
        stage = job["stage_id"]
        fence = (job["id"], job["started_at"], job["deliveries"])
        outcome = (job["run_id"], stage, output, job["attempt"], *fence)
        number = STAGES.index(stage) + 1
        if number < len(STAGES):
            changed = await self._pool.fetchval(_NEXT, *outcome, STAGES[number], number + 1)
        else:
            changed = await self._pool.fetchval(_LAST, *outcome)
        if changed != 1:
            raise AssertionError(f"the floor lost job {job['id']}")
        return number == len(STAGES)


@asynccontextmanager
async def open_floor(
    url: str, *, connections: int, note: Callable[[Any], None] | None = None
) -> AsyncIterator[PostgresFloor]:
    """A floor over a database that has Stagewright's tables; `note` is told of each statement that is sent."""

    async def prepare(connection: Any) -> None:
        if note is not None:
            connection.add_query_logger(note)

    workflow = three_stages()
    pool = asyncpg.create_pool(url, min_size=connections, max_size=connections, init=prepare)
    async with pool, open_tables(url) as tables:
        if not await pool.fetchval("SELECT count(*) FROM workflow_definitions"):
            snapshot = json.dumps(workflow.snapshot(), separators=(",", ":"))
            version = workflow.definition_version
            await pool.execute(_DEFINITION, workflow.id, version, workflow.structure_hash, snapshot)
        yield PostgresFloor(pool, tables)
