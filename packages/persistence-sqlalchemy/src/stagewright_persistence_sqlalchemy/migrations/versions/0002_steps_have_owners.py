"""Who executes a step, when a failed one is executed again, and which step a stage waits for.

Revision ID: 0002
"""

import sqlalchemy as sa
from alembic.operations import Operations

from stagewright_persistence_sqlalchemy import mariadb_types

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0002"
down_revision = "0001"

_JSON = sa.Text().with_variant(mariadb_types.LONG_TEXT, "mariadb")
_MOMENT = (
    sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite").with_variant(mariadb_types.MOMENT, "mariadb")
)
_TEXT = sa.Text().with_variant(mariadb_types.LONG_TEXT, "mariadb")


def upgrade(op: Operations) -> None:
    """Add the columns; what is there keeps its meaning."""
    op.add_column("workflow_stages", sa.Column("waiting_step_id", _TEXT))
    op.add_column(
        "workflow_steps",
        sa.Column("stage_attempt", sa.Integer(), nullable=False, server_default=sa.text("1")),
    )
    op.add_column("workflow_steps", sa.Column("owner_job_id", _TEXT))
    op.add_column("workflow_steps", sa.Column("owner_deliveries", sa.Integer()))
    op.add_column("workflow_steps", sa.Column("retry_at", _MOMENT))
    op.add_column("workflow_steps", sa.Column("result_claim", _JSON))
