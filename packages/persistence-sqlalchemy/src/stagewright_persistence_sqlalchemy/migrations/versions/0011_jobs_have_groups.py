"""Jobs have groups, of which a fair claim takes no more than so many; those that are there have none.

Revision ID: 0011
"""

import sqlalchemy as sa
from alembic.operations import Operations
from sqlalchemy.dialects import postgresql

from stagewright_persistence_sqlalchemy import mariadb_types
from stagewright_persistence_sqlalchemy.repeatable_operations import led_by

__all__ = ["down_revision", "off_before", "oldest_build", "revision", "upgrade", "works_before"]

revision = "0011"
down_revision = "0010"
oldest_build = "0008"
works_before = True
off_before = "fair claiming by groups"

_NAME = (
    sa.Text()
    .with_variant(mariadb_types.NAME, "mariadb")
    .with_variant(postgresql.TEXT(collation="C"), "postgresql")
)
_PENDING = "status = 'PENDING'"


def upgrade(op: Operations) -> None:
    """Add the column and its index, and what claims on MariaDB lock."""
    op.add_column("job_queue", sa.Column("group_key", _NAME, nullable=False, server_default=sa.text("''")))
    op.create_index(
        "ix_job_queue_groups",
        "job_queue",
        led_by(op, "status", ["group_key", sa.text("priority DESC"), "position"]),
        sqlite_where=sa.text(_PENDING),
        postgresql_where=sa.text(_PENDING),
    )
    op.create_table(
        "job_group_locks",
        sa.Column("bucket", sa.Integer(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("bucket", name="pk_job_group_locks"),
    )
    if op.get_context().dialect.name == "mariadb":
        rows = ", ".join(f"({bucket})" for bucket in range(256))
        op.execute("INSERT IGNORE INTO {job_group_locks} (bucket) VALUES " + rows)
