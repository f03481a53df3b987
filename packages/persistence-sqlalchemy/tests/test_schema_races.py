"""Several processes that make the schema at once, and processes that die while they do."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from schema_builds import Build
from sqlalchemy import text

from stagewright_persistence_sqlalchemy import create_engine, schema
from stagewright_persistence_sqlalchemy.schema_state import VERSION_TABLE
from stagewright_test_support.backend_choice import stores
from stagewright_test_support.servers import PostgresDatabases

PROCESSES = 6

STARTS = """
import asyncio, multiprocessing, sys, traceback
from stagewright import StageContext, define_workflow, open_kernel, stage
from stagewright.commands import CreateRun
import stagewright_persistence_sqlalchemy.plugin

@stage("one")
async def one(ctx: StageContext[None]) -> int:
    return 1

workflow = define_workflow("race", input=None).pipe(one).build()
url, create, processes = sys.argv[1], {"None": None, "True": True}[sys.argv[2]], int(sys.argv[3])

async def first_start():
    async with open_kernel(workflow, url, create_schema=create) as kernel:
        created = await kernel.dispatch(CreateRun(workflow_id="race", input=None))
        return created.run_id

def take_part(barrier, answers):
    barrier.wait()
    try:
        answers.put("run " + asyncio.run(first_start()))
    except BaseException:
        answers.put(traceback.format_exc())

fork = multiprocessing.get_context("fork")
barrier, answers = fork.Barrier(processes + 1), fork.SimpleQueue()
children = [fork.Process(target=take_part, args=(barrier, answers)) for _ in range(processes)]
for child in children:
    child.start()
print("ready", flush=True)
sys.stdin.readline()
barrier.wait()
print("started", flush=True)
for _ in children:
    print(answers.get())
for child in children:
    child.join()
"""

IN_THE_MIDDLE = {"empty": "job_queue (", "old": "ix_workflow_stages_due"}

HANGS = """
import asyncio, sys, time
from sqlalchemy import event
from stagewright_persistence_sqlalchemy import create_engine, schema

engine = create_engine(sys.argv[1])

@event.listens_for(engine.sync_engine, "after_cursor_execute")
def hang(connection, cursor, statement, *rest):
    if sys.argv[2] in statement:
        print("in the middle", flush=True)
        time.sleep(600)

asyncio.run(schema.upgrade(engine))
"""


@pytest.fixture(params=stores("sqlite", "asyncpg", "psycopg", "mariadb", differ={"mariadb"}))
def url(request: pytest.FixtureRequest, new_database: Callable[[str], str]) -> str:
    """An empty database."""
    return new_database(request.param)


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


async def versions_and_runs(url: str) -> tuple[list[str], list[str]]:
    engine = create_engine(url)
    await schema.check(engine)
    async with engine.connect() as connection:
        versions = (await connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}"))).scalars()
        runs = (await connection.execute(text("SELECT id FROM workflow_runs"))).scalars()
        answer = list(versions), list(runs)
    await engine.dispose()
    return answer


async def make_old(url: str, folder: Path) -> None:
    """Give a database the schema of two versions ago."""
    engine = create_engine(url)
    with Build.of_version("0006", folder).acting():
        await schema.upgrade(engine)
    async with engine.begin() as connection:
        await connection.execute(text(f"ALTER TABLE {VERSION_TABLE} DROP COLUMN oldest_build"))
    await engine.dispose()


@pytest.mark.slow
@pytest.mark.parametrize("database", ["empty", "old"])
@pytest.mark.parametrize("killed", [False, True], ids=["nobody killed", "one killed in the middle"])
@pytest.mark.guarantee("sql.first-starts-at-once")
def test_six_starts_at_once_all_end_healthy(url: str, killed: bool, database: str, tmp_path: Path) -> None:
    # A server's database gets a schema, and any other is upgraded, only where that is asked for.
    create = "None" if url.startswith("sqlite") and database == "empty" else "True"
    if database == "old":
        asyncio.run(make_old(url, tmp_path / "earlier"))
    starting = [start(STARTS, url, create, str(PROCESSES))]
    if killed:
        starting.append(start(HANGS, url, IN_THE_MIDDLE[database]))
    try:
        assert [line_of(process) for process in starting] == ["ready", "in the middle"][: len(starting)]
        go(starting[0])
        assert line_of(starting[0]) == "started"
        if killed:
            time.sleep(0.5)
            starting[1].kill()
        output, errors = starting[0].communicate(timeout=240)
    finally:
        for process in starting:
            process.kill()
            process.communicate()
    assert errors == ""
    versions, runs = asyncio.run(versions_and_runs(url))
    assert versions == [schema.HEAD]
    assert sorted(output.splitlines()) == sorted(f"run {run}" for run in runs)
    assert len(runs) == PROCESSES


@pytest.mark.guarantee("sql.broken-upgrade-leaves-nothing")
def test_what_a_killed_process_left_is_finished_by_the_next(url: str) -> None:
    victim = start(HANGS, url, IN_THE_MIDDLE["empty"])
    assert line_of(victim) == "in the middle"
    victim.kill()
    victim.communicate()

    async def finish() -> schema.Upgrade:
        engine = create_engine(url)
        assert await schema.current(engine) is None
        done = await schema.upgrade(engine)
        await schema.check(engine)
        await engine.dispose()
        return done

    assert asyncio.run(finish()) == schema.Upgrade(before=None, after=schema.HEAD)


async def test_a_stricter_isolation_does_not_blind_those_who_wait(postgres_url: str) -> None:
    databases = PostgresDatabases.at(postgres_url)
    url = await asyncio.to_thread(databases.create, "races_isolation")
    strict = {"server_settings": {"default_transaction_isolation": "serializable"}}
    engines = [create_engine(url, connect_args=strict) for _ in range(4)]
    done = await asyncio.gather(*map(schema.upgrade, engines))
    assert sorted(one.before or "" for one in done) == ["", *[schema.HEAD] * 3]
    for engine in engines:
        await engine.dispose()
    await asyncio.to_thread(databases.drop, "races_isolation")
