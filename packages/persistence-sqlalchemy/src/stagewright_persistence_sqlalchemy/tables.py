"""The tables, their keys and their indexes: one for each thing that the engine keeps."""

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
)

from stagewright_persistence_sqlalchemy.column_types import ExactDecimal, ExactJson, Moment

__all__ = [
    "annotations",
    "blobs",
    "definitions",
    "idempotency_keys",
    "jobs",
    "logs",
    "metadata",
    "outbox",
    "runs",
    "signals",
    "stages",
    "steps",
]

metadata: Final = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# Numbers rise in the order of insertion; they order what has the same time.
_POSITION: Final = BigInteger().with_variant(Integer(), "sqlite")

runs: Final = Table(
    "workflow_runs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("created_at", Moment, nullable=False),
    Column("updated_at", Moment, nullable=False),
    Column("version", Integer, nullable=False),
    Column("workflow_id", Text, nullable=False),
    Column("workflow_name", Text, nullable=False),
    Column("status", Text, nullable=False),
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
    Column("definition_version", Text),
    Column("redrive_count", Integer, nullable=False),
    # The sequence of the run's last event; raised under the row's lock, without a new version.
    Column("event_seq", BigInteger, nullable=False),
    Index("ix_workflow_runs_created", "created_at", "id"),
    Index("ix_workflow_runs_workflow", "workflow_id", "created_at", "id"),
    Index("ix_workflow_runs_status", "status", "created_at", "id"),
    Index("ix_workflow_runs_version", "definition_version", "workflow_id", "status"),
)
Index(
    "ix_workflow_runs_pending",
    runs.c.priority.desc(),
    runs.c.created_at,
    runs.c.id,
    postgresql_where=runs.c.status == "PENDING",
    sqlite_where=runs.c.status == "PENDING",
)

definitions: Final = Table(
    "workflow_definitions",
    metadata,
    Column("workflow_id", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("structure_hash", Text, nullable=False),
    Column("snapshot", ExactJson, nullable=False),
    Column("created_at", Moment, nullable=False),
    PrimaryKeyConstraint("workflow_id", "version"),
)

stages: Final = Table(
    "workflow_stages",
    metadata,
    Column("id", Text, primary_key=True),
    Column("run_id", Text, ForeignKey("workflow_runs.id", ondelete="CASCADE"), nullable=False),
    Column("stage_id", Text, nullable=False),
    Column("stage_name", Text, nullable=False),
    Column("stage_number", Integer, nullable=False),
    Column("execution_group", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("status", Text, nullable=False),
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
    UniqueConstraint("run_id", "stage_id"),
)
Index(
    "ix_workflow_stages_due",
    stages.c.next_poll_at,
    postgresql_where=stages.c.status == "SUSPENDED",
    sqlite_where=stages.c.status == "SUSPENDED",
)
Index(
    "ix_workflow_stages_owed",
    stages.c.created_at,
    postgresql_where=(stages.c.status == "PENDING") & stages.c.job_enqueued_at.is_(None),
    sqlite_where=(stages.c.status == "PENDING") & stages.c.job_enqueued_at.is_(None),
)

steps: Final = Table(
    "workflow_steps",
    metadata,
    Column("id", Text, primary_key=True),
    Column("stage_record_id", Text, nullable=False),
    Column("step_id", Text, nullable=False),
    Column("seq", Integer, nullable=False),
    Column("kind", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("lease_expires_at", Moment),
    Column("deadline_at", Moment),
    Column("external_key", Text),
    Column("result", ExactJson, nullable=False),
    Column("error", ExactJson, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("updated_at", Moment, nullable=False),
    UniqueConstraint("stage_record_id", "step_id"),
)

logs: Final = Table(
    "workflow_logs",
    metadata,
    Column("position", _POSITION, Identity(), primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("run_id", Text, ForeignKey("workflow_runs.id", ondelete="CASCADE"), nullable=False),
    Column("stage_record_id", Text),
    Column("stage_id", Text),
    Column("level", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("fields", ExactJson, nullable=False),
    Column("created_at", Moment, nullable=False),
    Index("ix_workflow_logs_run", "run_id", "position"),
)

annotations: Final = Table(
    "workflow_annotations",
    metadata,
    Column("position", _POSITION, Identity(), primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("run_id", Text, ForeignKey("workflow_runs.id", ondelete="CASCADE"), nullable=False),
    Column("stage_record_id", Text, ForeignKey("workflow_stages.id", ondelete="SET NULL")),
    Column("attempt", Integer, nullable=False),
    Column("scope", Text, nullable=False),
    Column("scope_id", Text),
    Column("actor_kind", Text),
    Column("actor_id", Text),
    Column("actor_version", Text),
    Column("key", Text, nullable=False),
    Column("value", ExactJson, nullable=False),
    Column("payload", ExactJson, nullable=False),
    Column("idempotency_key", Text),
    Column("created_at", Moment, nullable=False),
    UniqueConstraint("run_id", "key", "idempotency_key"),
    Index("ix_workflow_annotations_created", "run_id", "created_at", "position"),
)

jobs: Final = Table(
    "job_queue",
    metadata,
    Column("position", _POSITION, Identity(), primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("run_id", Text, nullable=False),
    Column("stage_id", Text, nullable=False),
    Column("workflow_id", Text, nullable=False),
    Column("definition_version", Text),
    Column("payload", ExactJson, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("status", Text, nullable=False),
    Column("deliveries", Integer, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("worker_losses", Integer, nullable=False),
    Column("interruptions", Integer, nullable=False),
    Column("max_attempts", Integer, nullable=False),
    Column("max_worker_losses", Integer, nullable=False),
    Column("worker_id", Text),
    Column("created_at", Moment, nullable=False),
    Column("updated_at", Moment, nullable=False),
    Column("started_at", Moment),
    Column("locked_at", Moment),
    Column("completed_at", Moment),
    Column("due_at", Moment),
    Column("last_error", Text),
    UniqueConstraint("run_id", "stage_id"),
)
Index(
    "ix_job_queue_pending",
    jobs.c.priority.desc(),
    jobs.c.position,
    postgresql_where=jobs.c.status == "PENDING",
    sqlite_where=jobs.c.status == "PENDING",
)
Index(
    "ix_job_queue_leases",
    jobs.c.locked_at,
    postgresql_where=jobs.c.status == "RUNNING",
    sqlite_where=jobs.c.status == "RUNNING",
)

outbox: Final = Table(
    "outbox_events",
    metadata,
    Column("id", Text, primary_key=True),
    Column("run_id", Text, ForeignKey("workflow_runs.id", ondelete="CASCADE"), nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("type", Text, nullable=False),
    Column("payload", ExactJson, nullable=False),
    Column("causation_id", Text, nullable=False),
    Column("occurred_at", Moment, nullable=False),
    # Published and dead-lettered events leave the index of those that wait.
    Column("pending", Boolean(create_constraint=False), nullable=False),
    Column("published_at", Moment),
    Column("retry_count", Integer, nullable=False),
    Column("retry_at", Moment),
    Column("last_error", Text),
    Column("last_error_at", Moment),
    Column("delivered_to", ExactJson, nullable=False),
    Column("dead_lettered_at", Moment),
    Column("claim_token", Text),
    Column("claimed_until", Moment),
    UniqueConstraint("run_id", "sequence"),
)
Index(
    "ix_outbox_events_pending",
    outbox.c.occurred_at,
    outbox.c.run_id,
    outbox.c.sequence,
    postgresql_where=outbox.c.pending,
    sqlite_where=outbox.c.pending,
)
Index(
    "ix_outbox_events_dead",
    outbox.c.dead_lettered_at,
    postgresql_where=outbox.c.dead_lettered_at.is_not(None),
    sqlite_where=outbox.c.dead_lettered_at.is_not(None),
)

idempotency_keys: Final = Table(
    "idempotency_keys",
    metadata,
    Column("key", Text, nullable=False),
    Column("command_type", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("acquired_at", Moment, nullable=False),
    Column("completed", Boolean(create_constraint=False), nullable=False),
    Column("result", ExactJson, nullable=False),
    PrimaryKeyConstraint("key", "command_type"),
)

# One row; it counts notifications where the database itself has none.
signals: Final = Table(
    "work_signals",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("count", BigInteger, nullable=False),
)

blobs: Final = Table(
    "workflow_blobs",
    metadata,
    Column("key", Text, primary_key=True),
    Column("data", LargeBinary, nullable=False),
    Column("content_type", Text),
    Column("created_at", Moment, nullable=False),
    Column("updated_at", Moment, nullable=False),
)
