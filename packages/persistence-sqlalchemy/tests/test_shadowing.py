"""Holding candidate builds against a database that can only be read."""

import sqlite3
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio
from sqlalchemy import text

from stagewright import StageContext, Workflow, define_stage, define_workflow, open_kernel
from stagewright.commands import ClaimJobs, ClaimPendingRuns, CreateRun
from stagewright.errors import InvalidSettingError, ShadowIncompatibleError
from stagewright.hosting import run_job
from stagewright.records import RunQuery
from stagewright.testing import (
    RunShadowReport,
    VersionShadowReport,
    assert_shadow_compatible,
    shadow_runs,
    shadow_versions,
)
from stagewright_persistence_sqlalchemy import create_engine, schema
from stagewright_persistence_sqlalchemy.errors import DatabaseUnusableError, SchemaMissingError
from stagewright_persistence_sqlalchemy.tables import PLAIN_TABLES


async def work(ctx: StageContext[Any]) -> dict[str, int]:
    await ctx.step.run("work", lambda: 1)
    return {"done": 1}


async def wait(ctx: StageContext[Any]) -> int:
    return await ctx.step.wait_for_signal("go", timeout="7d", returns=int)


first = define_stage("first", work, input=Any, output=dict[str, int])
second = define_stage("second", wait, input=Any, output=int)
deployed = define_workflow("w", input=int).pipe(first).pipe(second).build()
longer = (
    define_workflow("w", input=int)
    .pipe(first)
    .pipe(second)
    .pipe(define_stage("third", work, input=Any, output=Any))
    .build()
)
other = (
    define_workflow("w", input=int)
    .pipe(define_stage("first", work, input=Any, output=str))
    .pipe(define_stage("late", wait, input=Any, output=int))
    .build()
)


@pytest_asyncio.fixture(
    params=[
        "sqlite",
        "sqlite copy",
        "role",
        "transaction",
        "psycopg",
        pytest.param("mariadb", marks=pytest.mark.slow),
    ]
)
async def reading_url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """A database with one run that has a stage behind it and waits in another, opened so that it can only be read."""
    way: str = request.param
    if way.startswith("sqlite"):
        url = str(request.getfixturevalue("sqlite_url"))
        await begin_a_run(url)
        if way == "sqlite copy":
            # As a backup makes it: another way of writing, and no file beside it.
            copy = tmp_path / "a copy #1.db"
            with sqlite3.connect(url.removeprefix("sqlite:///")) as source:
                source.execute("VACUUM INTO ?", [str(copy)])
            source.close()
            url = f"sqlite:///{copy.as_posix()}"
        yield f"{url}?mode=ro"
        return
    if way == "mariadb":
        async for url in mariadb_to_read(str(request.getfixturevalue("mariadb_url"))):
            yield url
        return
    url = str(request.getfixturevalue("postgres_url"))
    engine = create_engine(url)
    role = f"reader_{uuid.uuid4().hex[:12]}"
    async with engine.begin() as connection:
        await connection.execute(text("DROP SCHEMA public CASCADE"))
        await connection.execute(text("CREATE SCHEMA public"))
    await schema.upgrade(engine)
    await begin_a_run(url)
    if way == "role":
        async with engine.begin() as connection:
            await connection.execute(text(f"CREATE ROLE {role} LOGIN"))
            await connection.execute(text(f"GRANT USAGE ON SCHEMA public TO {role}"))
            await connection.execute(text(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}"))
        yield url.replace("postgres@", f"{role}@")
        async with engine.begin() as connection:
            await connection.execute(text(f"DROP OWNED BY {role}"))
            await connection.execute(text(f"DROP ROLE {role}"))
    else:
        driver = "psycopg" if way == "psycopg" else "asyncpg"
        options = quote("-c default_transaction_read_only=on")
        yield f"{url.replace('postgresql', f'postgresql+{driver}')}?options={options}"
    await engine.dispose()


async def mariadb_to_read(url: str) -> AsyncIterator[str]:
    engine = create_engine(url)
    role, name = f"reader_{uuid.uuid4().hex[:12]}", engine.url.database
    if await schema.current(engine) is None:
        await schema.upgrade(engine)
    async with engine.begin() as connection:
        for table in reversed(PLAIN_TABLES.metadata.sorted_tables):
            await connection.execute(table.delete())
        await connection.execute(text(f"CREATE USER {role}@'%'"))
        await connection.execute(text(f"GRANT SELECT ON {name}.* TO {role}@'%'"))
    await begin_a_run(url)
    yield url.replace("root@", f"{role}@")
    async with engine.begin() as connection:
        await connection.execute(text(f"DROP USER {role}@'%'"))
    await engine.dispose()


async def begin_a_run(url: str) -> None:
    async with open_kernel([deployed], url, spill_threshold_bytes=2) as kernel:
        await kernel.dispatch(CreateRun("w", 1))
        await kernel.dispatch(ClaimPendingRuns("worker"))
        for _ in range(2):
            for job in (await kernel.dispatch(ClaimJobs("worker"))).jobs:
                await run_job(kernel, job)


async def looked(url: str, candidate: Workflow) -> tuple[VersionShadowReport, RunShadowReport]:
    async with open_kernel([candidate], url) as kernel:
        ports = kernel.ports
        return (
            await shadow_versions(ports.persistence, [candidate]),
            await shadow_runs(
                ports.persistence, [candidate], step_ledger=ports.step_ledger, blob_store=ports.blob_store
            ),
        )


@pytest.mark.guarantee("testing.shadows-only-read")
async def test_a_login_that_may_only_read_is_enough(reading_url: str) -> None:
    for candidate in (deployed, longer):
        versions, runs = await looked(reading_url, candidate)
        assert (len(versions.versions), len(runs.runs)) == (1, 1)
        assert_shadow_compatible(versions)
        assert_shadow_compatible(runs)
    versions, runs = await looked(reading_url, other)
    assert [drift.code for drift in versions.versions[0].drifts] == [
        "STAGE_SCHEMA_CHANGED",
        "STAGE_REMOVED",
        "STAGE_ADDED",
    ]
    assert [(issue.code, issue.stage_id) for issue in runs.runs[0].issues] == [
        ("STAGE_REMOVED", "second"),
        ("STAGE_INSERTED_BEFORE_CURSOR", "late"),
        ("OUTPUT_REJECTED", "first"),
        ("STEP_LEDGER_ORPHANED", "second"),
    ]
    with pytest.raises(ShadowIncompatibleError):
        assert_shadow_compatible(runs)


async def test_nothing_can_be_written_that_way(reading_url: str) -> None:
    async with open_kernel([deployed], reading_url) as kernel:
        with pytest.raises(Exception, match=r"(?i)read-?\s?only|(permission|command) denied"):
            await kernel.dispatch(CreateRun("w", 2))
        page = await kernel.ports.run_reader.list_runs(RunQuery(), limit=10, cursor=None)
        assert len(page.items) == 1


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.guarantee("sql.a-file-is-opened-for-reading")
async def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "gone.db"
    with pytest.raises(SchemaMissingError):
        async with open_kernel([deployed], f"sqlite:///{path.as_posix()}?mode=ro"):
            pass
    assert files(tmp_path) == []
    sqlite3.connect(path).close()
    with pytest.raises((SchemaMissingError, DatabaseUnusableError)):
        async with open_kernel([deployed], f"sqlite:///{path.as_posix()}?mode=ro"):
            pass
    assert files(tmp_path) == ["gone.db"]


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite:///x.db?mode=rw", "'mode', which can't be used: SQLite takes mode=ro"),
        ("sqlite:///x.db?mode=ro&cache=shared", "'cache', which can't be used"),
        ("sqlite://?mode=ro", "nothing to read in a new database in memory"),
        ("sqlite:///:memory:?mode=ro", "nothing to read in a new database in memory"),
    ],
)
def test_no_other_parameter_is_taken(url: str, words: str) -> None:
    with pytest.raises(InvalidSettingError, match=words):
        create_engine(url)
