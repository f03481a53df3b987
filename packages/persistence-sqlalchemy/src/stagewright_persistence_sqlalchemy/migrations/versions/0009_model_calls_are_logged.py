"""The log of model calls.

Revision ID: 0009
"""

import sqlalchemy as sa
from alembic.operations import Operations
from sqlalchemy.dialects import postgresql

from stagewright_persistence_sqlalchemy import mariadb_types

__all__ = ["down_revision", "off_before", "oldest_build", "revision", "upgrade", "works_before"]

revision = "0009"
down_revision = "0008"
oldest_build = "0008"
works_before = True
off_before = "the log of model calls"

_BY_CODE_POINTS = postgresql.TEXT(collation="C")
_DECIMAL = sa.Text().with_variant(mariadb_types.LONG_TEXT, "mariadb")
_JSON = sa.Text().with_variant(mariadb_types.LONG_TEXT, "mariadb")
_MOMENT = (
    sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite").with_variant(mariadb_types.MOMENT, "mariadb")
)
_NAME = sa.Text().with_variant(mariadb_types.NAME, "mariadb").with_variant(_BY_CODE_POINTS, "postgresql")
_POSITION = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TEXT = sa.Text().with_variant(mariadb_types.LONG_TEXT, "mariadb")
_TOPIC = sa.Text().with_variant(mariadb_types.TOPIC, "mariadb").with_variant(_BY_CODE_POINTS, "postgresql")


def upgrade(op: Operations) -> None:
    """Add the table; whoever doesn't know it loses nothing."""
    op.create_table(
        "ai_calls",
        sa.Column("position", _POSITION, sa.Identity(), nullable=False),
        sa.Column("id", _NAME, nullable=False),
        sa.Column("topic", _TOPIC, nullable=False),
        sa.Column("call_type", _NAME, nullable=False),
        sa.Column("model_key", _NAME, nullable=False),
        sa.Column("model_id", _NAME, nullable=False),
        sa.Column("prompt", _TEXT, nullable=False),
        sa.Column("response", _TEXT, nullable=False),
        sa.Column("input_tokens", sa.BigInteger()),
        sa.Column("output_tokens", sa.BigInteger()),
        sa.Column("cost", _DECIMAL),
        sa.Column("metadata", _JSON, nullable=False),
        sa.Column("batch_id", _NAME),
        sa.Column("request_id", _NAME),
        sa.Column("estimated_cost", _DECIMAL),
        sa.Column("reported_cost", _DECIMAL),
        sa.Column("cost_source", _NAME),
        sa.Column("served_by", _NAME),
        sa.Column("cached_input_tokens", sa.BigInteger()),
        sa.Column("reasoning_tokens", sa.BigInteger()),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("position", name="pk_ai_calls"),
        sa.UniqueConstraint("id", name="uq_ai_calls_id"),
        sa.UniqueConstraint("batch_id", "request_id", name="uq_ai_calls_batch_id_request_id"),
    )
    op.create_index("ix_ai_calls_topic", "ai_calls", ["topic", "position"])
