"""What the migrations make is what the statements are written for."""

import uuid
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine

from stagewright_persistence_sqlalchemy import create_engine, schema
from stagewright_persistence_sqlalchemy.schema_state import VERSION_TABLE
from stagewright_persistence_sqlalchemy.tables import metadata
from stagewright_test_support.servers import PostgresDatabases

POSTGRESQL = {
    "columns": """
        SELECT table_name, column_name, ordinal_position, data_type, is_nullable, column_default,
               is_identity, identity_generation
        FROM information_schema.columns WHERE table_schema = 'public'
    """,
    "indexes": "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid)
        FROM pg_constraint WHERE connamespace = 'public'::regnamespace
    """,
}
SQLITE = {
    "tables and indexes": "SELECT tbl_name, name, sql FROM sqlite_master WHERE type IN ('table', 'index')",
}


@pytest.fixture(params=["sqlite", "postgresql"])
def urls(request: pytest.FixtureRequest, tmp_path: object) -> Iterator[tuple[str, str]]:
    """Two empty databases."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/one.db", f"sqlite:///{tmp_path}/other.db"
        return
    databases = PostgresDatabases.at(request.getfixturevalue("postgres_url"))
    names = [f"equality_{uuid.uuid4().hex[:12]}" for _ in range(2)]
    one, other = map(databases.create, names)
    yield one, other
    for name in names:
        databases.drop(name)


@pytest_asyncio.fixture
async def migrated(urls: tuple[str, str]) -> AsyncIterator[AsyncEngine]:
    engine = create_engine(urls[0])
    await schema.upgrade(engine)
    yield engine
    await engine.dispose()


@pytest_asyncio.fixture
async def created(urls: tuple[str, str]) -> AsyncIterator[AsyncEngine]:
    engine = create_engine(urls[1])
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
    yield engine
    await engine.dispose()


async def test_alembic_finds_no_difference(migrated: AsyncEngine) -> None:
    def differences(connection: Connection) -> list[object]:
        # SQLite has no identity columns, which Alembic then takes for missing defaults.
        has_identities = connection.dialect.name != "sqlite"
        opts = {
            "version_table": VERSION_TABLE,
            "compare_type": True,
            "compare_server_default": has_identities,
        }
        context = MigrationContext.configure(connection, opts=opts)
        return list(compare_metadata(context, metadata))

    async with migrated.connect() as connection:
        assert await connection.run_sync(differences) == []


async def test_the_catalogs_are_the_same(migrated: AsyncEngine, created: AsyncEngine) -> None:
    queries = SQLITE if migrated.dialect.name == "sqlite" else POSTGRESQL
    for what, query in queries.items():
        found = await catalog(migrated, query)
        assert found, what
        assert found == await catalog(created, query), what


async def catalog(engine: AsyncEngine, query: str) -> list[tuple[object, ...]]:
    async with engine.connect() as connection:
        rows = (await connection.execute(text(query))).all()
    return sorted((tuple(map(plain, row)) for row in rows if row[0] != VERSION_TABLE), key=repr)


def plain(value: object) -> object:
    """The value; a statement as its lines, of which the order of constraints at the end says nothing."""
    if isinstance(value, str) and value.startswith("CREATE TABLE"):
        lines = [line.strip().rstrip(",") for line in value.splitlines()]
        return tuple(
            [line for line in lines if not line.startswith("CONSTRAINT")]
            + sorted(line for line in lines if line.startswith("CONSTRAINT"))
        )
    return value
