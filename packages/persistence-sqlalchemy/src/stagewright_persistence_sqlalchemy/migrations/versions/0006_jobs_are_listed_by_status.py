"""Jobs that have failed, wait or were cancelled are listed without reading all others.

Revision ID: 0006
"""

import sqlalchemy as sa
from alembic.operations import Operations

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0006"
down_revision = "0005"

_STOPPED = "status = 'FAILED' OR status = 'SUSPENDED' OR status = 'CANCELLED'"


def upgrade(op: Operations) -> None:
    """Make an index."""
    op.create_index(
        "ix_job_queue_stopped",
        "job_queue",
        ["status", "position"],
        sqlite_where=sa.text(_STOPPED),
        postgresql_where=sa.text(_STOPPED),
    )
