"""Running migrations, on a database or into a text: whatever needs Alembic, which finished schemas don't."""

import io
from pathlib import Path
from typing import Any, Final

from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from stagewright_persistence_sqlalchemy.dialect import DatabaseKind, kind_of
from stagewright_persistence_sqlalchemy.migration_declarations import (
    oldest_build_of,
    oldest_database,
    switched_off,
)
from stagewright_persistence_sqlalchemy.named_operations import NamedOperations
from stagewright_persistence_sqlalchemy.names import Names
from stagewright_persistence_sqlalchemy.repeatable_operations import RepeatableOperations
from stagewright_persistence_sqlalchemy.schema_making import making_schema
from stagewright_persistence_sqlalchemy.schema_state import (
    OLDEST_BUILD,
    VERSION_TABLE,
    SchemaState,
    oldest_build_column,
)

__all__ = ["SCRIPTS", "before_build", "migrate", "written_migrations"]

SCRIPTS: Final = ScriptDirectory(str(Path(__file__).parent / "migrations"))
"""All migrations."""


def before_build(head: str, version: str) -> tuple[str, dict[str, str]]:
    """Of a build that needs `head`: the oldest database that it works on, and what is off on one of that version."""
    return oldest_database(SCRIPTS, head), switched_off(SCRIPTS, version, head)


def written_migrations(kind: DatabaseKind, names: Names) -> str:
    """The statements that make the schema of these names in an empty database of that kind."""
    written = io.StringIO()
    context = MigrationContext.configure(
        dialect_name=kind.name,
        # With the drivers' own styles every % of a statement would be written twice.
        dialect_opts={"paramstyle": "named"},
        opts=_options(
            kind,
            names,
            as_sql=True,
            output_buffer=written,
            transactional_ddl=kind.rolls_ddl_back,
            literal_binds=True,
        ),
    )
    with context.begin_transaction():
        if names.schema is not None:
            context.impl.execute(making_schema(names.schema))
        _run(context, _operations(context, names))
    return written.getvalue()


def migrate(connection: Connection, before: SchemaState) -> None:
    """Run what a database lacks, in the transaction that the connection is in."""
    kind = kind_of(connection.dialect.name)
    context = MigrationContext.configure(connection, opts=_options(kind, before.names))
    operations = _operations(context, before.names)
    if before.versions is not None and not before.notes_oldest_build:
        operations.add_column(VERSION_TABLE, oldest_build_column())
    _run(context, operations)


def _run(context: MigrationContext, operations: Operations) -> None:
    # A version table that is made now has the column from the start.
    context._version.append_column(oldest_build_column())
    # Migrations get their operations as an argument: Alembic's own proxy is one for the whole process.
    context.run_migrations(op=operations)


def _operations(context: MigrationContext, names: Names) -> Operations:
    is_mariadb = context.dialect.name == "mariadb"
    return RepeatableOperations(context, names) if is_mariadb else NamedOperations(context, names)


def _options(kind: DatabaseKind, names: Names, **more: Any) -> dict[str, Any]:  # Any: Alembic's options
    def steps(heads: Any, context: MigrationContext) -> Any:
        has_version = bool(heads)
        for step in SCRIPTS._upgrade_revs("head", heads):
            note = context._version.update().values({OLDEST_BUILD: oldest_build_of(step.revision)})
            if has_version:
                # Before its first statement: where those can't be taken back, an interrupted migration keeps builds out
                # that don't work on what it has begun.
                context.impl._exec(note)
            yield step
            if not has_version:
                context.impl._exec(note)
            has_version = True

    # MariaDB has one name for primary keys, and Alembic gives its table's another.
    is_named = kind.name != "mariadb"
    table = {"version_table": names.of(VERSION_TABLE), "version_table_schema": names.schema}
    return {**table, "version_table_pk": is_named, "fn": steps, **more}
