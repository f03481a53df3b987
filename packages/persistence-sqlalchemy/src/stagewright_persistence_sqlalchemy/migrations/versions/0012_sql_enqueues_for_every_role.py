"""On PostgreSQL `stagewright_enqueue` finds its tables whoever calls it: its path says nothing of the caller.

A search path may say "$user", which is another schema for each role, and which a function keeps word for word.

Revision ID: 0012
"""

from alembic.operations import Operations

__all__ = ["down_revision", "oldest_build", "revision", "upgrade", "works_before"]

revision = "0012"
down_revision = "0011"
oldest_build = "0008"
works_before = True

# Its own schema too: an older database may have got the function in another one than the tables.
_NAME_THE_PLACE = """
DO $do$
DECLARE
    enqueue regprocedure := '{stagewright_enqueue}(text, text, text, jsonb, jsonb, integer, text)'::regprocedure;
    places text;
BEGIN
    SELECT string_agg(DISTINCT quote_ident(place.nspname), ', ') INTO places
    FROM pg_catalog.pg_namespace AS place
    WHERE place.oid IN (
        (SELECT made.pronamespace FROM pg_catalog.pg_proc AS made WHERE made.oid = enqueue),
        (SELECT made.relnamespace FROM pg_catalog.pg_class AS made WHERE made.oid = '{workflow_runs}'::regclass)
    );
    EXECUTE format('ALTER FUNCTION %s SET search_path = %s', enqueue, places);
END
$do$
"""


def upgrade(op: Operations) -> None:
    """Name the schemas in the function's path; the function stays as it is."""
    if op.get_context().dialect.name == "postgresql":
        op.execute(_NAME_THE_PLACE)
