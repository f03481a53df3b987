"""Upgrades whose processes are killed, one after another, at every moment between two statements."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from schema_builds import ADDS, NEXT, Build
from sqlalchemy import Connection, inspect, text
from sqlalchemy.ext.asyncio import AsyncEngine

from stagewright_persistence_sqlalchemy import create_engine, migrating, schema
from stagewright_persistence_sqlalchemy.migration_declarations import oldest_build_of
from stagewright_persistence_sqlalchemy.schema_state import VERSION_TABLE

HEAD = schema.HEAD
STARTED_AGAIN = Path(__file__).parent / "killed_upgrades.py"
TAKES_AWAY = """
    op.create_table("totals", sa.Column("id", sa.Integer(), primary_key=True))
    op.add_column("work_signals", sa.Column("total", sa.BigInteger()))
    op.execute("UPDATE work_signals SET total = count WHERE total IS NULL")
    op.create_index("ix_work_signals_total", "work_signals", ["total"])
    op.drop_index("ix_job_queue_stopped", "job_queue")
"""

Start = dict[str, Any]


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def url(request: pytest.FixtureRequest, new_database: Callable[[str], str]) -> str:
    """An empty database."""
    return new_database(request.param)


@pytest_asyncio.fixture
async def engine(url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_engine(url)
    yield engine
    await engine.dispose()


@pytest_asyncio.fixture
async def other_engine(
    url: str, tmp_path: Path, new_database: Callable[[str], str]
) -> AsyncIterator[AsyncEngine]:
    """A second database of the same kind, whose upgrade nobody disturbs."""
    is_file = url.startswith("sqlite")
    engine = create_engine(
        f"sqlite:///{tmp_path}/calm.db" if is_file else new_database(url.partition(":")[0])
    )
    yield engine
    await engine.dispose()


async def starts_until_done(url: str, build: Build) -> list[Start]:
    """Start the build until nothing kills it any more; every start, and what was found after it."""
    command = [sys.executable, str(STARTED_AGAIN), url, str(build.folder), build.head]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, encoding="utf-8", timeout=240, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[-2_000:]
    starts: list[Start] = [json.loads(line) for line in done.stdout.splitlines()]
    assert [start["statements"] is None for start in starts] == [False] * (len(starts) - 1) + [True]
    return starts


async def catalog(engine: AsyncEngine) -> dict[str, Any]:
    """Every table with its columns and indexes."""

    def look(connection: Connection) -> dict[str, Any]:
        inspector = inspect(connection)
        return {
            table: (
                [(one["name"], str(one["type"]), one["nullable"], one["default"]) for one in columns],
                sorted((str(one["name"]), one["column_names"]) for one in inspector.get_indexes(table)),
            )
            for (_, table), columns in inspector.get_multi_columns().items()
        }

    async with engine.connect() as connection:
        return await connection.run_sync(look)


async def first_row(engine: AsyncEngine, query: str) -> tuple[Any, ...]:
    async with engine.connect() as connection:
        return tuple((await connection.execute(text(query))).one())


async def prepare(engine: AsyncEngine) -> None:
    await schema.upgrade(engine)
    async with engine.begin() as connection:
        await connection.execute(text("INSERT INTO work_signals (id, count) VALUES (1, 7)"))


@pytest.mark.wide
@pytest.mark.guarantee("sql.upgrades-are-repeated")
async def test_a_build_killed_at_every_moment_comes_to_the_same_as_one_that_was_not(
    url: str, engine: AsyncEngine, other_engine: AsyncEngine, tmp_path: Path
) -> None:
    """Meanwhile the older build works, since the migration says so."""
    build = Build.with_next(tmp_path / "later", ADDS, declarations=f'oldest_build = "{HEAD}"')
    await prepare(engine)
    starts = await starts_until_done(url, build)
    assert len(starts) > 8
    assert {start["own_build"] for start in starts} == {"works"}
    assert starts[-1]["oldest_build"] == HEAD
    assert list(dict.fromkeys(start["version"] for start in starts)) == [HEAD, NEXT]
    with build.acting():
        await schema.upgrade(other_engine)
        await schema.check(engine)
    assert await catalog(engine) == await catalog(other_engine)
    assert await first_row(engine, "SELECT count FROM work_signals") == (7,)


@pytest.mark.parametrize(
    "url",
    [*(pytest.param(kind, marks=pytest.mark.slow) for kind in ("sqlite", "postgresql")), "mariadb"],
    indirect=True,
)
@pytest.mark.guarantee("sql.upgrades-are-repeated")
async def test_a_begun_upgrade_keeps_out_what_does_not_work_on_it(
    url: str, engine: AsyncEngine, other_engine: AsyncEngine, tmp_path: Path
) -> None:
    build = Build.with_next(tmp_path / "later", TAKES_AWAY)
    await prepare(engine)
    starts = await starts_until_done(url, build)
    seen = [(start["version"], start["oldest_build"], start["own_build"]) for start in starts]
    story = list(dict.fromkeys(seen))
    untouched, begun, done = (
        (HEAD, oldest_build_of(migrating.SCRIPTS.get_revision(HEAD)), "works"),
        (HEAD, NEXT, "SchemaTooNewError"),
        (NEXT, NEXT, "SchemaTooNewError"),
    )
    assert seen == sorted(seen, key=story.index), "nothing goes back"
    # Elsewhere an interrupted upgrade is undone.
    stays = [begun] if engine.dialect.name == "mariadb" else []
    assert story == [untouched, *stays, done]
    with build.acting():
        await schema.upgrade(other_engine)
    assert await catalog(engine) == await catalog(other_engine)
    assert await first_row(engine, "SELECT count, total FROM work_signals") == (7, 7)


@pytest.mark.wide
@pytest.mark.parametrize("began_at", [None, "0001", "0006"], ids=["nothing", "0001", "0006"])
@pytest.mark.guarantee("sql.upgrades-are-repeated")
async def test_every_migration_can_be_interrupted_anywhere(
    url: str, engine: AsyncEngine, other_engine: AsyncEngine, tmp_path: Path, began_at: str | None
) -> None:
    if began_at is not None:
        with Build.of_version(began_at, tmp_path / "earlier").acting():
            await prepare(engine)
        async with engine.begin() as connection:
            await connection.execute(text(f"ALTER TABLE {VERSION_TABLE} DROP COLUMN oldest_build"))
    starts = await starts_until_done(url, Build.of_version(HEAD, tmp_path / "all"))
    versions = [start["version"] or "" for start in starts]
    assert versions == sorted(versions)
    assert versions[-1] == HEAD
    await schema.check(engine)
    await schema.upgrade(other_engine)
    ours, calm = await catalog(engine), await catalog(other_engine)
    assert ours == calm
    if began_at is not None:
        assert await first_row(engine, "SELECT count FROM work_signals") == (7,)
