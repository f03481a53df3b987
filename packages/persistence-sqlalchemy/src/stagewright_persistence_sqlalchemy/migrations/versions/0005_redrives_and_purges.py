"""Stages whose steps a redrive has left to be reset, keys that name their run, and what is left of purged runs.

Revision ID: 0005
"""

import sqlalchemy as sa
from alembic.operations import Operations

from stagewright_persistence_sqlalchemy import mariadb_types

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0005"
down_revision = "0004"

_JSON = sa.Text().with_variant(mariadb_types.LONG_TEXT, "mariadb")
_MOMENT = (
    sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite").with_variant(mariadb_types.MOMENT, "mariadb")
)
_NAME = sa.Text().with_variant(mariadb_types.NAME, "mariadb")
_TEXT = sa.Text().with_variant(mariadb_types.LONG_TEXT, "mariadb")


def upgrade(op: Operations) -> None:
    """Add columns, indexes and a table; what is there keeps its meaning."""
    op.add_column("workflow_stages", sa.Column("steps_reset_owed_at", _MOMENT))
    op.add_column("idempotency_keys", sa.Column("run_id", _NAME))
    op.create_index("ix_idempotency_keys_run", "idempotency_keys", ["run_id"])
    op.create_index("ix_workflow_runs_completed", "workflow_runs", ["completed_at", "id"])
    op.create_index("ix_workflow_annotations_stage", "workflow_annotations", ["stage_record_id"])
    op.create_table(
        "run_tombstones",
        sa.Column("run_id", _NAME, nullable=False),
        sa.Column("blob_prefixes", _JSON, nullable=False),
        sa.Column("stage_ids", _JSON, nullable=False),
        sa.Column("stage_record_ids", _JSON, nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("run_id", name="pk_run_tombstones"),
    )
