"""The first tables.

Revision ID: 0001
"""

import sqlalchemy as sa
from alembic.operations import Operations

from stagewright_persistence_sqlalchemy import mariadb_types
from stagewright_persistence_sqlalchemy.repeatable_operations import led_by

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0001"
down_revision = None

_DECIMAL = sa.Text().with_variant(mariadb_types.LONG_TEXT, "mariadb")
_JSON = sa.Text().with_variant(mariadb_types.LONG_TEXT, "mariadb")
_MOMENT = (
    sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite").with_variant(mariadb_types.MOMENT, "mariadb")
)
_BYTES = sa.LargeBinary().with_variant(mariadb_types.LONG_BYTES, "mariadb")
_BLOB_KEY = sa.Text().with_variant(mariadb_types.BLOB_KEY, "mariadb")
_NAME = sa.Text().with_variant(mariadb_types.NAME, "mariadb")
_TEXT = sa.Text().with_variant(mariadb_types.LONG_TEXT, "mariadb")
_POSITION = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade(op: Operations) -> None:
    """Make every table with its indexes."""
    _make_runs(op)
    _make_definitions(op)
    _make_stages(op)
    _make_steps(op)
    _make_logs(op)
    _make_annotations(op)
    _make_job_queue(op)
    _make_outbox_events(op)
    _make_idempotency_keys(op)
    _make_work_signals(op)
    _make_blobs(op)


def _make_runs(op: Operations) -> None:
    op.create_table(
        "workflow_runs",
        sa.Column("id", _NAME, nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("updated_at", _MOMENT, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("workflow_id", _NAME, nullable=False),
        sa.Column("workflow_name", _TEXT, nullable=False),
        sa.Column("status", _NAME, nullable=False),
        sa.Column("started_at", _MOMENT),
        sa.Column("completed_at", _MOMENT),
        sa.Column("duration_us", sa.BigInteger()),
        sa.Column("input", _JSON, nullable=False),
        sa.Column("config", _JSON, nullable=False),
        sa.Column("output", _JSON, nullable=False),
        sa.Column("error", _JSON, nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("total_cost", _DECIMAL),
        sa.Column("total_tokens", sa.BigInteger(), nullable=False),
        sa.Column("definition_version", _NAME),
        sa.Column("redrive_count", sa.Integer(), nullable=False),
        sa.Column("event_seq", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_workflow_runs"),
    )
    op.create_index("ix_workflow_runs_created", "workflow_runs", ["created_at", "id"])
    op.create_index(
        "ix_workflow_runs_pending",
        "workflow_runs",
        led_by(op, "status", [sa.text("priority DESC"), "created_at", "id"]),
        sqlite_where=sa.text("status = 'PENDING'"),
        postgresql_where=sa.text("status = 'PENDING'"),
    )
    op.create_index("ix_workflow_runs_status", "workflow_runs", ["status", "created_at", "id"])
    op.create_index(
        "ix_workflow_runs_version", "workflow_runs", ["definition_version", "workflow_id", "status"]
    )
    op.create_index("ix_workflow_runs_workflow", "workflow_runs", ["workflow_id", "created_at", "id"])


def _make_definitions(op: Operations) -> None:
    op.create_table(
        "workflow_definitions",
        sa.Column("workflow_id", _NAME, nullable=False),
        sa.Column("version", _NAME, nullable=False),
        sa.Column("structure_hash", _TEXT, nullable=False),
        sa.Column("snapshot", _JSON, nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("workflow_id", "version", name="pk_workflow_definitions"),
    )


def _make_stages(op: Operations) -> None:
    op.create_table(
        "workflow_stages",
        sa.Column("id", _NAME, nullable=False),
        sa.Column("run_id", _NAME, nullable=False),
        sa.Column("stage_id", _NAME, nullable=False),
        sa.Column("stage_name", _TEXT, nullable=False),
        sa.Column("stage_number", sa.Integer(), nullable=False),
        sa.Column("execution_group", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("status", _NAME, nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("updated_at", _MOMENT, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("started_at", _MOMENT),
        sa.Column("completed_at", _MOMENT),
        sa.Column("duration_us", sa.BigInteger()),
        sa.Column("error", _JSON, nullable=False),
        sa.Column("metrics", _JSON, nullable=False),
        sa.Column("suspended_state", _JSON, nullable=False),
        sa.Column("next_poll_at", _MOMENT),
        sa.Column("poll_interval_us", sa.BigInteger()),
        sa.Column("max_wait_until", _MOMENT),
        sa.Column("output", _JSON, nullable=False),
        sa.Column("output_claim", _JSON, nullable=False),
        sa.Column("artifacts", _JSON, nullable=False),
        sa.Column("job_enqueued_at", _MOMENT),
        sa.PrimaryKeyConstraint("id", name="pk_workflow_stages"),
        sa.ForeignKeyConstraint(
            ["run_id"], ["workflow_runs.id"], name="fk_workflow_stages_run_id", ondelete="CASCADE"
        ),
        sa.UniqueConstraint("run_id", "stage_id", name="uq_workflow_stages_run_id_stage_id"),
    )
    op.create_index(
        "ix_workflow_stages_due",
        "workflow_stages",
        led_by(op, "status", ["next_poll_at"]),
        sqlite_where=sa.text("status = 'SUSPENDED'"),
        postgresql_where=sa.text("status = 'SUSPENDED'"),
    )
    op.create_index(
        "ix_workflow_stages_owed",
        "workflow_stages",
        led_by(op, "job_enqueued_at", ["created_at"]),
        sqlite_where=sa.text("status = 'PENDING' AND job_enqueued_at IS NULL"),
        postgresql_where=sa.text("status = 'PENDING' AND job_enqueued_at IS NULL"),
    )


def _make_steps(op: Operations) -> None:
    op.create_table(
        "workflow_steps",
        sa.Column("id", _NAME, nullable=False),
        sa.Column("stage_record_id", _NAME, nullable=False),
        sa.Column("step_id", _NAME, nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("kind", _TEXT, nullable=False),
        sa.Column("status", _NAME, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("lease_expires_at", _MOMENT),
        sa.Column("deadline_at", _MOMENT),
        sa.Column("external_key", _TEXT),
        sa.Column("result", _JSON, nullable=False),
        sa.Column("error", _JSON, nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("updated_at", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_workflow_steps"),
        sa.UniqueConstraint("stage_record_id", "step_id", name="uq_workflow_steps_stage_record_id_step_id"),
    )


def _make_logs(op: Operations) -> None:
    op.create_table(
        "workflow_logs",
        sa.Column("position", _POSITION, sa.Identity(), nullable=False),
        sa.Column("id", _NAME, nullable=False),
        sa.Column("run_id", _NAME, nullable=False),
        sa.Column("stage_record_id", _NAME),
        sa.Column("stage_id", _NAME),
        sa.Column("level", _TEXT, nullable=False),
        sa.Column("message", _TEXT, nullable=False),
        sa.Column("fields", _JSON, nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("position", name="pk_workflow_logs"),
        sa.ForeignKeyConstraint(
            ["run_id"], ["workflow_runs.id"], name="fk_workflow_logs_run_id", ondelete="CASCADE"
        ),
        sa.UniqueConstraint("id", name="uq_workflow_logs_id"),
    )
    op.create_index("ix_workflow_logs_run", "workflow_logs", ["run_id", "position"])


def _make_annotations(op: Operations) -> None:
    op.create_table(
        "workflow_annotations",
        sa.Column("position", _POSITION, sa.Identity(), nullable=False),
        sa.Column("id", _NAME, nullable=False),
        sa.Column("run_id", _NAME, nullable=False),
        sa.Column("stage_record_id", _NAME),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("scope", _TEXT, nullable=False),
        sa.Column("scope_id", _TEXT),
        sa.Column("actor_kind", _TEXT),
        sa.Column("actor_id", _TEXT),
        sa.Column("actor_version", _TEXT),
        sa.Column("key", _NAME, nullable=False),
        sa.Column("value", _JSON, nullable=False),
        sa.Column("payload", _JSON, nullable=False),
        sa.Column("idempotency_key", _NAME),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("position", name="pk_workflow_annotations"),
        sa.ForeignKeyConstraint(
            ["run_id"], ["workflow_runs.id"], name="fk_workflow_annotations_run_id", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["stage_record_id"],
            ["workflow_stages.id"],
            name="fk_workflow_annotations_stage_record_id",
            ondelete="SET NULL",
        ),
        sa.UniqueConstraint("id", name="uq_workflow_annotations_id"),
        sa.UniqueConstraint(
            "run_id", "key", "idempotency_key", name="uq_workflow_annotations_run_id_key_idempotency_key"
        ),
    )
    op.create_index(
        "ix_workflow_annotations_created", "workflow_annotations", ["run_id", "created_at", "position"]
    )


def _make_job_queue(op: Operations) -> None:
    op.create_table(
        "job_queue",
        sa.Column("position", _POSITION, sa.Identity(), nullable=False),
        sa.Column("id", _NAME, nullable=False),
        sa.Column("run_id", _NAME, nullable=False),
        sa.Column("stage_id", _NAME, nullable=False),
        sa.Column("workflow_id", _NAME, nullable=False),
        sa.Column("definition_version", _NAME),
        sa.Column("payload", _JSON, nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("status", _NAME, nullable=False),
        sa.Column("deliveries", sa.Integer(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("worker_losses", sa.Integer(), nullable=False),
        sa.Column("interruptions", sa.Integer(), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("max_worker_losses", sa.Integer(), nullable=False),
        sa.Column("worker_id", _TEXT),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("updated_at", _MOMENT, nullable=False),
        sa.Column("started_at", _MOMENT),
        sa.Column("locked_at", _MOMENT),
        sa.Column("completed_at", _MOMENT),
        sa.Column("due_at", _MOMENT),
        sa.Column("last_error", _TEXT),
        sa.PrimaryKeyConstraint("position", name="pk_job_queue"),
        sa.UniqueConstraint("id", name="uq_job_queue_id"),
        sa.UniqueConstraint("run_id", "stage_id", name="uq_job_queue_run_id_stage_id"),
    )
    op.create_index(
        "ix_job_queue_leases",
        "job_queue",
        led_by(op, "status", ["locked_at"]),
        sqlite_where=sa.text("status = 'RUNNING'"),
        postgresql_where=sa.text("status = 'RUNNING'"),
    )
    op.create_index(
        "ix_job_queue_pending",
        "job_queue",
        led_by(op, "status", [sa.text("priority DESC"), "position"]),
        sqlite_where=sa.text("status = 'PENDING'"),
        postgresql_where=sa.text("status = 'PENDING'"),
    )


def _make_outbox_events(op: Operations) -> None:
    op.create_table(
        "outbox_events",
        sa.Column("id", _NAME, nullable=False),
        sa.Column("run_id", _NAME, nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("type", _TEXT, nullable=False),
        sa.Column("payload", _JSON, nullable=False),
        sa.Column("causation_id", _TEXT, nullable=False),
        sa.Column("occurred_at", _MOMENT, nullable=False),
        sa.Column("pending", sa.Boolean(), nullable=False),
        sa.Column("published_at", _MOMENT),
        sa.Column("retry_count", sa.Integer(), nullable=False),
        sa.Column("retry_at", _MOMENT),
        sa.Column("last_error", _TEXT),
        sa.Column("last_error_at", _MOMENT),
        sa.Column("delivered_to", _JSON, nullable=False),
        sa.Column("dead_lettered_at", _MOMENT),
        sa.Column("claim_token", _TEXT),
        sa.Column("claimed_until", _MOMENT),
        sa.PrimaryKeyConstraint("id", name="pk_outbox_events"),
        sa.ForeignKeyConstraint(
            ["run_id"], ["workflow_runs.id"], name="fk_outbox_events_run_id", ondelete="CASCADE"
        ),
        sa.UniqueConstraint("run_id", "sequence", name="uq_outbox_events_run_id_sequence"),
    )
    op.create_index(
        "ix_outbox_events_dead",
        "outbox_events",
        ["dead_lettered_at"],
        sqlite_where=sa.text("dead_lettered_at IS NOT NULL"),
        postgresql_where=sa.text("dead_lettered_at IS NOT NULL"),
    )
    op.create_index(
        "ix_outbox_events_pending",
        "outbox_events",
        led_by(op, "pending", ["occurred_at", "run_id", "sequence"]),
        sqlite_where=sa.text("pending"),
        postgresql_where=sa.text("pending"),
    )


def _make_idempotency_keys(op: Operations) -> None:
    op.create_table(
        "idempotency_keys",
        sa.Column("key", _NAME, nullable=False),
        sa.Column("command_type", _NAME, nullable=False),
        sa.Column("fingerprint", _TEXT, nullable=False),
        sa.Column("acquired_at", _MOMENT, nullable=False),
        sa.Column("completed", sa.Boolean(), nullable=False),
        sa.Column("result", _JSON, nullable=False),
        sa.PrimaryKeyConstraint("key", "command_type", name="pk_idempotency_keys"),
    )


def _make_work_signals(op: Operations) -> None:
    op.create_table(
        "work_signals",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_work_signals"),
    )


def _make_blobs(op: Operations) -> None:
    op.create_table(
        "workflow_blobs",
        sa.Column("key", _BLOB_KEY, nullable=False),
        sa.Column("data", _BYTES, nullable=False),
        sa.Column("content_type", _TEXT),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("updated_at", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_workflow_blobs"),
    )
