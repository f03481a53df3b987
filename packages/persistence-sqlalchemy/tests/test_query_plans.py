"""What is asked for all the time finds its rows by an index, however many rows there are."""

from collections.abc import Mapping
from typing import Any

import psycopg
import pytest
from sqlalchemy import Executable

from stagewright.status import Status
from stagewright_persistence_sqlalchemy import Database
from stagewright_persistence_sqlalchemy.dialect import POSTGRESQL, SQLITE, DatabaseKind
from stagewright_persistence_sqlalchemy.prepared_statements import PreparedStatements
from stagewright_persistence_sqlalchemy.statements import (
    claims,
    deletions,
    fair_claims,
    job_listing,
    jobs,
    outbox,
    outlook,
    reads,
    waiting_stages,
)
from stagewright_persistence_sqlalchemy.tables import PLAIN_TABLES

FOUND_BEFORE = {
    "SCAN taken",
    "SCAN front",
    "SCAN ranked",
    "SCAN fit",
    "SCAN found",
    "SCAN names",
    "SCAN lost",
    "SCAN CONSTANT ROW",
    "SCAN with_an_end",
    "SCAN without_an_end",
    "SCAN ended",
    "SCAN heads",
    "SCAN of_failed",
    "SCAN of_suspended",
}


def hot_statements(kind: DatabaseKind) -> Mapping[str, tuple[Executable, str]]:
    """What hosts and commands send again and again, and an index by which each of them has to find its rows."""
    return {
        "claim of jobs": (claims.dequeue_jobs(PLAIN_TABLES, kind, None).at_once, "ix_job_queue_pending"),
        "claim of served jobs": (claims.dequeue_jobs(PLAIN_TABLES, kind, 2).at_once, "ix_job_queue_pending"),
        "fair claim of jobs": (fair_claims.claimable_groups(PLAIN_TABLES, kind, None), "ix_job_queue_groups"),
        "fair claim of served jobs": (
            fair_claims.claimable_groups(PLAIN_TABLES, kind, 2),
            "ix_job_queue_groups",
        ),
        "claim of runs": (
            claims.claim_pending_runs(PLAIN_TABLES, kind, None).at_once,
            "ix_workflow_runs_pending",
        ),
        "claim of served runs": (
            claims.claim_pending_runs(PLAIN_TABLES, kind, 2).at_once,
            "ix_workflow_runs_pending",
        ),
        "lost leases": (jobs.release_stale(PLAIN_TABLES, kind).at_once, "ix_job_queue_leases"),
        "jobs that failed": (
            job_listing.listed_jobs(PLAIN_TABLES, (Status.FAILED,), ("before",)),
            "ix_job_queue_stopped",
        ),
        "jobs that failed or wait": (
            job_listing.listed_jobs(
                PLAIN_TABLES, (Status.FAILED, Status.SUSPENDED), ("workflow_id", "before")
            ),
            "ix_job_queue_stopped",
        ),
        "all jobs": (
            job_listing.listed_jobs(PLAIN_TABLES, None, ("before",)),
            "INTEGER PRIMARY KEY" if kind is SQLITE else "pk_job_queue",
        ),
        "renewal": (
            jobs.touch(PLAIN_TABLES, kind),
            "autoindex_job_queue" if kind is SQLITE else "uq_job_queue_id",
        ),
        "first events": (outbox.first_pending_events(PLAIN_TABLES), "ix_outbox_events_pending"),
        "pending events": (outbox.pending_events(PLAIN_TABLES), "ix_outbox_events_pending"),
        "dead letters": (outbox.dead_letters(PLAIN_TABLES), "ix_outbox_events_dead"),
        "first events of runs": (outbox.heads_of_runs(PLAIN_TABLES, 2), "outbox_events_"),
        "due stages": (waiting_stages.due_stages(PLAIN_TABLES, None, lock=True), "ix_workflow_"),
        "owed stages": (waiting_stages.owed_stages(PLAIN_TABLES, None, lock=True), "ix_workflow_"),
        "runs to be purged": (deletions.runs_for_purge(PLAIN_TABLES, 3), "ix_workflow_runs_completed"),
        "a run and its stages": (reads.load_runs(PLAIN_TABLES, kind, 1, lock=True), "workflow_stages"),
        "what there is to do": (outlook.current_outlook(PLAIN_TABLES), "ix_outbox_events_pending"),
    }


async def plan_of(database: Database, statement: Executable) -> str:
    sql = PreparedStatements(database.engine.dialect).of(statement).sql
    if database.kind is POSTGRESQL:
        url = database.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
        async with await psycopg.AsyncConnection.connect(url) as connection:
            # With next to no rows reading all of them is cheapest; what counts is whether there is another way.
            await connection.execute("SET enable_seqscan = off")
            await connection.execute("SET enable_sort = off")
            asked = await connection.execute(f"EXPLAIN (GENERIC_PLAN) {sql}".encode())
            return "\n".join(row[0] for row in await asked.fetchall())
    async with database.engine.connect() as sqlite:
        driver: Any = (await sqlite.get_raw_connection()).driver_connection
        rows = await driver.execute_fetchall(f"EXPLAIN QUERY PLAN {sql}", [None] * sql.count("?"))
        return "\n".join(str(row[3]) for row in rows)


@pytest.mark.parametrize("name", sorted(hot_statements(SQLITE)))
async def test_a_hot_statement_finds_its_rows_by_an_index(database: Database, name: str) -> None:
    statement, index = hot_statements(database.kind)[name]
    plan = await plan_of(database, statement)
    assert index in plan
    # No table is read from end to end; what a part of the statement has found is, be it named or in brackets.
    scans = {
        line
        for line in plan.splitlines()
        if line.startswith("SCAN ") and " USING " not in line and "(" not in line
    }
    assert scans <= FOUND_BEFORE


async def test_whether_an_event_is_its_runs_first_is_not_looked_for_among_all_that_wait(
    database: Database,
) -> None:
    plan = await plan_of(database, outbox.first_pending_events(PLAIN_TABLES))
    assert plan.count("ix_outbox_events_pending") == 1
    of_its_run = "autoindex_outbox_events" if database.kind is SQLITE else "uq_outbox_events_run_id_sequence"
    assert of_its_run in plan
