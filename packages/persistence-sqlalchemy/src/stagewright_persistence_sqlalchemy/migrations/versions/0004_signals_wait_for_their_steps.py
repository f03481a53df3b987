"""Signals that wait for their steps, how waits poll, and when a stage was nudged.

Revision ID: 0004
"""

import sqlalchemy as sa
from alembic.operations import Operations

from stagewright_persistence_sqlalchemy import mariadb_types

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0004"
down_revision = "0003"

_JSON = sa.Text().with_variant(mariadb_types.LONG_TEXT, "mariadb")
_MOMENT = (
    sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite").with_variant(mariadb_types.MOMENT, "mariadb")
)
_NAME = sa.Text().with_variant(mariadb_types.NAME, "mariadb")
_TEXT = sa.Text().with_variant(mariadb_types.LONG_TEXT, "mariadb")


def upgrade(op: Operations) -> None:
    """Add the table and the columns; what is there keeps its meaning."""
    op.create_table(
        "workflow_signals",
        sa.Column("id", _NAME, nullable=False),
        sa.Column("run_id", _NAME, nullable=False),
        sa.Column("stage_id", _NAME, nullable=False),
        sa.Column("step_id", _NAME, nullable=False),
        sa.Column("payload", _JSON, nullable=False),
        sa.Column("payload_claim", _JSON),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_workflow_signals"),
        sa.ForeignKeyConstraint(
            ["run_id"], ["workflow_runs.id"], name="fk_workflow_signals_run_id", ondelete="CASCADE"
        ),
        sa.UniqueConstraint(
            "run_id", "stage_id", "step_id", name="uq_workflow_signals_run_id_stage_id_step_id"
        ),
    )
    op.add_column("workflow_stages", sa.Column("nudged_at", _MOMENT))
    op.add_column("workflow_steps", sa.Column("poll_interval_us", sa.BigInteger()))
    op.add_column(
        "workflow_steps",
        sa.Column("poll_failures", sa.Integer(), nullable=False, server_default=sa.text("0")),
    )
