"""Stages that are due and the log lines of a run are read in their order, without sorting them.

Revision ID: 0007
"""

import sqlalchemy as sa
from alembic.operations import Operations

from stagewright_persistence_sqlalchemy.repeatable_operations import led_by, remake_index

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0007"
down_revision = "0006"

_SUSPENDED = "status = 'SUSPENDED'"


def upgrade(op: Operations) -> None:
    """Make two indexes anew, with more columns."""
    remake_index(
        op,
        "ix_workflow_stages_due",
        "workflow_stages",
        led_by(op, "status", ["next_poll_at", "id"]),
        sqlite_where=sa.text(_SUSPENDED),
        postgresql_where=sa.text(_SUSPENDED),
    )
    remake_index(op, "ix_workflow_logs_run", "workflow_logs", ["run_id", "created_at", "id"])
