"""The tables, their keys and their indexes: one for each thing that the engine keeps, under whatever names."""

from typing import Any, Final, Protocol

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    ForeignKey,
    Identity,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    UniqueConstraint,
    event,
    literal_column,
    or_,
    text,
)
from sqlalchemy.schema import SchemaItem

from stagewright_persistence_sqlalchemy.column_types import (
    BlobKey,
    ExactDecimal,
    ExactJson,
    LongBytes,
    LongText,
    Moment,
    Name,
    Topic,
)
from stagewright_persistence_sqlalchemy.partial_indexes import index_of_some

__all__ = [
    "GROUP_LOCKS",
    "Define",
    "define_ai_calls",
    "define_annotations",
    "define_blobs",
    "define_definitions",
    "define_group_locks",
    "define_idempotency_keys",
    "define_jobs",
    "define_logs",
    "define_outbox",
    "define_runs",
    "define_signals",
    "define_stages",
    "define_step_signals",
    "define_steps",
    "define_tombstones",
    "wants_a_job",
]

GROUP_LOCKS: Final = 256
"""How many rows claims on MariaDB lock; groups whose keys have the same hash share one."""

# Numbers rise in the order of insertion; they order what has the same time.
_POSITION: Final = BigInteger().with_variant(Integer(), "sqlite")


class Define(Protocol):
    """Makes a table of what it is called without a prefix, its columns, constraints and indexes.

    `since` is the version of the schema that brought it, where databases of before are worked on too.
    """

    def __call__(self, name: str, *items: SchemaItem, since: str = "") -> Table: ...


def define_runs(define: Define) -> Table:
    """Runs."""
    runs = define(
        "workflow_runs",
        Column("id", Name, primary_key=True),
        Column("created_at", Moment, nullable=False),
        Column("updated_at", Moment, nullable=False),
        Column("version", Integer, nullable=False),
        Column("workflow_id", Name, nullable=False),
        Column("workflow_name", LongText, nullable=False),
        Column("status", Name, nullable=False),
        Column("started_at", Moment),
        Column("completed_at", Moment),
        Column("duration_us", BigInteger),
        Column("input", ExactJson, nullable=False),
        Column("config", ExactJson, nullable=False),
        Column("output", ExactJson, nullable=False),
        Column("error", ExactJson, nullable=False),
        Column("priority", Integer, nullable=False),
        Column("total_cost", ExactDecimal),
        Column("total_tokens", BigInteger, nullable=False),
        Column("definition_version", Name),
        Column("redrive_count", Integer, nullable=False),
        # The sequence of the run's last event; raised under the row's lock, without a new version.
        Column("event_seq", BigInteger, nullable=False),
        Index("ix_workflow_runs_created", "created_at", "id"),
        Index("ix_workflow_runs_workflow", "workflow_id", "created_at", "id"),
        Index("ix_workflow_runs_status", "status", "created_at", "id"),
        Index("ix_workflow_runs_version", "definition_version", "workflow_id", "status"),
        Index("ix_workflow_runs_completed", "completed_at", "id"),
    )
    index_of_some(
        "ix_workflow_runs_pending",
        runs.c.priority.desc(),
        runs.c.created_at,
        runs.c.id,
        where=runs.c.status == "PENDING",
        led_by=runs.c.status,
    )
    return runs


def define_definitions(define: Define) -> Table:
    """What workflows were when their runs began."""
    return define(
        "workflow_definitions",
        Column("workflow_id", Name, nullable=False),
        Column("version", Name, nullable=False),
        Column("structure_hash", LongText, nullable=False),
        Column("snapshot", ExactJson, nullable=False),
        Column("created_at", Moment, nullable=False),
        PrimaryKeyConstraint("workflow_id", "version"),
    )


def define_stages(define: Define, runs: Table) -> Table:
    """Stages of runs."""
    stages = define(
        "workflow_stages",
        Column("id", Name, primary_key=True),
        Column("run_id", Name, ForeignKey(runs.c.id, ondelete="CASCADE"), nullable=False),
        Column("stage_id", Name, nullable=False),
        Column("stage_name", LongText, nullable=False),
        Column("stage_number", Integer, nullable=False),
        Column("execution_group", Integer, nullable=False),
        Column("attempt", Integer, nullable=False),
        Column("status", Name, nullable=False),
        Column("created_at", Moment, nullable=False),
        Column("updated_at", Moment, nullable=False),
        Column("version", Integer, nullable=False),
        Column("started_at", Moment),
        Column("completed_at", Moment),
        Column("duration_us", BigInteger),
        Column("error", ExactJson, nullable=False),
        Column("metrics", ExactJson, nullable=False),
        Column("suspended_state", ExactJson, nullable=False),
        Column("next_poll_at", Moment),
        Column("poll_interval_us", BigInteger),
        Column("max_wait_until", Moment),
        Column("output", ExactJson, nullable=False),
        Column("output_claim", ExactJson, nullable=False),
        Column("artifacts", ExactJson, nullable=False),
        Column("job_enqueued_at", Moment),
        Column("waiting_step_id", LongText),
        Column("nudged_at", Moment),
        Column("steps_reset_owed_at", Moment),
        UniqueConstraint("run_id", "stage_id"),
    )
    index_of_some(
        "ix_workflow_stages_due",
        stages.c.next_poll_at,
        stages.c.id,
        where=stages.c.status == "SUSPENDED",
        led_by=stages.c.status,
    )
    index_of_some(
        "ix_workflow_stages_owed",
        stages.c.updated_at,
        stages.c.id,
        where=wants_a_job(stages),
        led_by=stages.c.job_enqueued_at,
    )
    return stages


def define_steps(define: Define) -> Table:
    """Durable steps of stages."""
    return define(
        "workflow_steps",
        Column("id", Name, primary_key=True),
        Column("stage_record_id", Name, nullable=False),
        Column("step_id", Name, nullable=False),
        Column("seq", Integer, nullable=False),
        Column("kind", LongText, nullable=False),
        Column("status", Name, nullable=False),
        Column("attempt", Integer, nullable=False),
        Column("lease_expires_at", Moment),
        Column("deadline_at", Moment),
        Column("external_key", LongText),
        Column("result", ExactJson, nullable=False),
        Column("error", ExactJson, nullable=False),
        Column("created_at", Moment, nullable=False),
        Column("updated_at", Moment, nullable=False),
        Column("stage_attempt", Integer, nullable=False, server_default=text("1")),
        Column("owner_job_id", LongText),
        Column("owner_deliveries", Integer),
        Column("retry_at", Moment),
        Column("result_claim", ExactJson),
        Column("poll_interval_us", BigInteger),
        Column("poll_failures", Integer, nullable=False, server_default=text("0")),
        UniqueConstraint("stage_record_id", "step_id"),
    )


def define_step_signals(define: Define, runs: Table) -> Table:
    """Signals that no step has taken yet."""
    return define(
        "workflow_signals",
        Column("id", Name, primary_key=True),
        Column("run_id", Name, ForeignKey(runs.c.id, ondelete="CASCADE"), nullable=False),
        Column("stage_id", Name, nullable=False),
        Column("step_id", Name, nullable=False),
        Column("payload", ExactJson, nullable=False),
        Column("payload_claim", ExactJson),
        Column("created_at", Moment, nullable=False),
        UniqueConstraint("run_id", "stage_id", "step_id"),
    )


def define_logs(define: Define, runs: Table) -> Table:
    """Log lines."""
    return define(
        "workflow_logs",
        Column("position", _POSITION, Identity(), primary_key=True),
        Column("id", Name, nullable=False, unique=True),
        Column("run_id", Name, ForeignKey(runs.c.id, ondelete="CASCADE"), nullable=False),
        Column("stage_record_id", Name),
        Column("stage_id", Name),
        Column("level", LongText, nullable=False),
        Column("message", LongText, nullable=False),
        Column("fields", ExactJson, nullable=False),
        Column("created_at", Moment, nullable=False),
        Index("ix_workflow_logs_run", "run_id", "created_at", "id"),
    )


def define_annotations(define: Define, runs: Table, stages: Table) -> Table:
    """Annotations."""
    return define(
        "workflow_annotations",
        Column("position", _POSITION, Identity(), primary_key=True),
        Column("id", Name, nullable=False, unique=True),
        Column("run_id", Name, ForeignKey(runs.c.id, ondelete="CASCADE"), nullable=False),
        Column("stage_record_id", Name, ForeignKey(stages.c.id, ondelete="SET NULL")),
        Column("attempt", Integer, nullable=False),
        Column("scope", LongText, nullable=False),
        Column("scope_id", LongText),
        Column("actor_kind", LongText),
        Column("actor_id", LongText),
        Column("actor_version", LongText),
        Column("key", Name, nullable=False),
        Column("value", ExactJson, nullable=False),
        Column("payload", ExactJson, nullable=False),
        Column("idempotency_key", Name),
        Column("created_at", Moment, nullable=False),
        UniqueConstraint("run_id", "key", "idempotency_key"),
        Index("ix_workflow_annotations_created", "run_id", "created_at", "position"),
        # A stage that is deleted is looked for here.
        Index("ix_workflow_annotations_stage", "stage_record_id"),
    )


def define_jobs(define: Define) -> Table:
    """Jobs."""
    jobs = define(
        "job_queue",
        Column("position", _POSITION, Identity(), primary_key=True),
        Column("id", Name, nullable=False, unique=True),
        Column("run_id", Name, nullable=False),
        Column("stage_id", Name, nullable=False),
        Column("workflow_id", Name, nullable=False),
        Column("definition_version", Name),
        Column("payload", ExactJson, nullable=False),
        Column("priority", Integer, nullable=False),
        Column("status", Name, nullable=False),
        Column("deliveries", Integer, nullable=False),
        Column("failures", Integer, nullable=False),
        Column("worker_losses", Integer, nullable=False),
        Column("interruptions", Integer, nullable=False),
        Column("max_attempts", Integer, nullable=False),
        Column("max_worker_losses", Integer, nullable=False),
        Column("worker_id", LongText),
        Column("created_at", Moment, nullable=False),
        Column("updated_at", Moment, nullable=False),
        Column("started_at", Moment),
        Column("locked_at", Moment),
        Column("completed_at", Moment),
        Column("due_at", Moment),
        Column("last_error", LongText),
        # Empty for jobs of the group without a value; no other group's key is.
        Column("group_key", Name, nullable=False, server_default=text("''")),
        UniqueConstraint("run_id", "stage_id"),
    )
    _index_jobs(jobs)
    return jobs


def _index_jobs(jobs: Table) -> None:
    index_of_some(
        "ix_job_queue_groups",
        jobs.c.group_key,
        jobs.c.priority.desc(),
        jobs.c.position,
        where=jobs.c.status == "PENDING",
        led_by=jobs.c.status,
    )
    index_of_some(
        "ix_job_queue_pending",
        jobs.c.priority.desc(),
        jobs.c.position,
        where=jobs.c.status == "PENDING",
        led_by=jobs.c.status,
    )
    index_of_some(
        "ix_job_queue_leases",
        jobs.c.locked_at,
        where=jobs.c.status == "RUNNING",
        led_by=jobs.c.status,
    )
    # Spelled out one by one: only so SQLite sees that it fits one of them. Whatever is claimed and done never
    # enters it.
    stopped = or_(
        *(jobs.c.status == literal_column(f"'{name}'") for name in ("FAILED", "SUSPENDED", "CANCELLED"))
    )
    index_of_some(
        "ix_job_queue_stopped",
        jobs.c.status,
        jobs.c.position,
        where=stopped,
    )


def define_group_locks(define: Define) -> Table:
    """What claims on MariaDB lock in the place of groups of jobs.

    The rows come with the table, here as in migrations: one that a claim makes can't be passed over by others.
    """
    bucket = Column("bucket", Integer, primary_key=True, autoincrement=False)
    group_locks = define("job_group_locks", bucket, since="0011")
    event.listen(group_locks, "after_create", _make_group_locks)
    return group_locks


def _make_group_locks(table: Table, connection: Connection, **_options: Any) -> None:
    if connection.dialect.name == "mariadb":
        connection.execute(table.insert(), [{"bucket": bucket} for bucket in range(GROUP_LOCKS)])


def define_outbox(define: Define, runs: Table) -> Table:
    """Events."""
    outbox = define(
        "outbox_events",
        Column("id", Name, primary_key=True),
        Column("run_id", Name, ForeignKey(runs.c.id, ondelete="CASCADE"), nullable=False),
        Column("sequence", BigInteger, nullable=False),
        Column("type", LongText, nullable=False),
        Column("payload", ExactJson, nullable=False),
        Column("causation_id", LongText, nullable=False),
        Column("occurred_at", Moment, nullable=False),
        # Published and dead-lettered events leave the index of those that wait.
        Column("pending", Boolean(create_constraint=False), nullable=False),
        Column("published_at", Moment),
        Column("retry_count", Integer, nullable=False),
        Column("retry_at", Moment),
        Column("last_error", LongText),
        Column("last_error_at", Moment),
        Column("delivered_to", ExactJson, nullable=False),
        Column("dead_lettered_at", Moment),
        Column("claim_token", LongText),
        Column("claimed_until", Moment),
        UniqueConstraint("run_id", "sequence"),
    )
    index_of_some(
        "ix_outbox_events_pending",
        outbox.c.occurred_at,
        outbox.c.run_id,
        outbox.c.sequence,
        where=outbox.c.pending,
        led_by=outbox.c.pending,
    )
    index_of_some(
        "ix_outbox_events_dead",
        outbox.c.dead_lettered_at,
        where=outbox.c.dead_lettered_at.is_not(None),
    )
    return outbox


def define_idempotency_keys(define: Define) -> Table:
    """Idempotency keys."""
    return define(
        "idempotency_keys",
        Column("key", Name, nullable=False),
        Column("command_type", Name, nullable=False),
        Column("fingerprint", LongText, nullable=False),
        Column("acquired_at", Moment, nullable=False),
        Column("completed", Boolean(create_constraint=False), nullable=False),
        Column("result", ExactJson, nullable=False),
        Column("run_id", Name),
        PrimaryKeyConstraint("key", "command_type"),
        Index("ix_idempotency_keys_run", "run_id"),
    )


def define_signals(define: Define) -> Table:
    """One row; it counts notifications where the database itself has none."""
    return define(
        "work_signals",
        Column("id", Integer, primary_key=True, autoincrement=False),
        Column("count", BigInteger, nullable=False),
    )


def define_blobs(define: Define) -> Table:
    """Large values."""
    return define(
        "workflow_blobs",
        Column("key", BlobKey, primary_key=True),
        Column("data", LongBytes, nullable=False),
        Column("content_type", LongText),
        Column("created_at", Moment, nullable=False),
        Column("updated_at", Moment, nullable=False),
    )


def define_tombstones(define: Define) -> Table:
    """What is left of runs that are being purged."""
    return define(
        "run_tombstones",
        Column("run_id", Name, primary_key=True),
        Column("blob_prefixes", ExactJson, nullable=False),
        Column("stage_ids", ExactJson, nullable=False),
        Column("stage_record_ids", ExactJson, nullable=False),
        Column("created_at", Moment, nullable=False),
    )


def define_ai_calls(define: Define) -> Table:
    """Model calls."""
    return define(
        "ai_calls",
        Column("position", _POSITION, Identity(), primary_key=True),
        Column("id", Name, nullable=False, unique=True),
        Column("topic", Topic, nullable=False),
        Column("call_type", Name, nullable=False),
        Column("model_key", Name, nullable=False),
        Column("model_id", Name, nullable=False),
        Column("prompt", LongText, nullable=False),
        Column("response", LongText, nullable=False),
        Column("input_tokens", BigInteger),
        Column("output_tokens", BigInteger),
        Column("cost", ExactDecimal),
        Column("metadata", ExactJson, nullable=False),
        Column("batch_id", Name),
        Column("request_id", Name),
        Column("estimated_cost", ExactDecimal),
        Column("reported_cost", ExactDecimal),
        Column("cost_source", Name),
        Column("served_by", Name),
        Column("cached_input_tokens", BigInteger),
        Column("reasoning_tokens", BigInteger),
        Column("created_at", Moment, nullable=False),
        UniqueConstraint("batch_id", "request_id"),
        Index("ix_ai_calls_topic", "topic", "position"),
        since="0009",
    )


def wants_a_job(stages: Table) -> ColumnElement[bool]:
    """Whether a stage waits for a job that no transport has yet."""
    resumes = (stages.c.status == literal_column("'SUSPENDED'")) & stages.c.next_poll_at.is_(None)
    waits = (stages.c.status == literal_column("'PENDING'")) | resumes
    return waits & stages.c.job_enqueued_at.is_(None)
