"""What the conformance suite learns of a database before it deletes everything there, and the deleting."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from stagewright.plugins import AdapterOptions
from stagewright_conformance.samples import a_run
from stagewright_persistence_sqlalchemy.errors import UnknownSchemaError
from stagewright_persistence_sqlalchemy.plugin import contents, empty, open_database


async def create_run(url: str) -> None:
    async with open_database(url, AdapterOptions(create_schema=True)) as served:
        assert served.persistence is not None
        await served.persistence.create_run(a_run())


@pytest.mark.parametrize("named", ["", "?table_prefix=mine_"])
@pytest.mark.parametrize("fixture", ["sqlite_url", "postgres_url"])
async def test_what_is_there_is_said_and_deleted(
    fixture: str, named: str, request: pytest.FixtureRequest
) -> None:
    url = f"{request.getfixturevalue(fixture)}{named}"
    assert await contents(url) is None
    await create_run(url)
    assert await contents(url) == f"rows in {'mine_' * bool(named)}workflow_runs"
    await empty(url)
    assert await contents(url) is None
    await create_run(url)
    assert await contents(url) is not None


def test_looking_makes_nothing(sqlite_url: str, tmp_path: Path) -> None:
    assert asyncio.run(contents(sqlite_url)) is None
    assert list(tmp_path.iterdir()) == []


async def test_stores_of_other_names_in_the_database_are_left_alone(sqlite_url: str) -> None:
    await create_run(sqlite_url)
    await empty(f"{sqlite_url}?table_prefix=mine_")
    assert await contents(sqlite_url) == "rows in workflow_runs"


async def test_an_older_schema_is_something_that_is_there(sqlite_url: str) -> None:
    await create_run(sqlite_url)
    with sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as connection:
        connection.execute("UPDATE stagewright_schema_version SET version_num = '0001'")
    assert "the schema 0001, which would be brought to" in str(await contents(sqlite_url))


async def test_tables_of_somebody_elses_are_no_store(sqlite_url: str) -> None:
    with sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as connection:
        connection.execute("CREATE TABLE workflow_runs (id TEXT)")
    for use in (contents, empty):
        with pytest.raises(UnknownSchemaError):
            await use(sqlite_url)
