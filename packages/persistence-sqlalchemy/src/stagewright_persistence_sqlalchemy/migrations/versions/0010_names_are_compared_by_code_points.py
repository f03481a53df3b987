"""On PostgreSQL names, ids and keys are compared by code points, whatever the database's own collation is.

Under a language's rules "a.B" lies between "a.b" and "a.c", so that a range of keys holds more than what has a prefix.

Revision ID: 0010
"""

from typing import Final

from alembic.operations import Operations

__all__ = ["down_revision", "oldest_build", "revision", "upgrade", "works_before"]

revision = "0010"
down_revision = "0009"
oldest_build = "0008"
works_before = True

_NAMES: Final = {
    "workflow_runs": ("id", "workflow_id", "status", "definition_version"),
    "workflow_definitions": ("workflow_id", "version"),
    "workflow_stages": ("id", "run_id", "stage_id", "status"),
    "workflow_steps": ("id", "stage_record_id", "step_id", "status"),
    "workflow_signals": ("id", "run_id", "stage_id", "step_id"),
    "workflow_logs": ("id", "run_id", "stage_record_id", "stage_id"),
    "workflow_annotations": ("id", "run_id", "stage_record_id", "key", "idempotency_key"),
    "job_queue": ("id", "run_id", "stage_id", "workflow_id", "definition_version", "status"),
    "outbox_events": ("id", "run_id"),
    "idempotency_keys": ("key", "command_type", "run_id"),
    "workflow_blobs": ("key",),
    "run_tombstones": ("run_id",),
}


def upgrade(op: Operations) -> None:
    """Change the columns' collation; their indexes are made anew, their rows are left as they are."""
    if op.get_context().dialect.name != "postgresql":
        return
    for table, columns in _NAMES.items():
        # Of a table all at once, so that an index of several columns is made anew once.
        changes = ", ".join(f'ALTER COLUMN {column} TYPE text COLLATE "C"' for column in columns)
        op.execute(f"ALTER TABLE {{{table}}} {changes}")
