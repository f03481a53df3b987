"""The tables, their keys and their indexes: one for each thing that the engine keeps."""

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    ForeignKey,
    Identity,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    UniqueConstraint,
    literal_column,
    or_,
    text,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateIndex
from sqlalchemy.sql.compiler import SQLCompiler

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
from stagewright_persistence_sqlalchemy.mariadb_types import TABLE_OPTIONS

__all__ = [
    "ai_calls",
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
    "step_signals",
    "steps",
    "tombstones",
    "wants_a_job",
]

metadata: Final = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_LED_BY: Final = "stagewright_led_by"

# Numbers rise in the order of insertion; they order what has the same time.
_POSITION: Final = BigInteger().with_variant(Integer(), "sqlite")


def _index_of_some(
    name: str,
    *columns: ColumnElement[Any],
    where: ColumnElement[bool],
    led_by: Column[Any] | None = None,
) -> None:
    """An index of the rows that fit; on MariaDB, which has none such, one of all rows that `led_by` comes first in."""
    info = {} if led_by is None else {_LED_BY: led_by.name}
    Index(name, *columns, postgresql_where=where, sqlite_where=where, info=info)


@compiles(CreateIndex, "mariadb")
def _index_of_all(create: CreateIndex, compiler: Any, **options: Any) -> str:
    text: str = compiler.visit_create_index(create, **options)
    first = create.element.info.get(_LED_BY)
    return text if first is None else text.replace("(", f"({first}, ", 1)


runs: Final = Table(
    "workflow_runs",
    metadata,
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
    **TABLE_OPTIONS,
)
_index_of_some(
    "ix_workflow_runs_pending",
    runs.c.priority.desc(),
    runs.c.created_at,
    runs.c.id,
    where=runs.c.status == "PENDING",
    led_by=runs.c.status,
)

definitions: Final = Table(
    "workflow_definitions",
    metadata,
    Column("workflow_id", Name, nullable=False),
    Column("version", Name, nullable=False),
    Column("structure_hash", LongText, nullable=False),
    Column("snapshot", ExactJson, nullable=False),
    Column("created_at", Moment, nullable=False),
    PrimaryKeyConstraint("workflow_id", "version"),
    **TABLE_OPTIONS,
)

stages: Final = Table(
    "workflow_stages",
    metadata,
    Column("id", Name, primary_key=True),
    Column("run_id", Name, ForeignKey("workflow_runs.id", ondelete="CASCADE"), nullable=False),
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
    **TABLE_OPTIONS,
)
_index_of_some(
    "ix_workflow_stages_due",
    stages.c.next_poll_at,
    stages.c.id,
    where=stages.c.status == "SUSPENDED",
    led_by=stages.c.status,
)


def wants_a_job() -> ColumnElement[bool]:
    """Whether a stage waits for a job that no transport has yet."""
    resumes = (stages.c.status == literal_column("'SUSPENDED'")) & stages.c.next_poll_at.is_(None)
    waits = (stages.c.status == literal_column("'PENDING'")) | resumes
    return waits & stages.c.job_enqueued_at.is_(None)


_index_of_some(
    "ix_workflow_stages_owed",
    stages.c.updated_at,
    stages.c.id,
    where=wants_a_job(),
    led_by=stages.c.job_enqueued_at,
)

steps: Final = Table(
    "workflow_steps",
    metadata,
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
    **TABLE_OPTIONS,
)

# Signals that no step has taken yet.
step_signals: Final = Table(
    "workflow_signals",
    metadata,
    Column("id", Name, primary_key=True),
    Column("run_id", Name, ForeignKey("workflow_runs.id", ondelete="CASCADE"), nullable=False),
    Column("stage_id", Name, nullable=False),
    Column("step_id", Name, nullable=False),
    Column("payload", ExactJson, nullable=False),
    Column("payload_claim", ExactJson),
    Column("created_at", Moment, nullable=False),
    UniqueConstraint("run_id", "stage_id", "step_id"),
    **TABLE_OPTIONS,
)

logs: Final = Table(
    "workflow_logs",
    metadata,
    Column("position", _POSITION, Identity(), primary_key=True),
    Column("id", Name, nullable=False, unique=True),
    Column("run_id", Name, ForeignKey("workflow_runs.id", ondelete="CASCADE"), nullable=False),
    Column("stage_record_id", Name),
    Column("stage_id", Name),
    Column("level", LongText, nullable=False),
    Column("message", LongText, nullable=False),
    Column("fields", ExactJson, nullable=False),
    Column("created_at", Moment, nullable=False),
    Index("ix_workflow_logs_run", "run_id", "created_at", "id"),
    **TABLE_OPTIONS,
)

annotations: Final = Table(
    "workflow_annotations",
    metadata,
    Column("position", _POSITION, Identity(), primary_key=True),
    Column("id", Name, nullable=False, unique=True),
    Column("run_id", Name, ForeignKey("workflow_runs.id", ondelete="CASCADE"), nullable=False),
    Column("stage_record_id", Name, ForeignKey("workflow_stages.id", ondelete="SET NULL")),
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
    **TABLE_OPTIONS,
)

jobs: Final = Table(
    "job_queue",
    metadata,
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
    UniqueConstraint("run_id", "stage_id"),
    **TABLE_OPTIONS,
)
_index_of_some(
    "ix_job_queue_pending",
    jobs.c.priority.desc(),
    jobs.c.position,
    where=jobs.c.status == "PENDING",
    led_by=jobs.c.status,
)
_index_of_some(
    "ix_job_queue_leases",
    jobs.c.locked_at,
    where=jobs.c.status == "RUNNING",
    led_by=jobs.c.status,
)
# Spelled out one by one: only so SQLite sees that it fits one of them. Whatever is claimed and done never enters it.
_STOPPED: Final = or_(
    *(jobs.c.status == literal_column(f"'{name}'") for name in ("FAILED", "SUSPENDED", "CANCELLED"))
)
_index_of_some(
    "ix_job_queue_stopped",
    jobs.c.status,
    jobs.c.position,
    where=_STOPPED,
)

outbox: Final = Table(
    "outbox_events",
    metadata,
    Column("id", Name, primary_key=True),
    Column("run_id", Name, ForeignKey("workflow_runs.id", ondelete="CASCADE"), nullable=False),
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
    **TABLE_OPTIONS,
)


class _Pending(ColumnElement[bool]):
    """`pending`, in the words that each database's index is found by; of no type, or `= 1` would be added to it."""

    inherit_cache = True


@compiles(_Pending)
def _as_partial_indexes_say(_element: _Pending, _compiler: SQLCompiler, **_: Any) -> str:
    # `pending = 1`, as SQLite would get it, doesn't fit.
    return "outbox_events.pending"


@compiles(_Pending, "mariadb")
def _as_a_value(_element: _Pending, _compiler: SQLCompiler, **_: Any) -> str:
    return "outbox_events.pending = 1"


def is_pending() -> ColumnElement[bool]:
    """Whether an event waits, such that its index is used."""
    return _Pending()


_index_of_some(
    "ix_outbox_events_pending",
    outbox.c.occurred_at,
    outbox.c.run_id,
    outbox.c.sequence,
    where=outbox.c.pending,
    led_by=outbox.c.pending,
)
_index_of_some(
    "ix_outbox_events_dead",
    outbox.c.dead_lettered_at,
    where=outbox.c.dead_lettered_at.is_not(None),
)

idempotency_keys: Final = Table(
    "idempotency_keys",
    metadata,
    Column("key", Name, nullable=False),
    Column("command_type", Name, nullable=False),
    Column("fingerprint", LongText, nullable=False),
    Column("acquired_at", Moment, nullable=False),
    Column("completed", Boolean(create_constraint=False), nullable=False),
    Column("result", ExactJson, nullable=False),
    Column("run_id", Name),
    PrimaryKeyConstraint("key", "command_type"),
    Index("ix_idempotency_keys_run", "run_id"),
    **TABLE_OPTIONS,
)

# One row; it counts notifications where the database itself has none.
signals: Final = Table(
    "work_signals",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("count", BigInteger, nullable=False),
    **TABLE_OPTIONS,
)

blobs: Final = Table(
    "workflow_blobs",
    metadata,
    Column("key", BlobKey, primary_key=True),
    Column("data", LongBytes, nullable=False),
    Column("content_type", LongText),
    Column("created_at", Moment, nullable=False),
    Column("updated_at", Moment, nullable=False),
    **TABLE_OPTIONS,
)

# What is left of runs that are being purged.
tombstones: Final = Table(
    "run_tombstones",
    metadata,
    Column("run_id", Name, primary_key=True),
    Column("blob_prefixes", ExactJson, nullable=False),
    Column("stage_ids", ExactJson, nullable=False),
    Column("stage_record_ids", ExactJson, nullable=False),
    Column("created_at", Moment, nullable=False),
    **TABLE_OPTIONS,
)

ai_calls: Final = Table(
    "ai_calls",
    metadata,
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
    info={"since": "0009"},
    **TABLE_OPTIONS,
)
