"""A stage that was resumed and has no job yet is found as one that was opened and has none.

Revision ID: 0003
"""

import sqlalchemy as sa
from alembic.operations import Operations

from stagewright_persistence_sqlalchemy.repeatable_operations import led_by

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0003"
down_revision = "0002"

_OWED = "(status = 'PENDING' OR status = 'SUSPENDED' AND next_poll_at IS NULL) AND job_enqueued_at IS NULL"


def upgrade(op: Operations) -> None:
    """Make the index anew."""
    op.drop_index("ix_workflow_stages_owed", "workflow_stages")
    op.create_index(
        "ix_workflow_stages_owed",
        "workflow_stages",
        led_by(op, "job_enqueued_at", ["updated_at", "id"]),
        sqlite_where=sa.text(_OWED),
        postgresql_where=sa.text(_OWED),
    )
