"""What the migrations make is what the statements are written for."""

import re
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.schema import CreateSchema

from stagewright_persistence_sqlalchemy import create_engine, schema
from stagewright_persistence_sqlalchemy.engine import names_of
from stagewright_persistence_sqlalchemy.schema_state import VERSION_TABLE
from stagewright_persistence_sqlalchemy.tables import PLAIN_TABLES, tables_of

POSTGRESQL = {
    "columns": """
        SELECT table_name, column_name, ordinal_position, data_type, is_nullable, column_default,
               is_identity, identity_generation, collation_name
        FROM information_schema.columns WHERE table_schema = :schema
    """,
    "indexes": "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = :schema",
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid)
        FROM pg_constraint WHERE connamespace = to_regnamespace(:schema)
    """,
}
BETWEEN_COLUMNS = re.compile(r", (?![^(\n]*\))")
SQLITE = {
    "tables and indexes": "SELECT tbl_name, name, sql FROM sqlite_master WHERE type IN ('table', 'index')",
}

MARIADB = {
    "columns": """
        SELECT table_name, column_name, ordinal_position, column_type, is_nullable, column_default, extra,
               collation_name
        FROM information_schema.columns WHERE table_schema = DATABASE()
    """,
    "indexes": """
        SELECT table_name, index_name, seq_in_index, column_name, collation, non_unique
        FROM information_schema.statistics WHERE table_schema = DATABASE()
    """,
    "references": """
        SELECT table_name, constraint_name, referenced_table_name, unique_constraint_name, delete_rule
        FROM information_schema.referential_constraints WHERE constraint_schema = DATABASE()
    """,
    "tables": """
        SELECT table_name, engine, row_format, table_collation
        FROM information_schema.tables WHERE table_schema = DATABASE()
    """,
}
CATALOGS = {"sqlite": SQLITE, "postgresql": POSTGRESQL, "mariadb": MARIADB}


@pytest.fixture(
    params=[
        "sqlite",
        "postgresql",
        "mariadb",
        "sqlite named",
        "postgresql named",
        pytest.param("mariadb named", marks=pytest.mark.thorough),
    ]
)
def urls(
    request: pytest.FixtureRequest, tmp_path: object, new_database: Callable[[str], str]
) -> tuple[str, str]:
    """Two empty databases; `named` are those for a store with a prefix, and with a schema where there are any."""
    kind, _, named = request.param.partition(" ")
    names = "?table_prefix=x_" * bool(named) + "&schema=app" * (request.param == "postgresql named")
    if kind == "sqlite":
        return f"sqlite:///{tmp_path}/one.db{names}", f"sqlite:///{tmp_path}/other.db{names}"
    return new_database(kind) + names, new_database(kind) + names


@pytest_asyncio.fixture
async def migrated(urls: tuple[str, str]) -> AsyncIterator[AsyncEngine]:
    engine = create_engine(urls[0])
    await schema.upgrade(engine)
    yield engine
    await engine.dispose()


@pytest_asyncio.fixture
async def created(urls: tuple[str, str]) -> AsyncIterator[AsyncEngine]:
    engine = create_engine(urls[1])
    metadata = tables_of(names_of(engine)).metadata
    async with engine.begin() as connection:
        if metadata.schema is not None:
            await connection.execute(CreateSchema(metadata.schema))
        await connection.run_sync(metadata.create_all)
    yield engine
    await engine.dispose()


@pytest.mark.parametrize("urls", ["sqlite", "postgresql", "sqlite named", "postgresql named"], indirect=True)
async def test_alembic_finds_no_difference(migrated: AsyncEngine) -> None:
    names = names_of(migrated)

    def differences(connection: Connection) -> list[object]:
        # SQLite has no identity columns, which Alembic then takes for missing defaults.
        has_identities = connection.dialect.name != "sqlite"
        opts = {
            "version_table": names.of(VERSION_TABLE),
            "version_table_schema": names.schema,
            "include_schemas": names.schema is not None,
            "compare_type": True,
            "compare_server_default": has_identities,
        }
        context = MigrationContext.configure(connection, opts=opts)
        return list(compare_metadata(context, tables_of(names).metadata))

    async with migrated.connect() as connection:
        assert await connection.run_sync(differences) == []


async def test_the_catalogs_are_the_same(migrated: AsyncEngine, created: AsyncEngine) -> None:
    queries = CATALOGS[migrated.dialect.name]
    for what, query in queries.items():
        found = await catalog(migrated, query)
        assert found, what
        assert found == await catalog(created, query), what


async def catalog(engine: AsyncEngine, query: str) -> list[tuple[object, ...]]:
    names = names_of(engine)
    parameters = {"schema": names.schema or "public"} if ":schema" in query else {}
    async with engine.connect() as connection:
        rows = (await connection.execute(text(query), parameters)).all()
    versions = {names.of(VERSION_TABLE), f"{names.schema}.{names.of(VERSION_TABLE)}"}
    return sorted((tuple(map(plain, row)) for row in rows if row[0] not in versions), key=repr)


def plain(value: object) -> object:
    """The value; a statement as its parts, of which the order of constraints at the end says nothing."""
    if isinstance(value, str) and value.startswith("CREATE TABLE"):
        # SQLite writes an added column behind the last one, on its line.
        parts = BETWEEN_COLUMNS.split(value)
        lines = [line.strip().rstrip(",") for part in parts for line in part.splitlines() if line.strip()]
        return tuple(
            [line for line in lines if not line.startswith("CONSTRAINT")]
            + sorted(line for line in lines if line.startswith("CONSTRAINT"))
        )
    return value


@pytest.mark.guarantee("sql.names-compared-by-code-points")
async def test_every_name_on_postgresql_is_compared_by_code_points(
    new_database: Callable[[str], str],
) -> None:
    # Under a language's collation, which a database gets by default, prefixes and orders would be others.
    engine = create_engine(new_database("postgresql"))
    await schema.upgrade(engine)
    names = {
        (table.name, column.name)
        for table in PLAIN_TABLES.metadata.tables.values()
        for column in table.c
        if getattr(column.type.dialect_impl(engine.dialect), "collation", None) == "C"
    }
    async with engine.connect() as connection:
        found = await connection.execute(
            text("SELECT table_name, column_name FROM information_schema.columns WHERE collation_name = 'C'")
        )
        assert names == {tuple(row) for row in found if row[0] in PLAIN_TABLES.metadata.tables}
    await engine.dispose()
    assert names >= {("workflow_runs", "id"), ("workflow_blobs", "key"), ("workflow_annotations", "key")}
