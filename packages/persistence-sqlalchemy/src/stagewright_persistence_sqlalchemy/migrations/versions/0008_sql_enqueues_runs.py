"""A function by which SQL, such as a trigger, creates a run in its own transaction; on PostgreSQL only.

Revision ID: 0008
"""

from alembic.operations import Operations

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0008"
down_revision = "0007"

# Without a schema it finds its tables where they are when it is made, whatever its caller's search path is.
_ENQUEUE = """
CREATE OR REPLACE FUNCTION {stagewright_enqueue}(
    idempotency_key text,
    workflow_id text,
    workflow_name text,
    input jsonb,
    config jsonb DEFAULT '{}',
    priority integer DEFAULT 5,
    definition_version text DEFAULT NULL
) RETURNS text
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $function$
#variable_conflict use_column
DECLARE
    made_at timestamptz := clock_timestamp();
    new_id text := {stagewright_new_id}(made_at);
    kept record;
    name text;
BEGIN
    IF coalesce(length({prefix}stagewright_enqueue.idempotency_key), 0) NOT BETWEEN 1 AND 255 THEN
        RAISE invalid_parameter_value USING MESSAGE =
            format('idempotency_key must have 1 to 255 characters, not %L', {prefix}stagewright_enqueue.idempotency_key);
    END IF;
    IF coalesce(length({prefix}stagewright_enqueue.workflow_id), 0) NOT BETWEEN 1 AND 255 THEN
        RAISE invalid_parameter_value USING MESSAGE =
            format('workflow_id must have 1 to 255 characters, not %L', {prefix}stagewright_enqueue.workflow_id);
    END IF;
    IF {prefix}stagewright_enqueue.input IS NULL THEN
        RAISE invalid_parameter_value USING MESSAGE =
            'input must not be NULL; for a workflow without any, give ''null''::jsonb';
    END IF;
    IF jsonb_typeof({prefix}stagewright_enqueue.config) IS DISTINCT FROM 'object' THEN
        RAISE invalid_parameter_value USING MESSAGE =
            format('config must be an object of values by stage, not %L', {prefix}stagewright_enqueue.config);
    END IF;
    IF coalesce({prefix}stagewright_enqueue.priority, -32769) NOT BETWEEN -32768 AND 32767 THEN
        RAISE invalid_parameter_value USING MESSAGE =
            format('priority must be from -32768 to 32767, not %L', {prefix}stagewright_enqueue.priority);
    END IF;
    IF {prefix}stagewright_enqueue.definition_version IS NOT NULL AND NOT EXISTS (
        SELECT FROM {workflow_definitions} AS known
        WHERE known.workflow_id = {prefix}stagewright_enqueue.workflow_id
            AND known.version = {prefix}stagewright_enqueue.definition_version
    ) THEN
        RAISE invalid_parameter_value USING MESSAGE = format(
            'workflow %L has no version %L; leave definition_version out, or start a worker that serves it first',
            {prefix}stagewright_enqueue.workflow_id, {prefix}stagewright_enqueue.definition_version
        );
    END IF;
    name := coalesce({prefix}stagewright_enqueue.workflow_name, {prefix}stagewright_enqueue.workflow_id);

    -- Whoever has the same key in an open transaction is waited for.
    INSERT INTO {idempotency_keys} (key, command_type, fingerprint, acquired_at, completed, result, run_id)
    VALUES (
        {prefix}stagewright_enqueue.idempotency_key,
        'run.create',
        'workflow:' || {prefix}stagewright_enqueue.workflow_id,
        made_at,
        true,
        json_build_object(
            'run_id', new_id, 'status', 'PENDING', 'definition_version', {prefix}stagewright_enqueue.definition_version
        )::text,
        new_id
    )
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        SELECT held.completed, held.run_id, run.workflow_id INTO kept
        FROM {idempotency_keys} AS held LEFT JOIN {workflow_runs} AS run ON run.id = held.run_id
        WHERE held.key = {prefix}stagewright_enqueue.idempotency_key AND held.command_type = 'run.create';
        IF NOT coalesce(kept.completed, false) THEN
            RAISE object_in_use USING MESSAGE = format(
                'idempotency_key %L is in use by a command that has not ended',
                {prefix}stagewright_enqueue.idempotency_key
            );
        END IF;
        IF kept.workflow_id IS DISTINCT FROM {prefix}stagewright_enqueue.workflow_id THEN
            RAISE invalid_parameter_value USING MESSAGE = format(
                'idempotency_key %L was used for a run of workflow %L',
                {prefix}stagewright_enqueue.idempotency_key, kept.workflow_id
            );
        END IF;
        RETURN kept.run_id;
    END IF;

    INSERT INTO {workflow_runs} (
        id, created_at, updated_at, version, workflow_id, workflow_name, status, input, config, output, error,
        priority, total_cost, total_tokens, definition_version, redrive_count, event_seq
    ) VALUES (
        new_id, made_at, made_at, 1, {prefix}stagewright_enqueue.workflow_id, name, 'PENDING',
        {prefix}stagewright_enqueue.input::text, {prefix}stagewright_enqueue.config::text, 'null', 'null',
        {prefix}stagewright_enqueue.priority, 0, 0, {prefix}stagewright_enqueue.definition_version, 0, 1
    );
    INSERT INTO {outbox_events} (
        id, run_id, sequence, type, payload, causation_id, occurred_at, pending, retry_count, delivered_to
    ) VALUES (
        {stagewright_new_id}(made_at), new_id, 1, 'workflow:created',
        json_build_object('workflow_id', {prefix}stagewright_enqueue.workflow_id)::text,
        {prefix}stagewright_enqueue.idempotency_key, made_at, true, 0, '[]'
    );
    PERFORM pg_notify('{channel}', 'runs');
    RETURN new_id;
END
$function$
"""  # noqa: E501 - SQL, as databases have it

# Like those that the engine makes: UUIDs of version 7, which rise with the time.
_NEW_ID = """
CREATE OR REPLACE FUNCTION {stagewright_new_id}(at timestamptz) RETURNS text
LANGUAGE sql VOLATILE
AS $function$
    SELECT overlay(
        overlay(gen_random_uuid()::text PLACING '7' FROM 15)
        PLACING regexp_replace(
            lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0'), '^(.{8})(.{4})$', '\\1-\\2'
        ) FROM 1
    )
$function$
"""


def upgrade(op: Operations) -> None:
    """Make the function, and what it makes ids with."""
    if op.get_context().dialect.name == "postgresql":
        op.execute(_NEW_ID)
        op.execute(_ENQUEUE)
